/** The buffer of one shard's leases: a table, and the details of its slots. */

import { allocateTable, attachTable, type TableMemory } from '../table/table-memory.ts';
import { detailsOffset, type LeaseViews, leaseTableBytes } from './lease-layout.ts';

export interface LeaseMemory extends TableMemory, LeaseViews {}

/** Allocates an empty table. */
export function allocateLeaseTable(shard: number, groups: number): SharedArrayBuffer {
  return allocateTable(shard, groups, leaseTableBytes);
}

/** @throws MemoryError when the buffer is not a lease table of this shard */
export function attachLeaseTable(buffer: SharedArrayBuffer, shard: number): LeaseMemory {
  const table = attachTable(buffer, shard, leaseTableBytes);
  const offset = detailsOffset(table.groups);
  return {
    ...table,
    detailWords: new Int32Array(buffer, offset),
    details: new Float64Array(buffer, offset),
  };
}
