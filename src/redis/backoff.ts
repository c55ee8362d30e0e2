/** Delays between attempts: they double up to a maximum, and are spread, so that no two agree. */

import { randomInt } from 'node:crypto';
import { REDIS_BACKOFF_MS } from '../core/constants.ts';

const RESOLUTION = 2 ** 32;

/** @returns a number from 0 to below 1 */
export function randomFraction(): number {
  return randomInt(RESOLUTION) / RESOLUTION;
}

export class Backoff {
  readonly #random: () => number;
  #attempts = 0;

  constructor(random = randomFraction) {
    this.#random = random;
  }

  /** @returns how long to wait before the next attempt: half of the delay up to all of it */
  nextMs(): number {
    const { initial, max } = REDIS_BACKOFF_MS;
    const delayMs = Math.min(initial * 2 ** this.#attempts, max);
    if (delayMs < max) this.#attempts++;
    return delayMs * (0.5 + 0.5 * this.#random());
  }

  /** After a success. */
  reset(): void {
    this.#attempts = 0;
  }
}
