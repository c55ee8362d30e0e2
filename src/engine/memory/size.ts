/** How much shared memory the engine takes, for its host and for the memory plan. */

import { SHARDS, SLOTS_PER_COUNTER } from '../../core/constants.ts';
import { GROUP_SLOTS, groupsPerShard, tableBytes } from '../table/layout.ts';

/** The groups of the table of each shard. */
export function groupsFor(counters: number): number {
  return groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
}

/** The slots of all tables. */
export function slotsFor(counters: number): number {
  return groupsFor(counters) * GROUP_SLOTS * SHARDS;
}

/** The bytes of all tables. */
export function tablesBytes(counters: number): number {
  return SHARDS * tableBytes(groupsFor(counters));
}
