/**
 * Allocates the memory that the redis engines of all threads share: lease tables, queues and what
 * is known of Redis. On the main thread, before any other thread starts.
 */

import { randomBytes } from 'node:crypto';
import { CLUSTER_BUCKETS, SHARDS } from '../../core/constants.ts';
import type { FullTablePolicy } from '../../core/decision.ts';
import type { RedisSettings } from '../../redis/settings.ts';
import { parseRedisUrl } from '../../redis/url.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { Control } from '../../shared-memory/control.ts';
import { allocateChannels } from '../worker/allocate.ts';
import { groupsFor } from '../worker/size.ts';
import { allocateEngineState, EngineState } from './engine-state.ts';
import { allocateLeaseTable } from './lease-memory.ts';

/** What the redis engines of all threads share. */
export interface RedisEngineData {
  engine: 'redis';
  fullTablePolicy: FullTablePolicy;
  settings: RedisSettings;
  /** 16 hexadecimal digits that begin the names of this process's members. */
  processId: string;
  /** Lease tables by shard. */
  tables: SharedArrayBuffer[];
  /** See `engine-state.ts`. */
  state: SharedArrayBuffer;
  /** By acceptor and shard worker. */
  channels: SharedArrayBuffer[][];
}

/** The data of every thread of the pool of shard workers. */
export interface RedisWorkerData {
  control: SharedArrayBuffer;
  engine: RedisEngineData;
}

/** @param counters how many live counters the tables hold without eviction */
export function allocateRedisEngine(
  control: Control,
  counters: number,
  { settings, fullTablePolicy }: Pick<RedisEngineData, 'settings' | 'fullTablePolicy'>,
  clock: Clock,
): RedisEngineData {
  const groups = groupsFor(counters);
  const isCluster = parseRedisUrl(settings.url).kind === 'cluster';
  const state = allocateEngineState(control.workerCount, isCluster ? CLUSTER_BUCKETS : 1);
  new EngineState(state).setLocalClock(clock.nowMs(), clock.monotonicMs());
  return {
    engine: 'redis',
    fullTablePolicy,
    settings,
    processId: randomBytes(8).toString('hex'),
    tables: Array.from({ length: SHARDS }, (_, shard) => allocateLeaseTable(shard, groups)),
    state,
    channels: allocateChannels(control),
  };
}
