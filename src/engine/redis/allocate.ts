/**
 * Allocates the memory that the redis engines of all threads share: lease tables, queues and what
 * is known of Redis. On the main thread, before any other thread starts.
 */

import { randomBytes } from 'node:crypto';
import { CLUSTER_BUCKETS, SHARDS } from '../../core/constants.ts';
import type { RedisSettings } from '../../redis/settings.ts';
import { parseRedisUrl } from '../../redis/url.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { Control } from '../../shared-memory/control.ts';
import type { HoldPolicies } from '../hold-engine.ts';
import { allocateChannels } from '../queue/queue.ts';
import { groupsFor } from '../table/size.ts';
import { allocateEngineState, EngineState } from './engine-state.ts';
import { type Predecessor, takeHandOver } from './hand-over.ts';
import { allocateLeaseTable } from './lease-memory.ts';
import { LeaseTable } from './lease-table.ts';

/** What the redis engines of all threads share. */
export interface RedisEngineData {
  engine: 'redis';
  /** Its policy for a full table decides checks too. */
  holdPolicies: HoldPolicies;
  /** How many reservations and leases of all machines may be live. */
  holds: number;
  settings: RedisSettings;
  /** 16 hexadecimal digits that begin the names of this process's members. */
  processId: string;
  /** Where the shard workers write what they know at their end; undefined: nowhere. */
  directory?: string;
  /** The process that has handed over what it knew. */
  predecessor: Predecessor | undefined;
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

/** Owns the locks of lease tables before other threads use them. */
const LOCK_OWNER = 1;

/** @param counters how many live counters the tables hold without eviction */
export function allocateRedisEngine(
  control: Control,
  counters: number,
  options: Pick<RedisEngineData, 'settings' | 'holdPolicies' | 'holds' | 'directory'>,
  clock: Clock,
): RedisEngineData {
  const { settings, directory } = options;
  const groups = groupsFor(counters);
  const isCluster = parseRedisUrl(settings.redisUrl).kind === 'cluster';
  const state = allocateEngineState(control.workerCount, isCluster ? CLUSTER_BUCKETS : 1);
  const engineState = new EngineState(state);
  const now = { unixMs: clock.nowMs(), monotonicMs: clock.monotonicMs() };
  engineState.setLocalClock(now.unixMs, now.monotonicMs);
  const buffers = Array.from({ length: SHARDS }, (_, shard) => allocateLeaseTable(shard, groups));
  const tables = buffers.map((buffer, shard) => {
    return new LeaseTable(buffer, shard, engineState, LOCK_OWNER, () => {});
  });
  return {
    engine: 'redis',
    ...options,
    processId: randomBytes(8).toString('hex'),
    predecessor: takeHandOver(directory, tables, now),
    tables: buffers,
    state,
    channels: allocateChannels(control),
  };
}
