/**
 * The redis engine of the process, on the main thread: keeps the shard workers running, and reads
 * how they and Redis are. `worker/supervisor.ts` says what happens when a worker dies. Counters are
 * in Redis: there are no checkpoints, and a drained worker has reported its usage and returned its
 * leases.
 */

import { getSystemErrorName } from 'node:util';
import type { MessagePort } from 'node:worker_threads';
import type { Log } from '../../core/log.ts';
import { Control } from '../../shared-memory/control.ts';
import { totalOf, WORKER_STAT } from '../../shared-memory/stats.ts';
import type { EngineHost, EngineStats } from '../engine.ts';
import { workerOf } from '../memory/shard.ts';
import { QueueDepths } from '../worker/queue-depths.ts';
import { ShardWorkerSupervisor } from '../worker/supervisor.ts';
import type { RedisEngineData, RedisWorkerData } from './allocate.ts';
import { clusterStatsOf } from './cluster-stats.ts';
import { EngineState } from './engine-state.ts';
import { LeaseTable } from './lease-table.ts';

export class RedisEngineHost implements EngineHost {
  readonly #data: RedisEngineData;
  readonly #controlBuffer: SharedArrayBuffer;
  readonly #control: Control;
  readonly #state: EngineState;
  readonly #queueDepths: QueueDepths;
  #supervisor: ShardWorkerSupervisor | undefined;
  #log: Log | undefined;

  constructor(data: RedisEngineData, controlBuffer: SharedArrayBuffer) {
    this.#data = data;
    this.#controlBuffer = controlBuffer;
    this.#control = new Control(controlBuffer);
    this.#state = new EngineState(data.state);
    this.#queueDepths = new QueueDepths(data.channels);
  }

  /**
   * Starts the shard workers.
   * @param connectWorker passes one end of a channel from a worker to each acceptor, and returns
   *   the other ends
   */
  start(connectWorker: (worker: number) => MessagePort[], log: Log): void {
    this.#log = log;
    const workerData: RedisWorkerData = { control: this.#controlBuffer, engine: this.#data };
    this.#supervisor = new ShardWorkerSupervisor(
      {
        file: new URL('./redis-worker.js', import.meta.url),
        workerData,
        channels: this.#data.channels,
        breakLocks: (worker, incarnation) => this.#breakLocks(worker, incarnation),
      },
      this.#control,
      connectWorker,
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
      cluster: clusterStatsOf(this.#state, this.#data.settings.recovery === 'exact'),
    };
  }

  /** Their counters are in Redis, which removes each when its windows have ended. */
  async removeNamespaces(): Promise<void> {}

  async drain(): Promise<void> {
    await this.#supervisor?.drain();
    const workers = this.#control.allWorkerStats();
    const counters = totalOf(workers, WORKER_STAT.unreportedCounters);
    if (counters > 0) {
      const text = 'Redis did not get the usage or the leases of some counters in time';
      this.#log?.warn({ counters }, text);
    }
    const errno = Math.max(...workers.map((stats) => stats.get(WORKER_STAT.handOverErrno)));
    if (errno === 0) return;
    const error = getSystemErrorName(-errno);
    this.#log?.warn({ error }, 'usage could not be written for the next start');
  }

  async stop(): Promise<void> {
    await this.#supervisor?.stop();
  }

  #breakLocks(worker: number, incarnation: number): void {
    for (const [shard, buffer] of this.#data.tables.entries()) {
      if (workerOf(shard, this.#control.workerCount) !== worker) continue;
      new LeaseTable(buffer, shard, this.#state, incarnation, () => {}).breakLocks(incarnation);
    }
  }
}
