/**
 * The slots of two buckets that are free for a new counter: those that are empty or hold an expired
 * counter. The caller holds the lock of the group.
 */

import { chooseFreeSlot } from '../table/free-slot.ts';
import { type Location, slotsOf } from '../table/group.ts';
import {
  BUCKET_SLOTS,
  keyAt,
  type MemoryViews,
  type Slot,
  slotAt,
  tagAt,
} from '../table/layout.ts';
import { endMs, isExpired } from '../windows/registry.ts';
import { newestAt } from './layout.ts';

/** @returns a free slot in two buckets, or NO_SLOT */
export function findFreeSlot(memory: MemoryViews, at: Location, nowMs: number): Slot {
  const freeA = freeSlots(memory, at.bucketA, nowMs);
  const freeB = freeSlots(memory, at.bucketB, nowMs);
  return chooseFreeSlot(at, freeA, freeB);
}

/** When the first window of the counters in two full buckets ends, ms. */
export function earliestEndMs({ doubles }: MemoryViews, at: Location): number {
  const ends = slotsOf(at).map((slot) => endMs(doubles[keyAt(slot)], doubles[newestAt(slot)]));
  return Math.min(...ends);
}

/** A bit for each free slot of a bucket. */
function freeSlots({ words, doubles }: MemoryViews, bucket: Slot, nowMs: number): number {
  let free = 0;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const slot = slotAt(bucket, i);
    // No branch on the tag: empty slots lie among others in no order, and would be mispredicted.
    const isEmpty = words[tagAt(slot)] === 0;
    const expired = isExpired(doubles[keyAt(slot)], doubles[newestAt(slot)], nowMs);
    free |= (Number(isEmpty) | Number(expired)) << i;
  }
  return free;
}
