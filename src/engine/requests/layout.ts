/**
 * The layout of the stored answers of one shard in shared memory. A test pins the numbers.
 *
 *   byte 0     header      shard | capacity
 *   byte 48    lock line   int32   0       owner of the lock, or 0: see `table/lock.ts`
 *                          int32   1       the slot that was written last
 *                          float64 1       the latest time of a request, ms
 *   after it   buckets     int32 each: the slot of a bucket that was written last
 *              slots       128 bytes each: one answer
 *
 *   slot       int32   0-3     the key: the hash of the request without its parameters
 *              int32   4-7     the hash of the parameters
 *              int32   8       the next slot of the bucket, which was written before this one
 *              int32   9       of a hold: its kind, or 0
 *              int32   10, 11  of a hold: its shard, and the number of its record
 *              int32   12-14   of a hold: the secret of its id
 *              float64 8       when it was answered, ms
 *              float64 9-11    limit, remaining, reset
 *              float64 12, 13  of a hold: when it expires; of a lease: what is in use
 *
 * Slots are numbered from 1; 0 is none. They are written in turn, the first again after the last.
 */

import { CACHE_LINE_BYTES, FIRST_LINE_OFFSET } from '../../core/constants.ts';
import { MemoryError } from '../../core/errors.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';
import type { Lock } from '../table/layout.ts';

/** No slot. */
export const NONE = 0;

const SLOT_BYTES = 2 * CACHE_LINE_BYTES;
const SLOT_WORDS = SLOT_BYTES / 4;
const LINE_WORDS = CACHE_LINE_BYTES / 4;

const HEADER = { shard: 0, capacity: 1 } as const;

const LINE = FIRST_LINE_OFFSET / 4;
export const LOCK = LINE as Lock;
export const AT = { lastWritten: LINE + 1, buckets: LINE + LINE_WORDS } as const;
export const DOUBLE_AT = { latestMs: LINE / 2 + 1 } as const;

/** Words of a slot. */
export const SLOT = {
  key: 0,
  parameters: 4,
  next: 8,
  holdKind: 9,
  holdShard: 10,
  holdRecord: 11,
  holdSecret: 12,
} as const;
export const SLOT_DOUBLE = {
  answeredAt: 8,
  limit: 9,
  remaining: 10,
  reset: 11,
  expiresAt: 12,
  inUse: 13,
} as const;

/** About one for each slot: a power of two, and whole lines. */
function bucketsFor(capacity: number): number {
  return Math.max(LINE_WORDS, 2 ** Math.ceil(Math.log2(capacity)));
}

function bytesFor(capacity: number): number {
  return FIRST_LINE_OFFSET + CACHE_LINE_BYTES + 4 * bucketsFor(capacity) + capacity * SLOT_BYTES;
}

/** Allocates the memory of one shard, without answers. @param capacity how many it stores */
export function allocateRequests(shard: number, capacity: number): SharedArrayBuffer {
  return allocateMemory(bytesFor(capacity), HEADER, { shard, capacity });
}

/** The stored answers of one shard, as one thread reaches them. */
export class RequestMemory {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly capacity: number;
  readonly #bucketMask: number;
  readonly #slots: number;

  /** @throws MemoryError when the buffer does not have the answers of this shard */
  constructor(buffer: SharedArrayBuffer, shard: number) {
    const name = `the stored answers of shard ${shard}`;
    const words = attachMemory(buffer, name, HEADER, { shard });
    const capacity = words[HEADER.capacity];
    if (buffer.byteLength !== bytesFor(capacity)) {
      throw new MemoryError(`${name} have ${buffer.byteLength} bytes, not ${bytesFor(capacity)}`);
    }
    const buckets = bucketsFor(capacity);
    this.words = words;
    this.doubles = new Float64Array(buffer);
    this.capacity = capacity;
    this.#bucketMask = buckets - 1;
    // Numbers begin at 1.
    this.#slots = AT.buckets + buckets - SLOT_WORDS;
  }

  /** The first word of a slot. */
  slot(number: number): number {
    return this.#slots + number * SLOT_WORDS;
  }

  /** The word of the bucket of a key. @param word of the key, but not the first, the shard's */
  bucket(word: number): number {
    return AT.buckets + (word & this.#bucketMask);
  }
}
