/** The buffer of one shard's table. The main thread allocates it, all threads attach to it. */

import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import { firstSlot, type MemoryViews, type Slot, TABLE_HEADER, tableBytes } from './layout.ts';

/** The size of a table of so many groups; an engine may have more than slots. */
export type TableBytes = (groups: number) => number;

export interface TableMemory extends MemoryViews {
  readonly groups: number;
  readonly firstSlot: Slot;
}

/** Allocates an empty table. */
export function allocateTable(
  shard: number,
  groups: number,
  bytesOf: TableBytes = tableBytes,
): SharedArrayBuffer {
  return allocateMemory(bytesOf(groups), TABLE_HEADER, { shard, groups });
}

/** @throws MemoryError when the buffer is not a table of this shard */
export function attachTable(
  buffer: SharedArrayBuffer,
  shard: number,
  bytesOf: TableBytes = tableBytes,
): TableMemory {
  const words = attachMemory(buffer, `the table of shard ${shard}`, TABLE_HEADER, { shard });
  const groups = words[TABLE_HEADER.groups];
  if (buffer.byteLength !== bytesOf(groups)) {
    throw new MemoryError(
      `the table of shard ${shard} has ${buffer.byteLength} bytes for ${groups} groups`,
    );
  }
  return { words, doubles: new Float64Array(buffer), groups, firstSlot: firstSlot(groups) };
}
