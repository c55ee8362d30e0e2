/**
 * The latency of check requests in the last hour. Acceptors count it in histograms since the start.
 * The main thread reads the sum of them once a second, also while no dashboard is open, and keeps
 * the readings of an hour: the histogram of any time is the difference of two readings. A second in
 * which the main thread was late has no reading, and the time begins at the one before.
 *
 * 324 KiB: counts are kept modulo 2^32, and their differences are exact below that.
 */

import { LATENCY_HISTORY_MS, LATENCY_HISTORY_STEP_MS } from '../core/constants.ts';
import { type AcceptorStats, LATENCY_BOUNDS_US } from '../shared-memory/stats.ts';
import { sumOfBuckets } from './series.ts';

const BUCKETS = LATENCY_BOUNDS_US.length + 1;
/** One more, from which the oldest second begins, and one for a tick that is early. */
const READINGS = LATENCY_HISTORY_MS / LATENCY_HISTORY_STEP_MS + 2;
/** Ticks come every 100 ms, and a bit early or late. */
const TOLERANCE_MS = LATENCY_HISTORY_STEP_MS / 4;

/** The times that the dashboard shows, in ms. */
const SPANS_MS = [10_000, 60_000, 300_000, LATENCY_HISTORY_MS] as const;

/** Check requests of the last time by latency bucket. */
export interface LatencySpan {
  spanMs: number;
  /** The time that the counts are of: less than `spanMs` if weir has started since. */
  coveredMs: number;
  counts: number[];
}

export class LatencyHistory {
  readonly #acceptors: readonly Pick<AcceptorStats, 'latencyCounts'>[];
  readonly #monotonicMs: () => number;
  /** A ring. */
  readonly #times = new Float64Array(READINGS);
  readonly #counts = new Uint32Array(READINGS * BUCKETS);
  /** Readings so far. */
  #length = 0;

  constructor(
    acceptors: readonly Pick<AcceptorStats, 'latencyCounts'>[],
    monotonicMs: () => number,
  ) {
    this.#acceptors = acceptors;
    this.#monotonicMs = monotonicMs;
    this.tick();
  }

  /** Called once a second. */
  tick(): void {
    const slot = this.#length % READINGS;
    this.#times[slot] = this.#monotonicMs();
    this.#counts.set(this.#read(), slot * BUCKETS);
    this.#length++;
  }

  /** The last 10 s, minute, 5 minutes and hour. */
  spans(): LatencySpan[] {
    const nowMs = this.#monotonicMs();
    const now = this.#read();
    return SPANS_MS.map((spanMs) => {
      const slot = this.#slotAt(nowMs - spanMs);
      const coveredMs = nowMs - this.#times[slot];
      return { spanMs, coveredMs, counts: difference(now, this.#countsIn(slot)) };
    });
  }

  /**
   * Check requests by bucket between two times.
   * @param fromMs by the monotonic clock, as `toMs`
   * @returns undefined if this process did not run then
   */
  between(fromMs: number, toMs: number): number[] | undefined {
    const nowMs = this.#monotonicMs();
    if (toMs <= this.#times[this.#oldest % READINGS] || fromMs >= nowMs) return undefined;
    const last = toMs >= nowMs ? this.#read() : this.#countsIn(this.#slotAt(toMs));
    return difference(last, this.#countsIn(this.#slotAt(fromMs)));
  }

  #read(): Uint32Array {
    return Uint32Array.from(sumOfBuckets(this.#acceptors.map((stats) => stats.latencyCounts)));
  }

  /** The number of the oldest reading that is kept. */
  get #oldest(): number {
    return Math.max(0, this.#length - READINGS);
  }

  /** The slot of the newest reading that is not after a time, else of the oldest one. */
  #slotAt(ms: number): number {
    const oldest = this.#oldest;
    let index = this.#length - 1;
    while (index > oldest && this.#times[index % READINGS] > ms + TOLERANCE_MS) index--;
    return index % READINGS;
  }

  #countsIn(slot: number): Uint32Array {
    return this.#counts.subarray(slot * BUCKETS, (slot + 1) * BUCKETS);
  }
}

/** What was counted between two readings, by bucket. */
function difference(later: Uint32Array, earlier: Uint32Array): number[] {
  return Array.from(later, (count, bucket) => (count - earlier[bucket]) >>> 0);
}
