/**
 * The layout of a lease table in shared memory: the slots of the Redis engine. All offsets are used
 * through this file. A test pins the numbers. Header and lock lines have the offsets of a counter
 * table, so that both use the same locks: `memory/layout.ts`, `memory/lock.ts`.
 *
 *   byte 0     header         shard | groups
 *   byte 48    lock lines     one line of 64 bytes for each group; its first word is the lock
 *   after it   slots          32 buckets of 8 slots for each group; a slot is one line
 *   after it   details        two more lines for each slot
 *
 *   lock line  int32  0       owner        of the lock, or 0
 *              float64 1      latest       the latest monotonic time of a local decision or insert
 *              int32  4-11    dirty        a bit for each slot with usage that Redis does not know:
 *                                          set before the usage is stored
 *              float64 6      sequence     the highest of the slots that were removed
 *
 *   slot       int32  0-3     identity     hash 3, the tag, which is 0 in an empty slot; hash 0-2
 *              float64 2      key          as in a counter table
 *              float64 3      lease        tokens that can be used here; Redis has deducted them
 *              float64 4      deadline     of the lease: before the window ends, monotonic ms
 *              float64 5      lentLimit    the lease serves no check with a lower limit
 *              int32  12      window       its number, unsigned; -1: none yet. Until the year 2106
 *              int32  13      summary      what a check that uses the lease needs to know besides:
 *                      bit 0               `lastLimit` is not `lentLimit`
 *                      bit 1               the lease also serves checks of the sliding window
 *                      bits 2-6            n: below 2^(n-1) tokens more are wanted; 0: they are not
 *                      bits 7-31           previous use; PREVIOUS_USE_MAX: at least that
 *              float64 7      held         total + deducted: held - lease tokens are not left
 *
 *   details    int32  0       namespace    its tag, which eviction goes by
 *              int32  1       flags        LEASE_FLAG
 *                      bits 8-31           when a pause ends, monotonic ms modulo 2^24; 0: none
 *              float64 1, 2   cells        by the parity of the window. Newest window: its total,
 *                                          spent + lease + reserved. The one before: without lease
 *              float64 3      reserved     tokens of pending batches
 *              float64 4      others       used by other machines as far as known; may be negative
 *              float64 5      boundUntil   when `others` is too old for a denial, monotonic ms
 *              float64 6, 7   previous     usage of the window before, of all machines: with tokens
 *                                          in leases; without
 *              float64 8      sequence     of the last message about this counter
 *              float64 9      lastLimit    that of the last allowed check
 *              float64 10     first        the sequence number of the first message of the slot
 *              float64 11     deducted     `others` with the tokens in leases of other machines
 *              float64 12-14  worker       numbers that only the shard worker uses
 *              float64 15     reported     usage of the newest window that Redis was told; infinite
 *                                          while a report is requested or under way
 *
 *   GCRA       cells 1, 2 are `newest` and `current` of a local bucket, `lastLimit` its limit, and
 *              `reserved` the tokens that Redis does not know. There is no lease.
 *
 * A check that uses a lease changes `lease` alone, which changes `spent` in the same store. If its
 * window is fixed, it reads the lock line and one more line, and as many pages as a counter table.
 */

import { CACHE_LINE_BYTES } from '../../core/constants.ts';
import {
  BUCKET_SLOTS,
  type DoubleIndex,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  type Lock,
  lockAt,
  type MemoryViews,
  type WordIndex,
} from '../memory/layout.ts';
import { PAUSE_BITS } from './counter/pause.ts';

declare const unit: unique symbol;
/** An index into the words, or the doubles, of the details of slots. */
export type DetailWordIndex = number & { readonly [unit]: 'detail word' };
export type DetailIndex = number & { readonly [unit]: 'detail' };

/** Details as int32 and as float64. The details of a slot begin at twice its index. */
export interface DetailWords {
  [at: DetailWordIndex]: number;
}
export interface Details {
  [at: DetailIndex]: number;
}
export interface LeaseViews extends MemoryViews {
  readonly detailWords: DetailWords;
  readonly details: Details;
}

