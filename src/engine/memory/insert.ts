/**
 * Where a new counter is put without an eviction: in an empty slot or that of an expired counter.
 * Called under the lock of the group.
 *
 * A new counter gets its preferred slot in its first bucket, else in its second, while that bucket
 * is less than half full, or no fuller than the other; else a slot in the bucket with more room.
 * Simulated at half load, 100 times 2^20 counters: no counter met two full buckets; 69 % were in
 * the preferred slot of the first bucket, 19 % of the second. Without that condition, 1 of 10^6 met
 * two full ones.
 */

import { durationOfKey, isExpired, ruleOfKey } from '../windows/registry.ts';
import {
  BUCKET_SLOTS,
  keyAt,
  type MemoryViews,
  NO_SLOT,
  newestAt,
  type Slot,
  slotAt,
  tagAt,
} from './layout.ts';

/** Where an identity may lie: its two buckets, and its preferred slot in each. */
export interface BucketPair {
  bucketA: Slot;
  bucketB: Slot;
  preferredSlotA: Slot;
  preferredSlotB: Slot;
}

/** @returns a free slot in two buckets, or NO_SLOT */
export function findFreeSlot(
  memory: MemoryViews,
  { bucketA, bucketB, preferredSlotA, preferredSlotB }: BucketPair,
  nowMs: number,
): Slot {
  const freeA = countFree(memory, bucketA, nowMs);
  const freeB = countFree(memory, bucketB, nowMs);
  const most = Math.max(freeA, freeB);
  if (most === 0) return NO_SLOT;
  const enough = Math.min(BUCKET_SLOTS / 2 + 1, most);
  if (freeA >= enough && isFree(memory, preferredSlotA, nowMs)) return preferredSlotA;
  if (freeB >= enough && isFree(memory, preferredSlotB, nowMs)) return preferredSlotB;
  return firstFree(memory, freeB > freeA ? bucketB : bucketA, nowMs);
}

/** When the first window of the counters in two full buckets ends, ms. */
export function earliestEndMs(memory: MemoryViews, { bucketA, bucketB }: BucketPair): number {
  return Math.min(earliestEndIn(memory, bucketA), earliestEndIn(memory, bucketB));
}

function earliestEndIn({ doubles }: MemoryViews, bucket: Slot): number {
  let earliest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const slot = slotAt(bucket, i);
    const key = doubles[keyAt(slot)];
    const end = ruleOfKey(key).endMs(doubles[newestAt(slot)], durationOfKey(key));
    if (end < earliest) earliest = end;
  }
  return earliest;
}

function isFree({ words, doubles }: MemoryViews, slot: Slot, nowMs: number): boolean {
  if (words[tagAt(slot)] === 0) return true;
  return isExpired(doubles[keyAt(slot)], doubles[newestAt(slot)], nowMs);
}

function countFree({ words, doubles }: MemoryViews, bucket: Slot, nowMs: number): number {
  let free = 0;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const slot = slotAt(bucket, i);
    // No branch on the tag: empty slots lie among others in no order, and would be mispredicted.
    const isEmpty = words[tagAt(slot)] === 0;
    const expired = isExpired(doubles[keyAt(slot)], doubles[newestAt(slot)], nowMs);
    free += Number(isEmpty) | Number(expired);
  }
  return free;
}

function firstFree(memory: MemoryViews, bucket: Slot, nowMs: number): Slot {
  let index = 0;
  while (!isFree(memory, slotAt(bucket, index), nowMs)) index++;
  return slotAt(bucket, index);
}
