/**
 * The order in which locks are taken where several are held at once: by shard, then by group. Of
 * checks with the same lock the earlier comes first. Belongs to one thread.
 */

import { MULTI_LIMIT_MAX } from '../limits.ts';

/** A key is the place of a lock in the order, times so many, and the number of a check. */
const NUMBERS = 2 ** Math.ceil(Math.log2(MULTI_LIMIT_MAX));
const LOCKS = 2 ** 32;

export class LockOrder {
  readonly #all = new Float64Array(MULTI_LIMIT_MAX);
  #keys = this.#all;

  /** Adds a check; numbers begin at 0. */
  add(number: number, shard: number, lock: number): void {
    this.#all[number] = (shard * LOCKS + lock) * NUMBERS + number;
  }

  /** Puts the first checks in order. */
  sort(count: number): void {
    this.#keys = this.#all.subarray(0, count).sort();
  }

  /** The number of the check at a place in the order. */
  at(place: number): number {
    return this.#keys[place] - this.#lock(place) * NUMBERS;
  }

  /** Whether the check at a place has the lock of the one before it. */
  sharesLock(place: number): boolean {
    return place > 0 && this.#lock(place) === this.#lock(place - 1);
  }

  #lock(place: number): number {
    return Math.floor(this.#keys[place] / NUMBERS);
  }
}
