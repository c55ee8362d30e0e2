/** Creates the engine of an acceptor. `runtime/engine-host.ts` creates its host. */

import type { Engine } from '../engine/engine.ts';
import { HoldTable } from '../engine/holds/hold-table.ts';
import { LeaseHorizon } from '../engine/holds/lease-horizon.ts';
import type { MemoryEngineData } from '../engine/memory/allocate.ts';
import { Counters } from '../engine/memory/counters.ts';
import { MemoryEngine } from '../engine/memory/memory-engine.ts';
import { MemoryHolds } from '../engine/memory/memory-holds.ts';
import { WorkerEngine } from '../engine/memory/worker-engine.ts';
import { WorkQueues } from '../engine/queue/work-queues.ts';
import type { RedisEngineData } from '../engine/redis/allocate.ts';
import { createRedisEngine } from '../engine/redis/create-redis-engine.ts';
import { RequestTable } from '../engine/requests/request-table.ts';
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
  if (data.engine === 'redis') return createRedisEngine(data, acceptor, control, clock);
  const { decide, fullTablePolicy, holdPolicies, tables, channels } = data;
  const stats = control.acceptorStats(acceptor);
  const lockOwner = acceptor + 1;
  const heartbeat = () => stats.heartbeat();
  const counters = new Counters(tables, lockOwner, fullTablePolicy, heartbeat);
  const holdTables = data.holds.map((buffer, shard) => {
    return new HoldTable(buffer, shard, lockOwner, heartbeat);
  });
  const horizon = data.leaseHorizon && new LeaseHorizon(data.leaseHorizon, lockOwner, stats);
  const holds = new MemoryHolds(counters, holdTables, holdPolicies, clock, stats, horizon);
  const requests = data.requests.map((buffer, shard) => {
    return new RequestTable(buffer, shard, lockOwner, heartbeat);
  });
  const queues = new WorkQueues(channels, acceptor, control, () => clock.monotonicMs());
  return decide === 'worker'
    ? new WorkerEngine(counters, holds, requests, queues, clock, stats)
    : new MemoryEngine(counters, holds, requests, queues, clock, stats);
}
