/**
 * The layout of a lease table: what the redis engine adds to `table/layout.ts`. A test pins the
 * numbers.
 *
 *   after the slots: details, two more lines for each slot
 *
 *   lock line  float64 1      latest       by the monotonic clock
 *              int32  4-11    marks        the slot is dirty: it has usage that Redis does not know
 *              float64 6      sequence     the highest of the slots that were removed
 *
 *   slot       float64 2      lease        tokens that can be used here; Redis has deducted them
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
 *              float64 15     reported     usage of the newest window in messages; infinite
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
  type DoubleIndex,
  firstSlot,
  GROUP_SLOTS,
  type Lock,
  type MemoryViews,
  type Slot,
  tableBytes,
  type WordIndex,
} from '../table/layout.ts';
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

export const LEASE_FLAG = {
  /** Redis has answered that it stores a record of this member in the newest window. */
  stored: 1,
  /** A message about the counter is under way: the slot must stay. */
  pinned: 2,
  /** Tokens of leases that were written off count as used in the newest window. */
  doubted: 4,
  /** The counter goes on from that of the process before, and no message has said so. */
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
  previousUsage: number,
): number {
  const bits = prefetchBelow <= 0 ? 0 : 1 + Math.ceil(Math.log2(Math.max(1, prefetchBelow)));
  return (
    (hasOtherLimit ? SUMMARY_OTHER_LIMIT : 0) |
    (coversSliding ? SUMMARY_COVERS_SLIDING : 0) |
    (Math.min(bits, PREFETCH_BITS_MAX) << PREFETCH_SHIFT) |
    (Math.min(previousUsage, PREVIOUS_USE_MAX) << PREVIOUS_USE_SHIFT)
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

export const DETAIL_BYTES = 2 * CACHE_LINE_BYTES;
/** Numbers of a slot that only the shard worker uses. */
export const WORKER_NUMBERS = 3;

/** The size in bytes of a lease table of so many groups. */
export function leaseTableBytes(groups: number): number {
  return tableBytes(groups) + groups * GROUP_SLOTS * DETAIL_BYTES;
}

/** The byte at which a view of the details begins: those of a slot are at twice its index. */
export function detailsOffset(groups: number): number {
  return tableBytes(groups) - 2 * 8 * firstSlot(groups);
}

export function leaseAt(slot: Slot): DoubleIndex {
  return (slot + 2) as DoubleIndex;
}

export function deadlineAt(slot: Slot): DoubleIndex {
  return (slot + 4) as DoubleIndex;
}

export function lentLimitAt(slot: Slot): DoubleIndex {
  return (slot + 5) as DoubleIndex;
}

export function windowNumberAt(slot: Slot): WordIndex {
  return ((slot << 1) + 12) as WordIndex;
}

export function summaryAt(slot: Slot): WordIndex {
  return ((slot << 1) + 13) as WordIndex;
}

export function heldAt(slot: Slot): DoubleIndex {
  return (slot + 7) as DoubleIndex;
}

export function leaseNamespaceAt(slot: Slot): DetailWordIndex {
  return (slot << 2) as DetailWordIndex;
}

export function leaseFlagsAt(slot: Slot): DetailWordIndex {
  return ((slot << 2) + 1) as DetailWordIndex;
}

/** @param parity of the window's number: 0 or 1 */
export function totalAt(slot: Slot, parity: number): DetailIndex {
  return ((slot << 1) + 1 + parity) as DetailIndex;
}

export function reservedAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 3) as DetailIndex;
}

export function othersAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 4) as DetailIndex;
}

export function boundUntilAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 5) as DetailIndex;
}

export function previousUsageAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 6) as DetailIndex;
}

export function previousKnownUsageAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 7) as DetailIndex;
}

export function sequenceAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 8) as DetailIndex;
}

export function lastLimitAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 9) as DetailIndex;
}

export function firstSequenceAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 10) as DetailIndex;
}

export function othersDeductedAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 11) as DetailIndex;
}

export function reportedAt(slot: Slot): DetailIndex {
  return ((slot << 1) + 15) as DetailIndex;
}

/** @param number below WORKER_NUMBERS */
export function workerNumberAt(slot: Slot, number: number): DetailIndex {
  return ((slot << 1) + 12 + number) as DetailIndex;
}

/** The highest sequence number of the slots of a group that were removed. */
export function removedSequenceAt(lock: Lock): DoubleIndex {
  return ((lock >>> 1) + 6) as DoubleIndex;
}
