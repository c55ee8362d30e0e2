/**
 * The engine of the process, on the main thread: keeps the shard workers running, and reads how
 * busy they are. `supervisor.ts` says what happens when a worker dies.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Log } from '../../core/log.ts';
import { Control } from '../../shared-memory/control.ts';
import type { EngineHost, EngineStats } from '../engine.ts';
import type { EngineData } from './allocate.ts';
import type { CheckpointPlan } from './checkpoint-scheduler.ts';
import { CHECK_QUEUE, queueDepth } from './queue.ts';
import { ShardWorkerSupervisor } from './supervisor.ts';

export class WorkerEngineHost implements EngineHost {
  readonly #data: EngineData;
  readonly #control: SharedArrayBuffer;
  readonly #channelWords: Int32Array[][];
  #supervisor: ShardWorkerSupervisor | undefined;

  constructor(data: EngineData, control: SharedArrayBuffer) {
    this.#data = data;
    this.#control = control;
    this.#channelWords = data.channels.map((row) => row.map((buffer) => new Int32Array(buffer)));
  }

  /**
   * Starts the shard workers.
   * @param connectWorker passes one end of a channel from a worker to each acceptor, and returns
   *   the other ends
   */
  start(
    checkpointPlan: CheckpointPlan,
    connectWorker: (worker: number) => MessagePort[],
    log: Log,
  ): void {
    const { decide, fullTablePolicy, tables, channels } = this.#data;
    this.#supervisor = new ShardWorkerSupervisor(
      { control: this.#control, tables, channels, fullTablePolicy, checkpointPlan },
      new Control(this.#control),
      (worker) => (decide === 'worker' ? connectWorker(worker) : []),
      log,
    );
  }

  stats(): EngineStats {
    const [first = []] = this.#channelWords;
    const depthOf = (worker: number) =>
      this.#channelWords.reduce((sum, row) => sum + queueDepth(row[worker], CHECK_QUEUE), 0);
    return {
      queueDepths: first.map((_, worker) => depthOf(worker)),
      workers: {
        configured: first.length,
        running: this.#supervisor?.runningCount ?? 0,
        replaced: this.#supervisor?.replacementCount ?? 0,
      },
    };
  }

  async drain(): Promise<void> {
    await this.#supervisor?.drain();
  }

  async stop(): Promise<void> {
    await this.#supervisor?.stop();
  }
}
