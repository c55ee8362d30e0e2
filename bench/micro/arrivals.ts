/**
 * Arrival times of the checks of one identifier, on a virtual clock in whole ms from 0.
 * Arrivals are steady, in bursts, or from a client that knows the window ends. They are the same in
 * every run.
 */

import { seededRandom } from '../../test/support/seeded-random.ts';

export const LIMIT = 100;
export const DURATION_MS = 60_000;
/** The time between two checks at a demand of exactly the limit. */
const GAP_MS = DURATION_MS / LIMIT;

/** An endless, ascending sequence of check times in ms. Each check costs one token. */
export type Arrivals = Generator<number, never>;

/** @param demand tokens per window in multiples of the limit, here and below */
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

/** Bursts of random size up to the limit, with 5 ms between checks and random pauses. */
export function* burstArrivals(demand: number): Arrivals {
  const below = seededRandom(2);
  const wait = exponentialWaits(3);
  for (let at = 0; ; ) {
    const size = 1 + below(LIMIT);
    for (let i = 0; i < size; i++, at += 5) yield Math.floor(at);
    at += wait(DURATION_MS / 2 / demand);
  }
}

/** A burst of the whole limit at each interval. */
export function* fullBursts(everyMs: number): Arrivals {
  for (let at = 0; ; at += everyMs) yield* burstAt(at);
}

/** The whole limit in the last ms of a window, and again in the first ms of the next. */
export function* boundaryBursts(): Arrivals {
  for (let boundary = DURATION_MS; ; boundary += 2 * DURATION_MS) {
    yield* burstAt(boundary - 1);
    yield* burstAt(boundary);
  }
}

/**
 * The whole limit in the last ms of a window, then each token as soon as the sliding window frees
 * it. The sliding window assumes that the previous usage was spread evenly, and frees it gradually.
 * In fact all of it is younger than a duration until the next window ends. The pattern repeats
 * every second window.
 */
export function* boundaryThenDrain(): Arrivals {
  for (let boundary = DURATION_MS; ; boundary += 2 * DURATION_MS) {
    yield* burstAt(boundary - 1);
    for (let i = 0; i < LIMIT; i++) yield boundary + i * GAP_MS + 1;
  }
}

/** A check at every ms, which uses each free token immediately; starts before a window end. */
export function* everyMillisecond(): Arrivals {
  for (let at = DURATION_MS - LIMIT; ; at++) yield at;
}

function* burstAt(at: number): Generator<number, void> {
  for (let i = 0; i < LIMIT; i++) yield at;
}

/** Exponentially distributed waiting times with the given mean. */
function exponentialWaits(seed: number): (meanMs: number) => number {
  const below = seededRandom(seed);
  return (meanMs) => -meanMs * Math.log(1 - below(2 ** 24) / 2 ** 24);
}
