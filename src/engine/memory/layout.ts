/**
 * The layout of a counter table in shared memory. All offsets are used through this file, by all
 * threads that attach to a table. A test pins the numbers.
 *
 *   byte 0     header         shard | groups | number of the last checkpoint
 *   byte 48    lock lines     one line of 64 bytes for each group; its first word is the lock
 *   aligned    buckets        32 buckets of 8 slots for each group; a slot is one line
 *
 *   lock line  int32  0       owner       of the lock, or 0: see `lock.ts`
 *              float64 1      latest      the latest time of a decision in this group, ms
 *              int32  4-11    used        a bit for each slot that may hold a counter: set before
 *                                         the slot is written, cleared when it is found empty
 *              int32  12      changed     1: a decision was made here since the last checkpoint
 *
 *   slot       int32  0       tag         hash 3; 0: the slot is empty
 *              int32  1-3     hash 0-2    with the tag: 128 bits of identity
 *              int32  4       namespace   its tag, which eviction goes by
 *              int32  5       denied      until when a denial protects the counter: see its rule
 *              float64 3      key         duration in ms, and the rule: `windows/registry.ts`
 *              float64 4      newest      windows: number of the newest one; GCRA: ms of `full`
 *              float64 5, 6   cells       windows: tokens used in windows of even and odd number;
 *                                         GCRA: both the fraction of `full` below `newest`
 *              float64 7      limit       the limit under which the last tokens were counted
 *
 * An identity may lie in any slot of two buckets. Its hash prefers one slot in each: `insert.ts`
 * uses these while there is enough room, and a look-up reads them first, so that a hit reads the
 * lock line and one or two more lines. The lines of a bucket are in one page.
 *
 * A thread holds the group's lock while it reads or writes a bucket. Three reads take no lock: the
 * first scan of a sweep, the peek of an asynchronous check, and prefetches. A peek may miss a
 * concurrent write.
 */

import { CACHE_LINE_BYTES, FIRST_LINE_OFFSET } from '../../core/constants.ts';

declare const unit: unique symbol;
/** An index into the int32 words, or the doubles, of a table. One is not accepted as the other. */
export type WordIndex = number & { readonly [unit]: 'word' };
export type DoubleIndex = number & { readonly [unit]: 'double' };
/** The first double of a slot, and of a bucket: that of its first slot. */
export type Slot = DoubleIndex & { readonly slot: true };
/** The first word of a lock line, which is the lock. */
export type Lock = WordIndex & { readonly lock: true };

/** A table as int32 and as float64 from its first byte. */
export interface Words {
  [at: WordIndex]: number;
}
export interface Doubles {
  [at: DoubleIndex]: number;
}
export interface MemoryViews {
  readonly words: Words;
  readonly doubles: Doubles;
}

/** The words for `Atomics`, which takes an Int32Array only. */
export function atomicWords(words: Words): Int32Array {
  return words as Int32Array;
}

export const TABLE_HEADER = {
  shard: 0 as WordIndex,
  groups: 1 as WordIndex,
  checkpoint: 2 as WordIndex,
};

const LINE_WORDS = CACHE_LINE_BYTES / 4;

export const GROUP_BUCKETS = 32;
export const BUCKET_SLOTS = 8;
export const GROUP_SLOTS = GROUP_BUCKETS * BUCKET_SLOTS;
const USED_WORDS = GROUP_SLOTS / 32;

const SLOT_WORDS = CACHE_LINE_BYTES / 4;
const SLOT_DOUBLES = CACHE_LINE_BYTES / 8;
const BUCKET_BYTES = BUCKET_SLOTS * CACHE_LINE_BYTES;

/** No slot: byte 0 of a table is in its header. */
export const NO_SLOT = 0 as Slot;

