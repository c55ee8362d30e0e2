/**
 * Weir's time, and the only code that reads clocks.
 *
 * Weir's time is wall time, carried forward by the monotonic clock from an anchor in the control
 * words. The main thread compares it with the system clock every CLOCK_TICK_MS, and publishes a new
 * anchor where they differ:
 *
 *   system ahead    weir's time jumps to it; at worst one window starts too early
 *   system behind   weir's time runs up to 10 % slow until both agree, so no used window comes back
 *
 * The two anchors are written in turn; a sequence number says which one is active. A reader reads
 * the number, the anchor, and the number again: if it has not changed, the anchor was not written
 * meanwhile. What it reads is at most one tick old. If the main thread stops, time goes on from the
 * last anchor and does not follow steps of the system clock.
 */

import { performance } from 'node:perf_hooks';
import { ANCHOR, CONTROL, type Control } from './control.ts';

/** Smaller differences are noise: the system clock is read in whole milliseconds. */
const NOISE_TOLERANCE_MS = 1.5;
const MIN_RATE = 0.9;
/** From this difference on, weir's time runs at the slowest rate. */
const MIN_RATE_AHEAD_MS = 100;

/** Two readings at most this far apart: the thread was not suspended between them. */
const READ_GAP_MAX_MS = 0.1;
const READ_TRIES_MAX = 100;

/** The system clock, Unix time in ms, for code that runs without weir's time. */
export function systemMs(): number {
  return Date.now();
}

/** A monotonic clock in fractional ms, for durations in code that runs without weir's time. */
export function monotonicMs(): number {
  return performance.now();
}

/** The latest time that a JavaScript Date can hold. */
const ISO_TIME_MAX_MS = 8_640_000_000_000_000;

/** Formats a time as ISO 8601 in UTC. @param ms Unix time */
export function isoTime(ms: number): string {
  if (ms > ISO_TIME_MAX_MS) return `${ms} ms`;
  return new Date(ms).toISOString().replace('.000Z', 'Z');
}

export interface Anchor {
  monotonicMs: number;
  wallMs: number;
  /** Milliseconds of wall time per millisecond of monotonic time. */
  rate: number;
}

export function wallAt(anchor: Anchor, monotonicMs: number): number {
  return anchor.wallMs + (monotonicMs - anchor.monotonicMs) * anchor.rate;
}

/** The next anchor: under it time never runs backwards, and approaches the system clock. Pure. */
export function nextAnchor(anchor: Anchor, monotonicMs: number, systemMs: number): Anchor {
  const wallMs = wallAt(anchor, monotonicMs);
  const ahead = wallMs - systemMs;
  if (ahead < -NOISE_TOLERANCE_MS) return { monotonicMs, wallMs: systemMs, rate: 1 };
  if (ahead <= NOISE_TOLERANCE_MS) return { monotonicMs, wallMs, rate: 1 };
  const share = Math.min(1, ahead / MIN_RATE_AHEAD_MS);
  return { monotonicMs, wallMs, rate: 1 - (1 - MIN_RATE) * share };
}

/**
 * Reads one clock between two readings of another, and repeats until the two are close together.
 * Otherwise the time for which the thread was suspended would look like a clock difference.
 */
function readBetween<T>(now: () => number, read: () => T): { value: T; atMs: number } {
  for (let tries = 0; ; tries++) {
    const before = now();
    const value = read();
    const after = now();
    if (after - before <= READ_GAP_MAX_MS || tries === READ_TRIES_MAX) {
      return { value, atMs: (before + after) / 2 };
    }
  }
}

/** A monotonic clock that all threads share: `performance.now()` starts at 0 in each thread. */
class MonotonicClock {
  readonly #offsetMs: number;

  constructor() {
    const { value, atMs } = readBetween(
      () => performance.now(),
      () => process.hrtime(),
    );
    const [seconds, nanoseconds] = value;
    this.#offsetMs = seconds * 1e3 + nanoseconds / 1e6 - atMs;
  }

  nowMs(): number {
    return performance.now() + this.#offsetMs;
  }
}

/** Reads weir's time, in any thread. */
export class Clock {
  readonly #monotonic = new MonotonicClock();
  readonly #words: Int32Array;
  readonly #evenAnchor: Float64Array;
  readonly #oddAnchor: Float64Array;

  constructor(control: Control) {
    this.#words = control.words;
    this.#evenAnchor = control.anchor(0);
    this.#oddAnchor = control.anchor(1);
  }

  /** Unix time in whole milliseconds. */
  nowMs(): number {
    return this.wallMs(this.#monotonic.nowMs());
  }

  /** A point in time for durations and for `wallMs`: fractional milliseconds, not a date. */
  monotonicMs(): number {
    return this.#monotonic.nowMs();
  }

  /** Unix time in whole milliseconds of a recent reading of `monotonicMs`. */
  wallMs(monotonicMs: number): number {
    for (;;) {
      const sequence = Atomics.load(this.#words, CONTROL.clockSequence);
      const anchor = (sequence & 1) === 0 ? this.#evenAnchor : this.#oddAnchor;
      const elapsedMs = monotonicMs - anchor[ANCHOR.monotonicMs];
      const wallMs = anchor[ANCHOR.wallMs] + elapsedMs * anchor[ANCHOR.rate];
      if (Atomics.load(this.#words, CONTROL.clockSequence) === sequence) return Math.floor(wallMs);
    }
  }
}

/** Publishes the anchors. The main thread has the only one and calls `tick` every CLOCK_TICK_MS. */
export class ClockPublisher {
  readonly #monotonic = new MonotonicClock();
  readonly #control: Control;
  #anchor: Anchor;
  #sequence = 0;

  /** @param lastRunMs the latest time of the last run; weir's time never starts before it */
  constructor(control: Control, lastRunMs = 0) {
    this.#control = control;
    const { value, atMs } = this.#readSystemClock();
    this.#anchor = { monotonicMs: atMs, wallMs: Math.max(value, lastRunMs), rate: 1 };
    this.#publish();
  }

  tick(): void {
    const { value, atMs } = this.#readSystemClock();
    const next = nextAnchor(this.#anchor, atMs, value);
    const isRateUnchanged = next.rate === 1 && this.#anchor.rate === 1;
    const hasJumped = next.wallMs !== wallAt(this.#anchor, next.monotonicMs);
    if (isRateUnchanged && !hasJumped) return;
    this.#anchor = next;
    this.#publish();
  }

  /** Weir's time in fractional ms. */
  nowMs(): number {
    return wallAt(this.#anchor, this.#monotonic.nowMs());
  }

  /** How far weir's time is ahead of the system clock, in ms. */
  offsetMs(): number {
    const { value, atMs } = this.#readSystemClock();
    return wallAt(this.#anchor, atMs) - value;
  }

  /** The system clock, in the middle of the millisecond that it shows. */
  #readSystemClock(): { value: number; atMs: number } {
    return readBetween(
      () => this.#monotonic.nowMs(),
      () => systemMs() + 0.5,
    );
  }

  #publish(): void {
    this.#sequence = (this.#sequence + 1) | 0;
    const words = this.#control.anchor((this.#sequence & 1) as 0 | 1);
    words[ANCHOR.monotonicMs] = this.#anchor.monotonicMs;
    words[ANCHOR.wallMs] = this.#anchor.wallMs;
    words[ANCHOR.rate] = this.#anchor.rate;
    Atomics.store(this.#control.words, CONTROL.clockSequence, this.#sequence);
  }
}
