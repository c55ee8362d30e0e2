/**
 * The words of a counter table in shared memory: the one file that both the thread that allocates a
 * table and every thread that attaches to it import. A test pins the numbers.
 *
 *   byte 0     header         magic | version | shard | groups | checkpoint, the last whole one
 *   byte 48    lock lines     one line of 64 bytes per group; its first word is the lock
 *   aligned    buckets        32 buckets of 8 slots per group; a slot is one line
 *
 *   lock line  int32  0        owner           incarnation of the thread that holds it, or 0
 *              float64 1      now             the latest time decided at in this group, ms
 *              int32  4-11    used            a bit for each slot that may hold a counter: set
 *                                             before it is filled, cleared when it is found empty
 *              int32  12      changed         1: decided in since its last checkpoint
 *
 *   slot       int32  0        tag             hash 3; 0 is an empty slot
 *              int32  1-3      hash 0-2        with the tag: 128 bits of identity
 *              int32  4        namespace       its tag, which a victim's choice goes by
 *              int32  5        refused         bit (window & 1): refused someone in that window
 *              float64 3      duration        ms
 *              float64 4      newest          number of the newest window counted
 *              float64 5, 6   the ring        tokens used in windows of even and of odd number
 *              float64 7      limit           the last one admitted under: a victim's share of it
 *
 * An identity may lie in any slot of two buckets. In each of them one is its own, by its hash, and
 * that is where it is put while there is room enough (`room.ts`) and where it is looked for first,
 * so that a hit reads the lock line and one or two lines more. The lines of a bucket are in a page.
 *
 * Whoever reads or writes a bucket holds its group's lock, but for the sweep while it only looks,
 * the look of an asynchronous check, and reads ahead of a decision, which decide nothing.
 */

import { CACHE_LINE_BYTES } from '../../core/constants.ts';

export const TABLE_MAGIC = 0x57656972; // "Weir"
export const TABLE_VERSION = 3;

export const TABLE_HEADER = { magic: 0, version: 1, shard: 2, groups: 3, checkpoint: 4 } as const;

const LINE_WORDS = CACHE_LINE_BYTES / 4;

/**
 * A large buffer is a mapping of its own, in which the C library keeps 16 bytes to itself: what
 * begins at byte 48 is a line of the processor's. Where memory comes otherwise, a line of ours is
 * parts of two, which costs time and nothing else.
 */
const FIRST_LINE_OFFSET = 48;

/** Offsets from the start of a lock line: the owner and the bits in words, the time in doubles. */
export const LOCK_LINE = { owner: 0, latestMs: 1, used: 4, isChanged: 12 } as const;

export const GROUP_BUCKETS = 32;
export const BUCKET_SLOTS = 8;
export const GROUP_SLOTS = GROUP_BUCKETS * BUCKET_SLOTS;
const USED_WORDS = GROUP_SLOTS / 32;

export const SLOT_BYTES = CACHE_LINE_BYTES;
const SLOT_DOUBLES = SLOT_BYTES / 8;
export const BUCKET_BYTES = BUCKET_SLOTS * SLOT_BYTES;
const BUCKET_DOUBLES = BUCKET_BYTES / 8;

/** Offsets in words from the start of a slot. */
export const SLOT_WORD = {
  tag: 0,
  hash0: 1,
  hash1: 2,
  hash2: 3,
  namespace: 4,
  denied: 5,
} as const;
/** Offsets in doubles from the start of a slot. */
export const SLOT = { duration: 3, newest: 4, cells: 5, limit: 7 } as const;
/** No index of a slot. */
export const NO_SLOT = 0;

/** The first byte of the buckets of a table of so many groups. */
export function bucketsOffset(groups: number): number {
  const before = CACHE_LINE_BYTES - FIRST_LINE_OFFSET;
  const end = CACHE_LINE_BYTES + groups * CACHE_LINE_BYTES;
  return Math.ceil(end / BUCKET_BYTES) * BUCKET_BYTES - before;
}

/** The size in bytes of a table of so many groups. */
export function tableBytes(groups: number): number {
  return bucketsOffset(groups) + groups * GROUP_BUCKETS * BUCKET_BYTES;
}

/** How many groups each of `shards` tables needs for `slots` slots in all. */
export function groupsPerShard(slots: number, shards: number): number {
  return Math.ceil(slots / (shards * GROUP_SLOTS));
}

/** A bucket, as the index of doubles of its first slot. */
export function bucketAt(groups: number, bucket: number): number {
  return bucketsOffset(groups) / 8 + bucket * BUCKET_DOUBLES;
}

/** A slot of a bucket, as an index of doubles. */
export function slotAt(bucket: number, index: number): number {
  return bucket + index * SLOT_DOUBLES;
}

/** Which one a slot is among those of its group. @param first the first slot of the table */
export function indexInGroup(first: number, slot: number): number {
  return ((slot - first) / SLOT_DOUBLES) & (GROUP_SLOTS - 1);
}

/** A table as int32 and as float64 from its first byte. */
export interface MemoryViews {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
}

/** The lock line of a group, as an index of words. */
export function lockAt(group: number): number {
  return FIRST_LINE_OFFSET / 4 + group * LINE_WORDS;
}

/** Notes that a slot of a group may hold a counter. @param index among the slots of the group */
export function markSlotUsed(words: Int32Array, lock: number, index: number): void {
  words[lock + LOCK_LINE.used + (index >>> 5)] |= 1 << (index & 31);
}

/** Notes that a slot of a group holds none. */
export function markSlotEmpty(words: Int32Array, lock: number, index: number): void {
  words[lock + LOCK_LINE.used + (index >>> 5)] &= ~(1 << (index & 31));
}

/** The first slot from `index` on that may hold a counter; GROUP_SLOTS when there is none. */
export function nextUsedSlot(words: Int32Array, lock: number, index: number): number {
  let mask = -1 << (index & 31);
  for (let word = index >>> 5; word < USED_WORDS; word++) {
    const bits = words[lock + LOCK_LINE.used + word] & mask;
    // The lowest of them.
    if (bits !== 0) return word * 32 + 31 - Math.clz32(bits & -bits);
    mask = -1;
  }
  return GROUP_SLOTS;
}
