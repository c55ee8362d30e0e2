/**
 * Logs a failure that may last and repeat: its begin at once, then at most once a minute with the
 * number of failures since the last line, and its end. A failure that comes and goes is bounded in
 * the same way.
 */

import type { Log } from './log.ts';

const INTERVAL_MS = 60_000;

interface Failure {
  /** The code or the message of the cause. */
  error: string;
}

/** A file or directory that cannot be written at the moment. */
export interface FileFault {
  path: string;
  /** The code or the message of the cause. */
  error: string;
  /** What that causes. */
  effect: string;
}

export class FailureLog {
  readonly #log: Pick<Log, 'info' | 'warn' | 'error'>;
  readonly #level: 'warn' | 'error';
  readonly #endMessage: string;
  #last: { fields: Failure; message: string } | undefined;
  #isFailing = false;
  /** Failures that no line has counted yet. */
  #count = 0;
  /** Whether the log has the begin of a failure and not its end. */
  #isEndDue = false;
  /** Runs for the interval after each line. */
  #timer: NodeJS.Timeout | undefined;

  constructor(
    log: Pick<Log, 'info' | 'warn' | 'error'>,
    level: 'warn' | 'error',
    endMessage: string,
  ) {
    this.#log = log;
    this.#level = level;
    this.#endMessage = endMessage;
  }

  /** @returns undefined unless the failure lasts */
  fault(path: string, effect: string): FileFault | undefined {
    if (!this.#isFailing) return undefined;
    return { path, error: this.#last!.fields.error, effect };
  }

  failed(fields: Failure & Record<string, unknown>, message: string, count = 1): void {
    this.#last = { fields, message };
    this.#isFailing = true;
    this.#count += count;
    if (this.#timer === undefined) this.#write();
  }

  succeeded(): void {
    this.#isFailing = false;
    if (this.#isEndDue) this.#log.info(this.#endMessage);
    this.#isEndDue = false;
  }

  #write(): void {
    const { fields, message } = this.#last!;
    this.#log[this.#level]({ ...fields, failures: this.#count }, message);
    this.#count = 0;
    this.#isEndDue = true;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#count > 0) this.#write();
      if (!this.#isFailing) this.succeeded();
    }, INTERVAL_MS).unref();
  }
}
