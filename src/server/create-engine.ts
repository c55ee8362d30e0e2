/** Creates the engine of an acceptor. `runtime/engine-host.ts` creates its host. */

import { SHARDS } from '../core/constants.ts';
import type { Engine } from '../engine/engine.ts';
import { Counters } from '../engine/memory/counters.ts';
import { MemoryEngine } from '../engine/memory/memory-engine.ts';
import type { RedisEngineData } from '../engine/redis/allocate.ts';
import { EngineState } from '../engine/redis/engine-state.ts';
import { LeaseTable } from '../engine/redis/lease-table.ts';
import { RedisEngine } from '../engine/redis/redis-engine.ts';
import { DecisionsWithoutRedis } from '../engine/redis/without-redis.ts';
import type { MemoryEngineData } from '../engine/worker/allocate.ts';
import { WorkQueues } from '../engine/worker/work-queues.ts';
import { WorkerEngine } from '../engine/worker/worker-engine.ts';
import type { Clock } from '../shared-memory/clock.ts';
import type { Control } from '../shared-memory/control.ts';

/** What the engines of all threads share. */
export type EngineData = MemoryEngineData | RedisEngineData;

/** @param acceptor the index of this thread */
export function createEngine(
  data: EngineData,
  acceptor: number,
  control: Control,
  clock: Clock,
): Engine {
  const stats = control.acceptorStats(acceptor);
  const lockOwner = acceptor + 1;
  const onWait = () => stats.heartbeat();
  const queues = new WorkQueues(data.channels, acceptor, control, () => clock.monotonicMs());
  if (data.engine === 'redis') {
    const { settings, fullTablePolicy } = data;
    const state = new EngineState(data.state);
    if (data.tables.length !== SHARDS) {
      throw new Error(`${data.tables.length} lease tables for ${SHARDS} shards`);
    }
    const tables = data.tables.map((buffer, shard) => {
      return new LeaseTable(buffer, shard, state, lockOwner, onWait);
    });
    const withoutRedis = new DecisionsWithoutRedis({ ...settings, fullTablePolicy }, state, stats);
    const parts = { tables, state, queues, withoutRedis, clock, stats };
    return new RedisEngine(parts, settings.leases);
  }
  const { decide, fullTablePolicy, tables } = data;
  const counters = new Counters(tables, lockOwner, fullTablePolicy, onWait);
  return decide === 'worker'
    ? new WorkerEngine(counters, queues, clock, stats)
    : new MemoryEngine(counters, queues, clock, stats);
}
