/**
 * Says in the log when counters cannot be written to their files, which a restart would forget
 * then, and when they can again; at level debug, once an interval, what was written. Reads what the
 * workers show; on the main thread.
 */

import { getSystemErrorName } from 'node:util';
import type { Log } from '../../core/log.ts';
import type { Control } from '../../shared-memory/control.ts';
import { totalOf, WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';

const POLL_INTERVAL_MS = 1_000;

export class CheckpointWatch {
  readonly #workers: WorkerStats[];
  readonly #directory: string;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  readonly #intervalMs: number;
  #isFailing = false;
  /** Files written, and the time of the oldest counters in them, when that was last logged. */
  #loggedFileCount = 0;
  #loggedUntilMs = 0;

  /** @param intervalMs the interval of checkpoints */
  constructor(control: Control, directory: string, intervalMs: number, log: Log) {
    this.#workers = control.allWorkerStats();
    this.#directory = directory;
    this.#intervalMs = intervalMs;
    this.#log = log;
    this.#timer = setInterval(() => this.poll(), POLL_INTERVAL_MS);
  }

  close(): void {
    clearInterval(this.#timer);
    this.poll();
  }

  poll(): void {
    const errors = this.#workers.map((lane) => lane.get(WORKER_STAT.checkpointErrno));
    const error = errors.find((number) => number !== 0);
    const isFailing = error !== undefined;
    if (isFailing && !this.#isFailing) {
      const facts = { directory: this.#directory, error: getSystemErrorName(error) };
      this.#log.error(facts, 'counters cannot be written; a restart would forget them');
    } else if (this.#isFailing && !isFailing) {
      this.#log.info('counters are written again');
    }
    this.#isFailing = isFailing;
    this.#logWritten();
  }

  #logWritten(): void {
    const atMs = Math.min(
      ...this.#workers.map((lane) => lane.get(WORKER_STAT.checkpointedUntilMs)),
    );
    const written = totalOf(this.#workers, WORKER_STAT.checkpoints);
    if (written === this.#loggedFileCount || atMs < this.#loggedUntilMs + this.#intervalMs) return;
    this.#log.debug({ files: written - this.#loggedFileCount }, 'counters were written to files');
    this.#loggedFileCount = written;
    this.#loggedUntilMs = atMs;
  }
}
