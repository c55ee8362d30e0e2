/**
 * The order in which a batch takes its locks: by shard, then by group. Of checks with the same lock
 * the earlier comes first. Belongs to one thread.
 */

import { MULTI_LIMIT_MAX } from '../../core/constants.ts';

/** A sort key is the shard and the lock, times so many, plus the number of a check. */
const CHECKS_PER_LOCK = 2 ** Math.ceil(Math.log2(MULTI_LIMIT_MAX));
const LOCKS_PER_SHARD = 2 ** 32;

export class LockOrder {
  readonly #keys = new Float64Array(MULTI_LIMIT_MAX);
  /** By position: the number of the check, and 1 where it has the lock of the one before. */
  readonly #checks = new Uint8Array(MULTI_LIMIT_MAX);
  readonly #sharesLock = new Uint8Array(MULTI_LIMIT_MAX);

  /** Adds a check; numbers begin at 0. */
  add(check: number, shard: number, lock: number): void {
    this.#keys[check] = (shard * LOCKS_PER_SHARD + lock) * CHECKS_PER_LOCK + check;
  }

  /** Sorts the first `count` checks. */
  sort(count: number): void {
    const keys = this.#keys.subarray(0, count).sort();
    let previous = -1;
    for (let position = 0; position < count; position++) {
      const lock = Math.floor(keys[position] / CHECKS_PER_LOCK);
      this.#checks[position] = keys[position] - lock * CHECKS_PER_LOCK;
      this.#sharesLock[position] = lock === previous ? 1 : 0;
      previous = lock;
    }
  }

  /** The number of the check at a position. */
  checkAt(position: number): number {
    return this.#checks[position];
  }

  /** Whether the check at a position has the lock of the one before it. */
  sharesLock(position: number): boolean {
    return this.#sharesLock[position] === 1;
  }
}