/** The first byte of the buckets in a table of so many groups. */
function bucketsOffset(groups: number): number {
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

/** The first slot of a table of so many groups. */
export function firstSlot(groups: number): Slot {
  return (bucketsOffset(groups) / 8) as Slot;
}

/** The first slot of a group. @param first that of the table */
export function groupAt(first: Slot, group: number): Slot {
  return slotAt(first, group * GROUP_SLOTS);
}

/** A bucket of a group. @param slots the first slot of the group */
export function bucketAt(slots: Slot, bucket: number): Slot {
  return slotAt(slots, bucket * BUCKET_SLOTS);
}

/** The slot of a number, counted from another one. */
export function slotAt(from: Slot, index: number): Slot {
  return (from + index * SLOT_DOUBLES) as Slot;
}

/** The number of a slot in its group. @param first the first slot of the table */
export function indexInGroup(first: Slot, slot: Slot): number {
  return ((slot - first) / SLOT_DOUBLES) & (GROUP_SLOTS - 1);
}

export function tagAt(slot: Slot): WordIndex {
  return (slot << 1) as WordIndex;
}

/** @param word 0, 1 or 2 */
export function hashAt(slot: Slot, word: number): WordIndex {
  return ((slot << 1) + (1 + word)) as WordIndex;
}

export function namespaceAt(slot: Slot): WordIndex {
  return ((slot << 1) + 4) as WordIndex;
}

export function deniedAt(slot: Slot): WordIndex {
  return ((slot << 1) + 5) as WordIndex;
}

export function keyAt(slot: Slot): DoubleIndex {
  return (slot + 3) as DoubleIndex;
}

export function newestAt(slot: Slot): DoubleIndex {
  return (slot + 4) as DoubleIndex;
}

/** @param parity of the window's number: 0 or 1 */
export function cellAt(slot: Slot, parity: number): DoubleIndex {
  return (slot + 5 + parity) as DoubleIndex;
}

export function limitAt(slot: Slot): DoubleIndex {
  return (slot + 7) as DoubleIndex;
}

/**
 * Copies a whole slot, from one memory to another or within one. As words: a hash that is read as a
 * double may be changed on its way.
 */
export function copySlot(from: Words, slot: Slot, into: Words, target: Slot): void {
  for (let word = 0; word < SLOT_WORDS; word++) {
    into[(target * 2 + word) as WordIndex] = from[(slot * 2 + word) as WordIndex];
  }
}

export function lockAt(group: number): Lock {
  return (FIRST_LINE_OFFSET / 4 + group * LINE_WORDS) as Lock;
}

export function groupOf(lock: Lock): number {
  return (lock - FIRST_LINE_OFFSET / 4) / LINE_WORDS;
}

/** The latest time of a decision in a group. */
export function latestMsAt(lock: Lock): DoubleIndex {
  return ((lock >>> 1) + 1) as DoubleIndex;
}

export function changedAt(lock: Lock): WordIndex {
  return (lock + 12) as WordIndex;
}

function usedAt(lock: Lock, word: number): WordIndex {
  return (lock + 4 + word) as WordIndex;
}

/** Notes that a slot may hold a counter. @param index its number in the group */
export function markSlotUsed(words: Words, lock: Lock, index: number): void {
  words[usedAt(lock, index >>> 5)] |= 1 << (index & 31);
}

/** Notes that a slot holds no counter. */
export function markSlotEmpty(words: Words, lock: Lock, index: number): void {
  words[usedAt(lock, index >>> 5)] &= ~(1 << (index & 31));
}

/** The first slot from `index` on that may hold a counter; GROUP_SLOTS when there is none. */
export function nextUsedSlot(words: Words, lock: Lock, index: number): number {
  let mask = -1 << (index & 31);
  for (let word = index >>> 5; word < USED_WORDS; word++) {
    const bits = words[usedAt(lock, word)] & mask;
    // The lowest of them.
    if (bits !== 0) return word * 32 + 31 - Math.clz32(bits & -bits);
    mask = -1;
  }
  return GROUP_SLOTS;
}
