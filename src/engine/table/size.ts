/** How many slots and how much shared memory the tables of all shards have. */

import { SHARDS, SLOTS_PER_COUNTER } from '../../core/constants.ts';
import { GROUP_SLOTS, groupsPerShard } from './layout.ts';
import type { TableBytes } from './table-memory.ts';

/** The groups of the table of each shard. */
export function groupsFor(counters: number): number {
  return groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
}

/** The slots of all tables. */
export function slotsFor(counters: number): number {
  return groupsFor(counters) * GROUP_SLOTS * SHARDS;
}

/** The bytes of all tables. @param bytesOf that of the engine */
export function tablesBytes(counters: number, bytesOf: TableBytes): number {
  return SHARDS * bytesOf(groupsFor(counters));
}
