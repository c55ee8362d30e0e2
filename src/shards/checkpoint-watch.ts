/**
 * Says in the log when counters cannot be written to their files, which a restart would forget
 * then, and when they can again. Reads what the workers count; on the main thread.
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
  #failures = 0;
  #checkpoints = 0;
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
    const failures = totalOf(this.#workers, WORK.checkpointFailures);
    const checkpoints = totalOf(this.#workers, WORK.checkpoints);
    const isFailing = failures > this.#failures;
    // Nothing was tried since: where nothing is decided nothing has to be written.
    if (!isFailing && checkpoints === this.#checkpoints) return;
    this.#failures = failures;
    this.#checkpoints = checkpoints;
    if (isFailing && !this.#isFailing) {
      const errors = this.#workers.map((lane) => lane.counted(WORK.checkpointError));
      const error = getSystemErrorName(errors.find((number) => number !== 0)!);
      const facts = { directory: this.#directory, error };
      this.#log.error(facts, 'counters cannot be written; a restart would forget them');
    } else if (this.#isFailing && !isFailing) {
      this.#log.info('counters are written again');
    }
    this.#isFailing = isFailing;
  }
}
