/**
 * Allocates the memory that the engines of all threads share: counter tables and queues. On the
 * main thread, before any other thread starts.
 */

import { SHARDS } from '../../core/constants.ts';
import type { FullTablePolicy } from '../../core/decision.ts';
import type { Control } from '../../shared-memory/control.ts';
import { allocateChannels } from '../queue/queue.ts';
import { groupsFor } from '../table/size.ts';
import { allocateTable } from '../table/table-memory.ts';

/** What the memory engines of all threads share. */
export interface MemoryEngineData {
  engine: 'memory';
  decide: 'in-place' | 'worker';
  fullTablePolicy: FullTablePolicy;
  /** By shard. */
  tables: SharedArrayBuffer[];
  /** By acceptor and shard worker. */
  channels: SharedArrayBuffer[][];
}

/** @param counters how many live counters the tables hold without eviction */
export function allocateMemoryEngine(
  control: Control,
  counters: number,
  { decide, fullTablePolicy }: Pick<MemoryEngineData, 'decide' | 'fullTablePolicy'>,
): MemoryEngineData {
  const groups = groupsFor(counters);
  const tables = Array.from({ length: SHARDS }, (_, shard) => allocateTable(shard, groups));
  return { engine: 'memory', decide, fullTablePolicy, tables, channels: allocateChannels(control) };
}
