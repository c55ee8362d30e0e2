/**
 * When the checks of one identifier come, on a virtual clock in whole ms whose windows begin at 0:
 * steady, in bursts, and from one who knows where the windows end. The same in every run.
 */

import { seededRandom } from '../../test/support/seeded-random.ts';

export const LIMIT = 100;
export const DURATION_MS = 60_000;
/** Between two checks that ask for just the limit. */
const GAP_MS = DURATION_MS / LIMIT;

/** Times of checks in ms, in order; each asks for one token. They go on for ever. */
export type Arrivals = Generator<number, never>;

/** @param demand in limits for each window, here and below */
export function* evenArrivals(demand: number): Arrivals {
  for (let i = 0; ; i++) yield Math.floor((i * GAP_MS) / demand);
}

export function* poissonArrivals(demand: number): Arrivals {
  const wait = exponentialWaits(1);
  for (let at = 0; ; ) {
    at += wait(GAP_MS / demand);
    yield Math.floor(at);
  }
}

/** Bursts of any size up to the limit, 5 ms between two checks, and quiet times of any length. */
export function* burstArrivals(demand: number): Arrivals {
  const below = seededRandom(2);
  const wait = exponentialWaits(3);
  for (let at = 0; ; ) {
    const size = 1 + below(LIMIT);
    for (let i = 0; i < size; i++, at += 5) yield Math.floor(at);
    at += wait(DURATION_MS / 2 / demand);
  }
}

/** The limit all at once, again and again. */
export function* fullBursts(everyMs: number): Arrivals {
  for (let at = 0; ; at += everyMs) yield* burstAt(at);
}

/** The limit in the last ms of a window, and in the first one of the next. */
export function* boundaryBursts(): Arrivals {
  for (let boundary = DURATION_MS; ; boundary += 2 * DURATION_MS) {
    yield* burstAt(boundary - 1);
    yield* burstAt(boundary);
  }
}

/**
 * The limit in the last ms of a window, and each token of the next as soon as the sliding window
 * frees it. That takes the use before for spread over its window and gives it back bit by bit,
 * while in truth all of it is younger than a duration until the next window ends. By the end of the
 * window behind that the same can be done again.
 */
export function* boundaryThenDrain(): Arrivals {
  for (let boundary = DURATION_MS; ; boundary += 2 * DURATION_MS) {
    yield* burstAt(boundary - 1);
    for (let i = 0; i < LIMIT; i++) yield boundary + i * GAP_MS + 1;
  }
}

/** At every ms, so that whatever can be had is taken at once; from the limit before an end on. */
export function* everyMillisecond(): Arrivals {
  for (let at = DURATION_MS - LIMIT; ; at++) yield at;
}

function* burstAt(at: number): Generator<number, void> {
  for (let i = 0; i < LIMIT; i++) yield at;
}

/** Waiting times without a memory, by their mean. */
function exponentialWaits(seed: number): (meanMs: number) => number {
  const below = seededRandom(seed);
  return (meanMs) => -meanMs * Math.log(1 - below(2 ** 24) / 2 ** 24);
}
