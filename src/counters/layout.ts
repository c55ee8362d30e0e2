/**
 * The words of a counter table in shared memory: the one file that both the thread that allocates a
 * table and every thread that attaches to it import. A test pins the numbers.
 *
 *   byte 0     header line    magic | version | shard | groups | zeros
 *   byte 64    lock lines     one line of 64 bytes per group; its first word is the lock
 *   aligned    buckets        32 buckets of 512 bytes per group
 *
 *   lock line  int32  0        owner           incarnation of the thread that holds it, or 0
 *              float64 1      now             the latest time decided at in this group, ms
 *
 *   bucket     line 0         8 tags (int32)  | 8 namespace tags (int32)
 *              byte 64        8 slots of 56 bytes
 *
 *   slot       float64 0      duration        ms
 *              float64 1      newest          number of the newest window counted
 *              float64 2, 3   the ring        tokens used in windows of even and of odd number
 *              float64 4      limit           the last one admitted under: a victim's share of it
 *              int32  10-12   hash 0-2        with the tag (hash 3): 128 bits of identity
 *              int32  13      refused         bit (window & 1): refused someone in that window
 *
 * A tag of 0 is an empty slot. A hit reads the lock line, the bucket's line and the slot (one line
 * or two); buckets are aligned to their size, so that those lie in two pages.
 *
 * Whoever reads or writes a bucket holds its group's lock, but for the sweep while it only looks,
 * the look of an asynchronous check, and reads ahead of many checks, which decide nothing.
 */

import { LINE_BYTES } from '../limits.ts';

export const TABLE_MAGIC = 0x57656972; // "Weir"
export const TABLE_VERSION = 1;

export const HEADER = { magic: 0, version: 1, shard: 2, groups: 3 } as const;

export const LINE_WORDS = LINE_BYTES / 4;

/** Offsets from the start of a lock line: the owner in words, the time in doubles. */
export const LOCK = { owner: 0, now: 1 } as const;

/** Simulated at half load, 5 x 10^6 counters: no candidate pair of buckets was full. */
export const GROUP_BUCKETS = 32;
export const BUCKET_SLOTS = 8;
export const GROUP_SLOTS = GROUP_BUCKETS * BUCKET_SLOTS;

export const SLOT_BYTES = 56;
const SLOT_DOUBLES = SLOT_BYTES / 8;
export const BUCKET_BYTES = LINE_BYTES + BUCKET_SLOTS * SLOT_BYTES;
export const BUCKET_WORDS = BUCKET_BYTES / 4;
const BUCKET_LINE_DOUBLES = LINE_BYTES / 8;

/** Offsets in words from the start of a bucket. */
export const BUCKET = { tags: 0, namespaces: BUCKET_SLOTS } as const;
/** Offsets in doubles from the start of a slot. */
export const SLOT = { duration: 0, newest: 1, ring: 2, limit: 4 } as const;
/** Offsets in words from the start of a slot. */
export const SLOT_WORD = { hash0: 10, hash1: 11, hash2: 12, refused: 13 } as const;

/** The first byte of the buckets of a table of so many groups. */
export function bucketsOffset(groups: number): number {
  const end = LINE_BYTES + groups * LINE_BYTES;
  return Math.ceil(end / BUCKET_BYTES) * BUCKET_BYTES;
}

/** The size in bytes of a table of so many groups. */
export function tableBytes(groups: number): number {
  return bucketsOffset(groups) + groups * GROUP_BUCKETS * BUCKET_BYTES;
}

/** How many groups each of `shards` tables needs for `slots` slots in all. */
export function groupsPerShard(slots: number, shards: number): number {
  return Math.ceil(slots / (shards * GROUP_SLOTS));
}

/** A slot of the bucket that starts at a word, as an index of doubles. */
export function slotAt(bucket: number, index: number): number {
  return (bucket >> 1) + BUCKET_LINE_DOUBLES + index * SLOT_DOUBLES;
}

/** A table as int32 and as float64 from its first byte. */
export interface Memory {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
}

/** The lock line of a group, as an index of words. */
export function lockOf(group: number): number {
  return (group + 1) * LINE_WORDS;
}

/** The places of an identity: 0-7 are the slots of its first bucket, 8-15 those of its second. */
export const PLACES = 2 * BUCKET_SLOTS;
export const NO_PLACE = -1;
