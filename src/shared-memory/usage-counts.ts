/**
 * How often each override applied to checks and acquires of one acceptor, in its stats block. A row
 * has two float64: their count | monotonic ms of the last one. The acceptor is the only writer.
 * Most rows are never written, and so use no memory.
 */

import { USAGE_ROWS } from '../core/constants.ts';

const ROW_DOUBLES = 2;
export const USAGE_DOUBLES = ROW_DOUBLES * USAGE_ROWS;

export class UsageCounts {
  readonly #doubles: Float64Array;

  constructor(doubles: Float64Array) {
    this.#doubles = doubles;
  }

  /** Counts a check or an acquire to which an override applied. @param row see `UsageRows` */
  record(row: number, monotonicMs: number): void {
    const at = ROW_DOUBLES * row;
    // The count comes last: a reader of the count finds its time, or a later one.
    this.#doubles[at + 1] = monotonicMs;
    this.#doubles[at]++;
  }

  /** How many were counted in a row. */
  count(row: number): number {
    return this.#doubles[ROW_DOUBLES * row];
  }

  /** The time of the last one in monotonic ms; 0 if none was counted. */
  lastMs(row: number): number {
    return this.#doubles[ROW_DOUBLES * row + 1];
  }
}