/** The first double of a slot, and of a bucket: that of its first slot. */
export type LeaseSlot = DoubleIndex & { readonly leaseSlot: true };

/** No slot: byte 0 of a table is in its header. */
export const NO_LEASE_SLOT = 0 as LeaseSlot;

export const LEASE_TABLE_HEADER = { shard: 0 as WordIndex, groups: 1 as WordIndex };

export const LEASE_FLAG = {
  /** Redis has answered that it stores a record of this member in the newest window. */
  stored: 1,
  /** A message about the counter is under way: the slot must stay. */
  pinned: 2,
  /** Tokens of leases that were written off count as used in the newest window. */
  doubted: 4,
  /** The counter goes on from that of the process before, and Redis has not been told. */
  inherited: 8,
} as const;

/** Flags above it are a pause, as `counter/pause.ts` stores it. */
export const PAUSE_SHIFT = 32 - PAUSE_BITS;

/** The pause of flags; 0: there is none. */
export function pauseOf(flags: number): number {
  return flags >>> PAUSE_SHIFT;
}

/** Bits of the summary of a slot. */
export const SUMMARY_OTHER_LIMIT = 1;
export const SUMMARY_COVERS_SLIDING = 2;
const PREFETCH_SHIFT = 2;
const PREFETCH_MASK = 31;
const PREFETCH_BITS_MAX = 30;
const PREVIOUS_USE_SHIFT = 7;
export const PREVIOUS_USE_MAX = 2 ** 25 - 1;

/** @param prefetchBelow is rounded up to a power of two */
export function summaryOf(
  hasOtherLimit: boolean,
  coversSliding: boolean,
  prefetchBelow: number,
  previousUse: number,
): number {
  const bits = prefetchBelow <= 0 ? 0 : 1 + Math.ceil(Math.log2(Math.max(1, prefetchBelow)));
  return (
    (hasOtherLimit ? SUMMARY_OTHER_LIMIT : 0) |
    (coversSliding ? SUMMARY_COVERS_SLIDING : 0) |
    (Math.min(bits, PREFETCH_BITS_MAX) << PREFETCH_SHIFT) |
    (Math.min(previousUse, PREVIOUS_USE_MAX) << PREVIOUS_USE_SHIFT)
  );
}

/** Below how many tokens more are wanted. */
export function prefetchBelowOf(summary: number): number {
  return (1 << ((summary >>> PREFETCH_SHIFT) & PREFETCH_MASK)) >>> 1;
}

/** The summary of a lease for which no more tokens are wanted. */
export function withoutPrefetch(summary: number): number {
  return summary & ~(PREFETCH_MASK << PREFETCH_SHIFT);
}

/** Usage of the window before; PREVIOUS_USE_MAX: at least that. */
export function previousUseOf(summary: number): number {
  return summary >>> PREVIOUS_USE_SHIFT;
}

const SLOT_DOUBLES = CACHE_LINE_BYTES / 8;
export const DETAIL_BYTES = 2 * CACHE_LINE_BYTES;
const DIRTY_WORDS = GROUP_SLOTS / 32;
/** Numbers of a slot that only the shard worker uses. */
export const WORKER_NUMBERS = 3;

/** The size in bytes of a table of so many groups. */
export function leaseTableBytes(groups: number): number {
  return slotsEnd(groups) + groups * GROUP_SLOTS * DETAIL_BYTES;
}

function slotsEnd(groups: number): number {
  return lockAt(groups) * 4 + groups * GROUP_SLOTS * CACHE_LINE_BYTES;
}

/** The byte at which a view of the details begins: those of a slot are at twice its index. */
export function detailsOffset(groups: number): number {
  return slotsEnd(groups) - 2 * 8 * firstLeaseSlot(groups);
}

/** The first slot of a table of so many groups. */
export function firstLeaseSlot(groups: number): LeaseSlot {
  return (lockAt(groups) >>> 1) as LeaseSlot;
}

/** The slot of a number, counted from another one. */
export function leaseSlotAt(from: LeaseSlot, index: number): LeaseSlot {
  return (from + index * SLOT_DOUBLES) as LeaseSlot;
}

