/**
 * Says in the log when counters cannot be written to their files, which a restart would forget
 * then, and when they can again. Reads what the workers show; on the main thread.
 */

import { getSystemErrorName } from 'node:util';
import type { Control } from '../control.ts';
import { WORK, type WorkerLane } from '../lanes.ts';
import type { Log } from '../observe/log.ts';

const LOOK_MS = 1_000;

export class CheckpointWatch {
  readonly #workers: WorkerLane[];
  readonly #directory: string;
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;
  #isFailing = false;

  constructor(control: Control, directory: string, log: Log) {
    this.#workers = control.workerLanes();
    this.#directory = directory;
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
  }
}
