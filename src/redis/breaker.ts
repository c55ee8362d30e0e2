/**
 * Stops calls of a Redis that does not answer, so that checks are decided at once in another way.
 * It opens when the connection is lost, or after several failed calls in a row. While it is open it
 * allows one call from time to time; the first success closes it.
 */

import { REDIS_FAILURES_MAX } from '../core/constants.ts';
import { Backoff, randomFraction } from './backoff.ts';

export class Breaker {
  readonly #backoff: Backoff;
  #failures = 0;
  #isOpen = false;
  /** When the next probe is due, on the caller's monotonic clock. */
  #probeAtMs = 0;
  #isProbing = false;

  constructor(random = randomFraction) {
    this.#backoff = new Backoff(random);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** How long until a probe is allowed; 0 for now. Undefined if it is closed, or probes. */
  msUntilProbe(nowMs: number): number | undefined {
    if (!this.#isOpen || this.#isProbing) return undefined;
    return Math.max(0, this.#probeAtMs - nowMs);
  }

  /**
   * Whether a call may be sent. Each call for which this is true must be followed by `succeeded`
   * or `failed`; while it is open, only one at a time is allowed: the probe.
   */
  allows(nowMs: number): boolean {
    if (!this.#isOpen) return true;
    if (this.#isProbing || nowMs < this.#probeAtMs) return false;
    this.#isProbing = true;
    return true;
  }

  /** A call was answered, also one that was sent before it opened. */
  succeeded(): void {
    this.#failures = 0;
    this.#isOpen = false;
    this.#isProbing = false;
    this.#backoff.reset();
  }

  /** A call had no answer, or one that decides nothing. */
  failed(nowMs: number): void {
    this.#failures++;
    // Calls that were sent before it opened may fail late: they do not delay the probe.
    if (this.#isOpen && !this.#isProbing) return;
    if (this.#isOpen || this.#failures >= REDIS_FAILURES_MAX) this.#open(nowMs);
  }

  /** The connection was lost. */
  lost(nowMs: number): void {
    if (!this.#isOpen || this.#isProbing) this.#open(nowMs);
  }

  #open(nowMs: number): void {
    this.#isOpen = true;
    this.#isProbing = false;
    this.#probeAtMs = nowMs + this.#backoff.nextMs();
  }
}
