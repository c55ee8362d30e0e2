/**
 * Allocates the memory that the engines of all threads share: counter tables, holds, stored answers
 * and queues. On the main thread, before any other thread starts.
 */

import { REQUEST_IDS_MAX, SHARDS } from '../../core/constants.ts';
import type { FullTablePolicy } from '../../core/decision.ts';
import type { Control } from '../../shared-memory/control.ts';
import type { HoldPolicies } from '../hold-engine.ts';
import { allocateHolds } from '../holds/layout.ts';
import type { LeaseHorizonData } from '../holds/lease-horizon.ts';
import { allocateChannels } from '../queue/queue.ts';
import { allocateRequests } from '../requests/layout.ts';
import { groupsFor } from '../table/size.ts';
import { allocateTable } from '../table/table-memory.ts';

/** What the memory engines of all threads share. */
export interface MemoryEngineData {
  engine: 'memory';
  decide: 'in-place' | 'worker';
  fullTablePolicy: FullTablePolicy;
  holdPolicies: HoldPolicies;
  /** Undefined if leases may be forgotten in a crash. */
  leaseHorizon?: LeaseHorizonData | undefined;
  /** By shard. */
  tables: SharedArrayBuffer[];
  holds: SharedArrayBuffer[];
  requests: SharedArrayBuffer[];
  /** By acceptor and shard worker. */
  channels: SharedArrayBuffer[][];
}

/** The sizes and modes of the memory engine. */
export interface MemoryEngineOptions
  extends Pick<MemoryEngineData, 'decide' | 'fullTablePolicy' | 'holdPolicies' | 'leaseHorizon'> {
  /** How many live counters the tables hold without eviction. */
  counters: number;
  /** How many reservations and leases are recorded. */
  holds: number;
}

export function allocateMemoryEngine(
  control: Control,
  { counters, holds: holdCount, ...modes }: MemoryEngineOptions,
): MemoryEngineData {
  const groups = groupsFor(counters);
  const shards = Array.from({ length: SHARDS }, (_, shard) => shard);
  return {
    engine: 'memory',
    ...modes,
    tables: shards.map((shard) => allocateTable(shard, groups)),
    holds: shards.map((shard) => allocateHolds(shard, holdCount, groups)),
    requests: shards.map((shard) => allocateRequests(shard, REQUEST_IDS_MAX / SHARDS)),
    channels: allocateChannels(control),
  };
}
