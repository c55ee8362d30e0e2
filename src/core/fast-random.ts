/**
 * Random numbers for samples, on the path of a check: a xorshift generator. A client that could
 * predict them would gain nothing. For secrets use `node:crypto`.
 */

import { randomInt } from 'node:crypto';

export class FastRandom {
  /** In memory of its own: an integer field would be allocated anew with each number. */
  readonly #state: Int32Array;

  /** @param seed not 0; the same seed gives the same numbers */
  constructor(seed = randomInt(1, 2 ** 31)) {
    this.#state = Int32Array.of(seed);
  }

  /**
   * @param probability of each trial, above 0; with 1 it is always the first
   * @returns the number of the first trial that happens, from 1 on, without a draw for each
   */
  trialsUntil(probability: number): number {
    return 1 + Math.floor(Math.log(this.#next() / 2 ** 32) / Math.log1p(-probability));
  }

  /** @returns a number from 0 on, exponentially distributed */
  exponential(mean: number): number {
    return -mean * Math.log(this.#next() / 2 ** 32);
  }

  /** @returns an integer from 1 to 2 ** 32 - 1 */
  #next(): number {
    let state = this.#state[0];
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#state[0] = state;
    return state >>> 0;
  }
}
