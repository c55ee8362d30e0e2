/**
 * The only reader of clocks.
 *
 * weir's time is wall time carried by the monotonic clock, from an anchor in the control words that
 * all threads share. The main thread compares it with the system's clock every CLOCK_TICK_MS and
 * publishes another anchor where they differ:
 *
 *   system ahead    followed at once; at worst one window is fresh too early
 *   system behind   absorbed by running up to 10 % slow until level, so no spent window comes back
 *
 * Two anchors are written in turn, and a sequence number says which one is in force. A reader
 * takes the anchor of the number it saw and looks again: unchanged, the anchor was whole, since the
 * next publication writes the other one. What it reads is at most one tick old.
 *
 * When the main thread stops, time goes on from the last anchor, blind to steps of the system
 * clock.
 */

import { performance } from 'node:perf_hooks';
import { ANCHOR, CONTROL, type Control } from './control.ts';

/** Differences within it are the noise of a system clock that is read in whole milliseconds. */
const NOISE_TOLERANCE_MS = 1.5;
const MIN_RATE = 0.9;
/** A clock that is this far ahead, or further, runs at the slowest rate. */
const MIN_RATE_AHEAD_MS = 100;

/** Two readings of a clock that are no further apart were made without a stop in between. */
const READ_GAP_MAX_MS = 0.1;
const READ_TRIES_MAX = 100;

/** The system's clock, Unix time in ms, for whoever has no part in weir's. */
export function systemMs(): number {
  return Date.now();
}

/** The last time that ISO 8601 can say, as JavaScript has it. */
const ISO_TIME_MAX_MS = 8_640_000_000_000_000;

/** A time as ISO 8601 in UTC, for people. @param ms Unix time */
export function isoTime(ms: number): string {
  if (ms > ISO_TIME_MAX_MS) return `${ms} ms`;
  return new Date(ms).toISOString().replace('.000Z', 'Z');
}

export interface Anchor {
  monotonicMs: number;
  wallMs: number;
  /** Milliseconds of wall time for one of monotonic time. */
  rate: number;
}

export function wallAt(anchor: Anchor, monotonicMs: number): number {
  return anchor.wallMs + (monotonicMs - anchor.monotonicMs) * anchor.rate;
}

/** The anchor to publish next, pure: time under it never runs back and meets the system's. */
export function nextAnchor(anchor: Anchor, monotonicMs: number, systemMs: number): Anchor {
  const wallMs = wallAt(anchor, monotonicMs);
  const ahead = wallMs - systemMs;
  if (ahead < -NOISE_TOLERANCE_MS) return { monotonicMs, wallMs: systemMs, rate: 1 };
  if (ahead <= NOISE_TOLERANCE_MS) return { monotonicMs, wallMs, rate: 1 };
  const share = Math.min(1, ahead / MIN_RATE_AHEAD_MS);
  return { monotonicMs, wallMs, rate: 1 - (1 - MIN_RATE) * share };
}

/**
 * Reads one clock between two readings of another, until they lie close together: a thread that was
 * stopped in between would take the time of its stop for a difference of the clocks.
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

/** One monotonic clock for all threads: `performance.now()` counts from each thread's own start. */
export class MonotonicClock {
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

/** weir's time, for any thread. */
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

  /** A moment, for durations and for `wallMs`: milliseconds with a fraction, since no date. */
  monotonicMs(): number {
    return this.#monotonic.nowMs();
  }

  /** Unix time in whole milliseconds at a moment just now. */
  wallMs(monotonicMs: number): number {
    for (;;) {
      const sequence = Atomics.load(this.#words, CONTROL.clockSequence);
      const anchor = (sequence & 1) === 0 ? this.#evenAnchor : this.#oddAnchor;
      const since = monotonicMs - anchor[ANCHOR.monotonicMs];
      const wallMs = anchor[ANCHOR.wallMs] + since * anchor[ANCHOR.rate];
      if (Atomics.load(this.#words, CONTROL.clockSequence) === sequence) return Math.floor(wallMs);
    }
  }
}

/** Keeps the anchor; the main thread has the only one and calls `tick` every CLOCK_TICK_MS. */
export class ClockPublisher {
  readonly #monotonic = new MonotonicClock();
  readonly #control: Control;
  #anchor: Anchor;
  #sequence = 0;

  /** @param lastRunMs the time in the last run; a system clock behind it is ignored */
  constructor(control: Control, lastRunMs = 0) {
    this.#control = control;
    const { value, atMs } = this.#readSystemClock();
    this.#anchor = { monotonicMs: atMs, wallMs: Math.max(value, lastRunMs), rate: 1 };
    this.#publish();
  }

  tick(): void {
    const { value, atMs } = this.#readSystemClock();
    const next = nextAnchor(this.#anchor, atMs, value);
    const levelStill = next.rate === 1 && this.#anchor.rate === 1;
    const stepped = next.wallMs !== wallAt(this.#anchor, next.monotonicMs);
    if (levelStill && !stepped) return;
    this.#anchor = next;
    this.#publish();
  }

  /** Weir's time, in ms with a fraction. */
  nowMs(): number {
    return wallAt(this.#anchor, this.#monotonic.nowMs());
  }

  /** How far weir's time is ahead of the system's, ms. */
  offsetMs(): number {
    const { value, atMs } = this.#readSystemClock();
    return wallAt(this.#anchor, atMs) - value;
  }

  /** The system's clock, in the middle of the millisecond that it shows. */
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
