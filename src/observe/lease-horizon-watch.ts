/**
 * Logs when the lease horizon cannot be written, so that no lease is granted, and when it is
 * written again, and tells the admin port. It polls on the main thread what acceptors have counted.
 */

import { FailureLog, type FileFault } from '../core/failure-log.ts';
import type { Log } from '../core/log.ts';
import type { HorizonFailures } from '../engine/engine.ts';

const POLL_INTERVAL_MS = 1_000;

export class LeaseHorizonWatch {
  readonly #read: () => HorizonFailures;
  readonly #failureLog: FailureLog;
  readonly #timer: NodeJS.Timeout;
  /** Failures that were logged or will be. */
  #failures = 0;

  constructor(read: () => HorizonFailures, log: Log) {
    this.#read = read;
    this.#failureLog = new FailureLog(log, 'error', 'leases are granted again');
    this.#timer = setInterval(() => this.#poll(), POLL_INTERVAL_MS);
  }

  /** Stops, after a last poll. */
  close(): void {
    clearInterval(this.#timer);
    this.#poll();
  }

  /** Undefined if the last write has succeeded. */
  get fault(): FileFault | undefined {
    const { path, error } = this.#read();
    return error === undefined ? undefined : { path, error, effect: 'leases get a 503' };
  }

  #poll(): void {
    const { path, failures, error } = this.#read();
    if (error === undefined) {
      this.#failureLog.succeeded();
    } else if (failures > this.#failures) {
      const message = 'the lease horizon cannot be written; acquire and renew get a 503';
      this.#failureLog.failed({ error, path }, message, failures - this.#failures);
    }
    this.#failures = failures;
  }
}
