/**
 * Logs when checkpoints cannot be written, so that a restart would lose counters, and when they are
 * written again, and tells the admin port. At level debug it logs the files written, once per
 * checkpoint interval. It polls the statistics of the shard workers on the main thread.
 */

import { getSystemErrorName } from 'node:util';
import { FailureLog, type FileFault } from '../core/failure-log.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../shared-memory/clock.ts';
import type { Control } from '../shared-memory/control.ts';
import {
  checkpointedUntilMs,
  totalOf,
  WORKER_STAT,
  type WorkerStats,
} from '../shared-memory/stats.ts';

const POLL_INTERVAL_MS = 1_000;

export class CheckpointWatch {
  readonly #workers: WorkerStats[];
  readonly #directory: string;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  readonly #intervalMs: number;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #failureLog: FailureLog;
  /** Failures that were logged or will be. */
  #failures = 0;
  /** At the last debug record: files written so far, and the time that all shards had reached. */
  #loggedFiles = 0;
  #loggedUntilMs = 0;

  /** @param intervalMs the checkpoint interval */
  constructor(
    control: Control,
    clock: Pick<Clock, 'nowMs'>,
    directory: string,
    intervalMs: number,
    log: Log,
  ) {
    this.#workers = control.allWorkerStats();
    this.#directory = directory;
    this.#intervalMs = intervalMs;
    this.#clock = clock;
    this.#log = log;
    this.#failureLog = new FailureLog(log, 'error', 'counters are written again');
    this.#timer = setInterval(() => this.#poll(), POLL_INTERVAL_MS);
  }

  /** Stops, after a last poll. */
  close(): void {
    clearInterval(this.#timer);
    this.#poll();
  }

  /** Undefined while checkpoints are written. */
  get fault(): FileFault | undefined {
    const error = this.#error();
    if (error === undefined) return undefined;
    const untilMs = checkpointedUntilMs(this.#workers);
    const ageS = Math.round((this.#clock.nowMs() - untilMs) / 1_000);
    const lost = untilMs === 0 ? 'all counters' : `the decisions of the last ${ageS} s`;
    const last = untilMs === 0 ? 'there is no checkpoint' : `the last checkpoint is ${ageS} s old`;
    return { path: this.#directory, error, effect: `${last}: a restart would lose ${lost}` };
  }

  /** The error of a shard worker whose last round has failed. */
  #error(): string | undefined {
    const errors = this.#workers.map((stats) => stats.get(WORKER_STAT.checkpointErrno));
    const errno = errors.find((value) => value !== 0);
    return errno === undefined ? undefined : getSystemErrorName(errno);
  }

  #poll(): void {
    const failures = totalOf(this.#workers, WORKER_STAT.checkpointFailures);
    const error = this.#error();
    if (error === undefined) {
      this.#failureLog.succeeded();
    } else if (failures > this.#failures) {
      const fields = { error, directory: this.#directory };
      const message = 'counters cannot be written; a restart would lose them';
      this.#failureLog.failed(fields, message, failures - this.#failures);
    }
    this.#failures = failures;
    this.#logFiles();
  }

  #logFiles(): void {
    const untilMs = checkpointedUntilMs(this.#workers);
    const files = totalOf(this.#workers, WORKER_STAT.checkpoints);
    const isDue = untilMs >= this.#loggedUntilMs + this.#intervalMs;
    if (files === this.#loggedFiles || !isDue) return;
    this.#log.debug({ files: files - this.#loggedFiles }, 'counters were written to files');
    this.#loggedFiles = files;
    this.#loggedUntilMs = untilMs;
  }
}
