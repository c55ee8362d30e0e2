/** Creates the engine of an acceptor. `runtime/engine-host.ts` creates its host. */

import type { Engine } from '../engine/engine.ts';
import type { MemoryEngineData } from '../engine/memory/allocate.ts';
import { Counters } from '../engine/memory/counters.ts';
import { MemoryEngine } from '../engine/memory/memory-engine.ts';
import { WorkerEngine } from '../engine/memory/worker-engine.ts';
import { WorkQueues } from '../engine/queue/work-queues.ts';
import type { RedisEngineData } from '../engine/redis/allocate.ts';
import { createRedisEngine } from '../engine/redis/create-redis-engine.ts';
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
  const { decide, fullTablePolicy, tables, channels } = data;
  const stats = control.acceptorStats(acceptor);
  const lockOwner = acceptor + 1;
  const counters = new Counters(tables, lockOwner, fullTablePolicy, () => stats.heartbeat());
  const queues = new WorkQueues(channels, acceptor, control, () => clock.monotonicMs());
  return decide === 'worker'
    ? new WorkerEngine(counters, queues, clock, stats)
    : new MemoryEngine(counters, queues, clock, stats);
}
