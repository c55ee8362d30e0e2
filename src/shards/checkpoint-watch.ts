/**
 * Says in the log when counters cannot be written to their files, which a restart would forget
 * then, and when they can again; at level debug, once an interval, what was written. Reads what the
 * workers show; on the main thread.
 */

import { getSystemErrorName } from 'node:util';
import type { Control } from '../control.ts';
import { totalOf, WORK, type WorkerLane } from '../lanes.ts';
import type { Log } from '../observe/log.ts';

const LOOK_MS = 1_000;

export class CheckpointWatch {
  readonly #workers: WorkerLane[];
  readonly #directory: string;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  readonly #everyMs: number;
  #isFailing = false;
  /** Files written, and the time of the oldest counters in them, when that was last logged. */
  #written = 0;
  #writtenMs = 0;

  /** @param everyMs the interval of checkpoints */
  constructor(control: Control, directory: string, everyMs: number, log: Log) {
    this.#workers = control.workerLanes();
    this.#directory = directory;
    this.#everyMs = everyMs;
    this.#log = log;
    this.#timer = setInterval(() => this.look(), LOOK_MS);
  }

  close(): void {
    clearInterval(this.#timer);
    this.look();
  }

  look(): void {
    const errors = this.#workers.map((lane) => lane.counted(WORK.checkpointError));
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
    const atMs = Math.min(...this.#workers.map((lane) => lane.counted(WORK.checkpointedMs)));
    const written = totalOf(this.#workers, WORK.checkpoints);
    if (written === this.#written || atMs < this.#writtenMs + this.#everyMs) return;
    this.#log.debug({ files: written - this.#written }, 'counters were written to files');
    this.#written = written;
    this.#writtenMs = atMs;
  }
}
