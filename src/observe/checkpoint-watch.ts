/**
 * Logs when checkpoints cannot be written, so that a restart would lose counters, and when they are
 * written again. At level debug it logs the files written, once per checkpoint interval. It polls
 * the statistics of the shard workers on the main thread.
 */

import { getSystemErrorName } from 'node:util';
import type { Log } from '../core/log.ts';
import type { Control } from '../shared-memory/control.ts';
import { totalOf, WORKER_STAT, type WorkerStats } from '../shared-memory/stats.ts';

const POLL_INTERVAL_MS = 1_000;

export class CheckpointWatch {
  readonly #workers: WorkerStats[];
  readonly #directory: string;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  readonly #intervalMs: number;
  #isFailing = false;
  /** At the last debug record: files written so far, and the time that all shards had reached. */
  #loggedFiles = 0;
  #loggedUntilMs = 0;

  /** @param intervalMs the checkpoint interval */
  constructor(control: Control, directory: string, intervalMs: number, log: Log) {
    this.#workers = control.allWorkerStats();
    this.#directory = directory;
    this.#intervalMs = intervalMs;
    this.#log = log;
    this.#timer = setInterval(() => this.#poll(), POLL_INTERVAL_MS);
  }

  /** Stops, after a last poll. */
  close(): void {
    clearInterval(this.#timer);
    this.#poll();
  }

  #poll(): void {
    const errors = this.#workers.map((stats) => stats.get(WORKER_STAT.checkpointErrno));
    const errno = errors.find((value) => value !== 0);
    const isFailing = errno !== undefined;
    if (isFailing && !this.#isFailing) {
      const fields = { directory: this.#directory, error: getSystemErrorName(errno) };
      this.#log.error(fields, 'counters cannot be written; a restart would lose them');
    } else if (this.#isFailing && !isFailing) {
      this.#log.info('counters are written again');
    }
    this.#isFailing = isFailing;
    this.#logFiles();
  }

  #logFiles(): void {
    const untilMs = Math.min(
      ...this.#workers.map((stats) => stats.get(WORKER_STAT.checkpointedUntilMs)),
    );
    const files = totalOf(this.#workers, WORKER_STAT.checkpoints);
    const isDue = untilMs >= this.#loggedUntilMs + this.#intervalMs;
    if (files === this.#loggedFiles || !isDue) return;
    this.#log.debug({ files: files - this.#loggedFiles }, 'counters were written to files');
    this.#loggedFiles = files;
    this.#loggedUntilMs = untilMs;
  }
}
