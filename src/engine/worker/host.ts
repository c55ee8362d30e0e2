/**
 * The engine of the process, on the main thread: keeps the shard workers running, and reads how
 * busy they are. `supervisor.ts` says what happens when a worker dies.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Log } from '../../core/log.ts';
import { Clock } from '../../shared-memory/clock.ts';
import { Control } from '../../shared-memory/control.ts';
import type { EngineHost, EngineStats } from '../engine.ts';
import { lockAt } from '../memory/layout.ts';
import { breakLock } from '../memory/lock.ts';
import { NamespaceRemoval } from '../memory/removal.ts';
import { workerOf } from '../memory/shard.ts';
import { attachTable } from '../memory/table-memory.ts';
import type { MemoryEngineData } from './allocate.ts';
import type { CheckpointPlan } from './checkpoint-scheduler.ts';
import { QueueDepths } from './queue-depths.ts';
import { ShardWorkerSupervisor } from './supervisor.ts';
import type { ShardWorkerData } from './worker.ts';

const REMOVAL_STEP_INTERVAL_MS = 1;

export class WorkerEngineHost implements EngineHost {
  readonly #data: MemoryEngineData;
  readonly #control: SharedArrayBuffer;
  readonly #queueDepths: QueueDepths;
  #supervisor: ShardWorkerSupervisor | undefined;
  #removalTimer: NodeJS.Timeout | undefined;

  constructor(data: MemoryEngineData, control: SharedArrayBuffer) {
    this.#data = data;
    this.#control = control;
    this.#queueDepths = new QueueDepths(data.channels);
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
    const control = new Control(this.#control);
    const workerData: ShardWorkerData = {
      control: this.#control,
      tables,
      channels,
      fullTablePolicy,
      checkpointPlan,
    };
    this.#supervisor = new ShardWorkerSupervisor(
      {
        file: new URL('./worker.js', import.meta.url),
        workerData,
        channels,
        breakLocks: (worker, incarnation) => breakLocks(tables, control, worker, incarnation),
      },
      control,
      (worker) => (decide === 'worker' ? connectWorker(worker) : []),
      log,
    );
  }

  stats(): EngineStats {
    const queueDepths = this.#queueDepths.byWorker();
    return {
      queueDepths,
      workers: {
        configured: queueDepths.length,
        running: this.#supervisor?.runningCount ?? 0,
        replaced: this.#supervisor?.replacementCount ?? 0,
      },
    };
  }

  removeNamespaces(tags: ReadonlySet<number>): Promise<void> {
    const removal = new NamespaceRemoval(this.#data.tables.map(attachTable), tags);
    const clock = new Clock(new Control(this.#control));
    return new Promise((resolve) => {
      // Each step is in a turn of its own, between the other work of this thread.
      this.#removalTimer = setInterval(() => {
        if (!removal.step(clock.nowMs())) return;
        clearInterval(this.#removalTimer);
        resolve();
      }, REMOVAL_STEP_INTERVAL_MS);
    });
  }

  async drain(): Promise<void> {
    await this.#supervisor?.drain();
  }

  async stop(): Promise<void> {
    clearInterval(this.#removalTimer);
    await this.#supervisor?.stop();
  }
}

/** Frees the locks of all groups that a run of a worker holds. */
function breakLocks(
  tables: readonly SharedArrayBuffer[],
  { workerCount }: Control,
  worker: number,
  incarnation: number,
): void {
  for (const [shard, buffer] of tables.entries()) {
    if (workerOf(shard, workerCount) !== worker) continue;
    const { words, groups } = attachTable(buffer, shard);
    for (let group = 0; group < groups; group++) breakLock(words, lockAt(group), incarnation);
  }
}
