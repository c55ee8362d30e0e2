/** The buffer of one shard's leases. The main thread allocates it, all threads attach to it. */

import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import {
  detailsOffset,
  LEASE_TABLE_HEADER,
  type LeaseViews,
  leaseTableBytes,
} from './lease-layout.ts';

/** Allocates an empty table. */
export function allocateLeaseTable(shard: number, groups: number): SharedArrayBuffer {
  return allocateMemory(leaseTableBytes(groups), LEASE_TABLE_HEADER, { shard, groups });
}

export interface LeaseMemory extends LeaseViews {
  readonly groups: number;
}

/** @throws MemoryError when the buffer is not a lease table of this shard */
export function attachLeaseTable(buffer: SharedArrayBuffer, shard: number): LeaseMemory {
  const name = `the lease table of shard ${shard}`;
  const words = attachMemory(buffer, name, LEASE_TABLE_HEADER, { shard });
  const groups = words[LEASE_TABLE_HEADER.groups];
  if (buffer.byteLength !== leaseTableBytes(groups)) {
    throw new MemoryError(`${name} has ${buffer.byteLength} bytes for ${groups} groups`);
  }
  const offset = detailsOffset(groups);
  return {
    words,
    doubles: new Float64Array(buffer),
    detailWords: new Int32Array(buffer, offset),
    details: new Float64Array(buffer, offset),
    groups,
  };
}