/** The first slot of a bucket. @param first that of the table */
export function leaseBucketAt(first: LeaseSlot, group: number, bucket: number): LeaseSlot {
  return leaseSlotAt(first, (group * GROUP_BUCKETS + bucket) * BUCKET_SLOTS);
}

/** The number of a slot in its table. @param first the first slot of the table */
export function leaseSlotNumber(first: LeaseSlot, slot: LeaseSlot): number {
  return (slot - first) / SLOT_DOUBLES;
}

export function leaseTagAt(slot: LeaseSlot): WordIndex {
  return (slot << 1) as WordIndex;
}

/** @param word 0, 1 or 2 */
export function leaseHashAt(slot: LeaseSlot, word: number): WordIndex {
  return ((slot << 1) + (1 + word)) as WordIndex;
}

export function leaseKeyAt(slot: LeaseSlot): DoubleIndex {
  return (slot + 2) as DoubleIndex;
}

export function leaseAt(slot: LeaseSlot): DoubleIndex {
  return (slot + 3) as DoubleIndex;
}

export function deadlineAt(slot: LeaseSlot): DoubleIndex {
  return (slot + 4) as DoubleIndex;
}

export function lentLimitAt(slot: LeaseSlot): DoubleIndex {
  return (slot + 5) as DoubleIndex;
}

export function windowNumberAt(slot: LeaseSlot): WordIndex {
  return ((slot << 1) + 12) as WordIndex;
}

export function summaryAt(slot: LeaseSlot): WordIndex {
  return ((slot << 1) + 13) as WordIndex;
}

export function heldAt(slot: LeaseSlot): DoubleIndex {
  return (slot + 7) as DoubleIndex;
}

export function leaseNamespaceAt(slot: LeaseSlot): DetailWordIndex {
  return (slot << 2) as DetailWordIndex;
}

export function leaseFlagsAt(slot: LeaseSlot): DetailWordIndex {
  return ((slot << 2) + 1) as DetailWordIndex;
}

/** @param parity of the window's number: 0 or 1 */
export function totalAt(slot: LeaseSlot, parity: number): DetailIndex {
  return ((slot << 1) + 1 + parity) as DetailIndex;
}

export function reservedAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 3) as DetailIndex;
}

export function othersAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 4) as DetailIndex;
}

export function boundUntilAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 5) as DetailIndex;
}

export function previousUseAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 6) as DetailIndex;
}

export function previousKnownUseAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 7) as DetailIndex;
}

export function sequenceAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 8) as DetailIndex;
}

export function lastLimitAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 9) as DetailIndex;
}

export function firstSequenceAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 10) as DetailIndex;
}

export function othersDeductedAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 11) as DetailIndex;
}

export function reportedAt(slot: LeaseSlot): DetailIndex {
  return ((slot << 1) + 15) as DetailIndex;
}

/** @param number below WORKER_NUMBERS */
export function workerNumberAt(slot: LeaseSlot, number: number): DetailIndex {
  return ((slot << 1) + 12 + number) as DetailIndex;
}

/** The latest monotonic time of a local decision or an insert in a group. */
export function latestLeaseMsAt(lock: Lock): DoubleIndex {
  return ((lock >>> 1) + 1) as DoubleIndex;
}

/** The highest sequence number of the slots of a group that were removed. */
export function removedSequenceAt(lock: Lock): DoubleIndex {
  return ((lock >>> 1) + 6) as DoubleIndex;
}

/** The word with the bit of a slot that has usage which Redis does not know. */
export function dirtyAt(lock: Lock, index: number): WordIndex {
  return (lock + 4 + (index >>> 5)) as WordIndex;
}

/** The first dirty slot of a group from `index` on; GROUP_SLOTS when there is none. */
export function nextDirtySlot(
  words: { [at: WordIndex]: number },
  lock: Lock,
  index: number,
): number {
  let mask = -1 << (index & 31);
  for (let word = index >>> 5; word < DIRTY_WORDS; word++) {
    const bits = words[dirtyAt(lock, word * 32)] & mask;
    // The lowest of them.
    if (bits !== 0) return word * 32 + 31 - Math.clz32(bits & -bits);
    mask = -1;
  }
  return GROUP_SLOTS;
}
