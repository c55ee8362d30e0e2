/** The buffer of one shard's counters. The main thread allocates it, all threads attach to it. */

import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import { type MemoryViews, TABLE_HEADER, tableBytes } from './layout.ts';

/** Allocates an empty table. */
export function allocateTable(shard: number, groups: number): SharedArrayBuffer {
  return allocateMemory(tableBytes(groups), TABLE_HEADER, { shard, groups });
}

export interface TableMemory extends MemoryViews {
  readonly groups: number;
}

/** @throws MemoryError when the buffer is not a table of this shard */
export function attachTable(buffer: SharedArrayBuffer, shard: number): TableMemory {
  const words = attachMemory(buffer, `the table of shard ${shard}`, TABLE_HEADER, { shard });
  const groups = words[TABLE_HEADER.groups];
  if (buffer.byteLength !== tableBytes(groups)) {
    throw new MemoryError(
      `the table of shard ${shard} has ${buffer.byteLength} bytes for ${groups} groups`,
    );
  }
  return { words, doubles: new Float64Array(buffer), groups };
}
