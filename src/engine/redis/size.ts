/** How much shared memory the tables of the redis engine take, for the memory plan. */

import { SHARDS } from '../../core/constants.ts';
import { groupsFor } from '../memory/size.ts';
import { leaseTableBytes } from './lease-layout.ts';

/** The bytes of all lease tables. */
export function leaseTablesBytes(counters: number): number {
  return SHARDS * leaseTableBytes(groupsFor(counters));
}
