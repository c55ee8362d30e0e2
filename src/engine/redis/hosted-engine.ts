/**
 * The redis engine on the main thread: what its shard workers run, the locks of a worker that has
 * died, and what is known of Redis. There are no checkpoints: a drained worker has reported its
 * usage and returned its leases. Redis removes each counter when its windows have ended.
 */

import { getSystemErrorName } from 'node:util';
import type { Log } from '../../core/log.ts';
import { Control } from '../../shared-memory/control.ts';
import { totalOf, WORKER_STAT } from '../../shared-memory/stats.ts';
import type { ClusterStats, HostedEngine } from '../engine.ts';
import { workerOf } from '../table/shard.ts';
import type { RedisEngineData, RedisWorkerData } from './allocate.ts';
import { clusterStatsOf } from './cluster-stats.ts';
import { EngineState } from './engine-state.ts';
import { LeaseTable } from './lease-table.ts';

export class HostedRedisEngine implements HostedEngine {
  readonly file = new URL('./redis-worker.js', import.meta.url);
  readonly workerData: RedisWorkerData;
  readonly channels: SharedArrayBuffer[][];
  readonly notifiesAcceptors = true;
  readonly #data: RedisEngineData;
  readonly #control: Control;
  readonly #state: EngineState;

  constructor(engine: RedisEngineData, control: SharedArrayBuffer) {
    this.workerData = { control, engine };
    this.channels = engine.channels;
    this.#data = engine;
    this.#control = new Control(control);
    this.#state = new EngineState(engine.state);
  }

  breakLocks(worker: number, incarnation: number): void {
    for (const [shard, buffer] of this.#data.tables.entries()) {
      if (workerOf(shard, this.#control.workerCount) !== worker) continue;
      new LeaseTable(buffer, shard, this.#state, incarnation, () => {}).breakLocks(incarnation);
    }
  }

  clusterStats(): ClusterStats {
    return clusterStatsOf(this.#state, this.#data.settings.recovery === 'exact');
  }

  afterDrain(_isComplete: boolean, log: Log): void {
    const workers = this.#control.allWorkerStats();
    const counters = totalOf(workers, WORKER_STAT.unreportedCounters);
    if (counters > 0) {
      const text = 'Redis did not get the usage or the leases of some counters in time';
      log.warn({ counters }, text);
    }
    const errno = Math.max(...workers.map((stats) => stats.get(WORKER_STAT.handOverErrno)));
    if (errno === 0) return;
    const error = getSystemErrorName(-errno);
    log.warn({ error }, 'usage could not be written for the next start');
  }
}
