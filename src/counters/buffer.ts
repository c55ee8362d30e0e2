/** The buffer of one shard's counters: allocated once by the main thread, attached to by others. */

import { MemoryError } from '../errors.ts';
import { HEADER, type Memory, TABLE_MAGIC, TABLE_VERSION, tableBytes } from './layout.ts';

/** Allocates an empty table, to which threads attach. */
export function allocateTable(shard: number, groups: number): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer(tableBytes(groups));
  const words = new Int32Array(buffer);
  words[HEADER.version] = TABLE_VERSION;
  words[HEADER.shard] = shard;
  words[HEADER.groups] = groups;
  Atomics.store(words, HEADER.magic, TABLE_MAGIC);
  return buffer;
}

export interface Table extends Memory {
  readonly groups: number;
}

/** @throws MemoryError when the buffer is not a table of this version for this shard */
export function attachTable(buffer: SharedArrayBuffer, shard: number): Table {
  const words = new Int32Array(buffer);
  const is = (at: number, wanted: number, what: string) => {
    if (words[at] !== wanted) {
      throw new MemoryError(`shard ${shard}: ${what} is ${words[at]}, not ${wanted}`);
    }
  };
  is(HEADER.magic, TABLE_MAGIC, 'the magic number');
  is(HEADER.version, TABLE_VERSION, 'the version of the layout');
  is(HEADER.shard, shard, 'the number of the shard');
  const groups = words[HEADER.groups];
  if (buffer.byteLength !== tableBytes(groups)) {
    throw new MemoryError(`shard ${shard}: ${buffer.byteLength} bytes for ${groups} groups`);
  }
  return { words, doubles: new Float64Array(buffer), groups };
}
