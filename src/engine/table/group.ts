/**
 * The groups of a table: where an identity may lie, and the time of a group.
 */

import type { Identity } from '../../core/hash.ts';
import {
  BUCKET_SLOTS,
  bucketAt,
  type Doubles,
  GROUP_BUCKETS,
  groupAt,
  type Lock,
  latestMsAt,
  lockAt,
  NO_SLOT,
  type Slot,
  slotAt,
} from './layout.ts';
import type { TableMemory } from './table-memory.ts';

const TWO_POW_32 = 2 ** 32;

/** Where an identity may lie, its preferred slots there, and the lock of its group. */
export interface Location {
  lock: Lock;
  bucketA: Slot;
  bucketB: Slot;
  preferredSlotA: Slot;
  preferredSlotB: Slot;
}

export function newLocation(): Location {
  return {
    lock: lockAt(0),
    bucketA: NO_SLOT,
    bucketB: NO_SLOT,
    preferredSlotA: NO_SLOT,
    preferredSlotB: NO_SLOT,
  };
}

/** The number of the group of an identity. @param groups of its table */
export function groupOfIdentity({ h1 }: Pick<Identity, 'h1'>, groups: number): number {
  // 32 x 22 bits: the product is exact.
  return Math.floor(((h1 >>> 0) * groups) / TWO_POW_32);
}

/** Finds where an identity may lie. Needs no lock. */
export function locate(
  { firstSlot, groups }: Pick<TableMemory, 'firstSlot' | 'groups'>,
  id: Identity,
  into: Location,
): void {
  const group = groupOfIdentity(id, groups);
  const first = id.h2 & (GROUP_BUCKETS - 1);
  // One of the 31 others, by bits that the first has not used.
  const step = 1 + (((id.h2 >>> 5) & 0xffff) % (GROUP_BUCKETS - 1));
  const second = (first + step) & (GROUP_BUCKETS - 1);
  const preferred = (id.h2 >>> 21) & (BUCKET_SLOTS - 1);
  const slots = groupAt(firstSlot, group);
  into.bucketA = bucketAt(slots, first);
  into.bucketB = bucketAt(slots, second);
  into.preferredSlotA = slotAt(into.bucketA, preferred);
  into.preferredSlotB = slotAt(into.bucketB, preferred);
  into.lock = lockAt(group);
}

/** All slots of an identity's buckets. */
export function slotsOf({ bucketA, bucketB }: Location): Slot[] {
  return [bucketA, bucketB].flatMap((bucket) => {
    return Array.from({ length: BUCKET_SLOTS }, (_, index) => slotAt(bucket, index));
  });
}

/**
 * Begins a decision or an insert, under the lock of the group. Time in a group never runs back: a
 * thread that read the clock and was then stopped for longer than a window would otherwise allow a
 * spent window again, after the expired counter was replaced.
 * @returns the time of the decision
 */
export function advanceTime(doubles: Doubles, lock: Lock, nowMs: number): number {
  const latestMs = doubles[latestMsAt(lock)];
  if (nowMs <= latestMs) return latestMs;
  doubles[latestMsAt(lock)] = nowMs;
  return nowMs;
}
