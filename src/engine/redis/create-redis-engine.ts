/** Creates the redis engine of an acceptor. */

import { SHARDS } from '../../core/constants.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { Control } from '../../shared-memory/control.ts';
import type { Engine } from '../engine.ts';
import { WorkQueues } from '../queue/work-queues.ts';
import type { RedisEngineData } from './allocate.ts';
import { EngineState } from './engine-state.ts';
import { LeaseTable } from './lease-table.ts';
import { RedisEngine } from './redis-engine.ts';
import { DecisionsWithoutRedis } from './without-redis.ts';

/** @param acceptor the index of this thread */
export function createRedisEngine(
  { settings, holdPolicies, tables: buffers, state: stateBuffer, channels }: RedisEngineData,
  acceptor: number,
  control: Control,
  clock: Clock,
): Engine {
  if (buffers.length !== SHARDS) {
    throw new Error(`${buffers.length} lease tables for ${SHARDS} shards`);
  }
  const stats = control.acceptorStats(acceptor);
  const state = new EngineState(stateBuffer);
  const lockOwner = acceptor + 1;
  const tables = buffers.map((buffer, shard) => {
    return new LeaseTable(buffer, shard, state, lockOwner, () => stats.heartbeat());
  });
  const queues = new WorkQueues(channels, acceptor, control, () => clock.monotonicMs());
  const withoutRedis = new DecisionsWithoutRedis(
    { ...settings, fullTablePolicy: holdPolicies.whenFull },
    state,
    stats,
  );
  const parts = {
    tables,
    state,
    queues,
    withoutRedis,
    clock,
    stats,
    deadlineMs: settings.redisTimeoutMs,
    isExact: settings.recovery === 'exact',
  };
  return new RedisEngine(parts, settings.leases === 'on', holdPolicies);
}
