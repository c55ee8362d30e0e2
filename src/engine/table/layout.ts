/**
 * The layout of a table in shared memory, as far as the engines share it. All offsets are used
 * through this file and the layout of the engine, by all threads that attach to a table. A test
 * pins the numbers.
 *
 *   byte 0     header         shard | groups | of the engine
 *   byte 48    lock lines     one line of 64 bytes for each group; its first word is the lock
 *   aligned    buckets        32 buckets of 8 slots for each group; a slot is one line
 *   after it   of the engine
 *
 *   lock line  int32  0       owner       of the lock, or 0: see `lock.ts`
 *              float64 1      latest      the latest time of a decision or insert in this group, ms
 *              int32  4-11    marks       a bit for each slot, set before the slot is written
 *              int32  12-15   of the engine
 *
 *   slot       int32  0       tag         hash 3; 0: the slot is empty
 *              int32  1-3     hash 0-2    with the tag: 128 bits of identity
 *              int32  4, 5    of the engine
 *              float64 3      key         duration in ms, and the rule: `windows/registry.ts`
 *              float64 4-7    of the engine
 *
 * An identity may lie in any slot of two buckets. Its hash prefers one slot in each: `free-slot.ts`
 * uses these while there is enough room, and a look-up reads them first, so that a hit reads the
 * lock line and one or two more lines. The lines of a bucket are in one page.
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

export const TABLE_HEADER = { shard: 0 as WordIndex, groups: 1 as WordIndex };

const LINE_WORDS = CACHE_LINE_BYTES / 4;

export const GROUP_BUCKETS = 32;
export const BUCKET_SLOTS = 8;
export const GROUP_SLOTS = GROUP_BUCKETS * BUCKET_SLOTS;
const MARK_WORDS = GROUP_SLOTS / 32;

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

/** The first byte after the slots of a table of so many groups. */
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

/** The number of a slot in its bucket. */
export function indexInBucket(bucket: Slot, slot: Slot): number {
  return (slot - bucket) / SLOT_DOUBLES;
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

export function keyAt(slot: Slot): DoubleIndex {
  return (slot + 3) as DoubleIndex;
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

function markWordAt(lock: Lock, index: number): WordIndex {
  return (lock + 4 + (index >>> 5)) as WordIndex;
}

/** Marks a slot. @param index its number in the group */
export function markSlot(words: Words, lock: Lock, index: number): void {
  words[markWordAt(lock, index)] |= 1 << (index & 31);
}

export function unmarkSlot(words: Words, lock: Lock, index: number): void {
  words[markWordAt(lock, index)] &= ~(1 << (index & 31));
}

export function isSlotMarked(words: Words, lock: Lock, index: number): boolean {
  return (words[markWordAt(lock, index)] & (1 << (index & 31))) !== 0;
}

/** The first marked slot from `index` on; GROUP_SLOTS when there is none. */
export function nextMarkedSlot(words: Words, lock: Lock, index: number): number {
  let mask = -1 << (index & 31);
  for (let word = index >>> 5; word < MARK_WORDS; word++) {
    const bits = words[markWordAt(lock, word * 32)] & mask;
    // The lowest of them.
    if (bits !== 0) return word * 32 + 31 - Math.clz32(bits & -bits);
    mask = -1;
  }
  return GROUP_SLOTS;
}
