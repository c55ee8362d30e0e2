/**
 * The order in which locks are taken where several are held at once: by shard, then by group. Of
 * checks with the same lock the earlier comes first. Belongs to one thread.
 */

import { MULTI_LIMIT_MAX } from '../../core/constants.ts';

/** A key is the place of a lock in the order, times so many, and the number of a check. */
const CHECKS_PER_LOCK = 2 ** Math.ceil(Math.log2(MULTI_LIMIT_MAX));
const LOCKS_PER_SHARD = 2 ** 32;

export class LockOrder {
  readonly #keys = new Float64Array(MULTI_LIMIT_MAX);
  /** By place in the order: the number of the check, and 1 where its lock is the one before. */
  readonly #checks = new Uint8Array(MULTI_LIMIT_MAX);
  readonly #sharesLock = new Uint8Array(MULTI_LIMIT_MAX);

  /** Adds a check; numbers begin at 0. */
  add(check: number, shard: number, lock: number): void {
    this.#keys[check] = (shard * LOCKS_PER_SHARD + lock) * CHECKS_PER_LOCK + check;
  }

  /** Puts the first checks in order. */
  sort(count: number): void {
    const keys = this.#keys.subarray(0, count).sort();
    let before = -1;
    for (let place = 0; place < count; place++) {
      const lock = Math.floor(keys[place] / CHECKS_PER_LOCK);
      this.#checks[place] = keys[place] - lock * CHECKS_PER_LOCK;
      this.#sharesLock[place] = lock === before ? 1 : 0;
      before = lock;
    }
  }

  /** The number of the check at a place in the order. */
  checkAt(position: number): number {
    return this.#checks[position];
  }

  /** Whether the check at a place has the lock of the one before it. */
  sharesLock(position: number): boolean {
    return this.#sharesLock[position] === 1;
  }
}
