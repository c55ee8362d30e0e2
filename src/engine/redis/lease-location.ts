/**
 * Where a counter lies in a lease table, and which slot a new one gets. An identity may lie in any
 * slot of two buckets of its group, as in a counter table: see `memory/group.ts`.
 */

import type { Identity } from '../../core/hash.ts';
import { BUCKET_SLOTS, GROUP_BUCKETS, GROUP_SLOTS, type Lock, lockAt } from '../memory/layout.ts';
import {
  dirtyAt,
  firstLeaseSlot,
  type LeaseSlot,
  type LeaseViews,
  leaseBucketAt,
  leaseKeyAt,
  leaseSlotAt,
  leaseSlotNumber,
  leaseTagAt,
  NO_LEASE_SLOT,
} from './lease-layout.ts';
import type { LeaseMemory } from './lease-memory.ts';
import { isLeaseOf } from './lease-slot.ts';

const TWO_POW_32 = 2 ** 32;

export interface LeaseLocation {
  lock: Lock;
  bucketA: LeaseSlot;
  bucketB: LeaseSlot;
  preferredSlotA: LeaseSlot;
  preferredSlotB: LeaseSlot;
}

export function newLeaseLocation(): LeaseLocation {
  return {
    lock: lockAt(0),
    bucketA: NO_LEASE_SLOT,
    bucketB: NO_LEASE_SLOT,
    preferredSlotA: NO_LEASE_SLOT,
    preferredSlotB: NO_LEASE_SLOT,
  };
}

/** Finds where an identity may lie. Needs no lock. @param first the first slot of the table */
export function locateLease(
  first: LeaseSlot,
  groups: number,
  id: Identity,
  into: LeaseLocation,
): void {
  // 32 x 22 bits: the product is exact.
  const group = Math.floor(((id.h1 >>> 0) * groups) / TWO_POW_32);
  const bucket = id.h2 & (GROUP_BUCKETS - 1);
  // One of the 31 others, by bits that the first has not used.
  const step = 1 + (((id.h2 >>> 5) & 0xffff) % (GROUP_BUCKETS - 1));
  const second = (bucket + step) & (GROUP_BUCKETS - 1);
  const preferred = (id.h2 >>> 21) & (BUCKET_SLOTS - 1);
  into.bucketA = leaseBucketAt(first, group, bucket);
  into.bucketB = leaseBucketAt(first, group, second);
  into.preferredSlotA = leaseSlotAt(into.bucketA, preferred);
  into.preferredSlotB = leaseSlotAt(into.bucketB, preferred);
  into.lock = lockAt(group);
}

/** @returns NO_LEASE_SLOT when the counter has no slot */
export function findLease(
  memory: LeaseViews,
  at: LeaseLocation,
  id: Identity,
  key: number,
): LeaseSlot {
  if (isLeaseOf(memory, at.preferredSlotA, id, key)) return at.preferredSlotA;
  if (isLeaseOf(memory, at.preferredSlotB, id, key)) return at.preferredSlotB;
  const slot = findInBucket(memory, at.bucketA, id, key);
  return slot !== NO_LEASE_SLOT ? slot : findInBucket(memory, at.bucketB, id, key);
}

function findInBucket(memory: LeaseViews, bucket: LeaseSlot, id: Identity, key: number): LeaseSlot {
  const { words } = memory;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const slot = leaseSlotAt(bucket, i);
    if (words[leaseTagAt(slot)] === id.h3 && isLeaseOf(memory, slot, id, key)) return slot;
  }
  return NO_LEASE_SLOT;
}

/** The slots of all counters of an identity. */
export function findAllLeases(
  memory: LeaseViews,
  { bucketA, bucketB }: LeaseLocation,
  id: Identity,
): LeaseSlot[] {
  return [...slotsOf(bucketA), ...slotsOf(bucketB)].filter((slot) => {
    return isLeaseOf(memory, slot, id, memory.doubles[leaseKeyAt(slot)]);
  });
}

export function slotsOf(bucket: LeaseSlot): LeaseSlot[] {
  return Array.from({ length: BUCKET_SLOTS }, (_, index) => leaseSlotAt(bucket, index));
}

/** Which slots have usage that Redis does not know: bits in the lock line of their group. */
export class DirtySlots {
  readonly #memory: LeaseMemory;
  readonly #firstSlot: LeaseSlot;

  constructor(memory: LeaseMemory) {
    this.#memory = memory;
    this.#firstSlot = firstLeaseSlot(memory.groups);
  }

  has(lock: Lock, slot: LeaseSlot): boolean {
    const index = this.#indexOf(slot);
    return (this.#memory.words[dirtyAt(lock, index)] & (1 << (index & 31))) !== 0;
  }

  add(lock: Lock, slot: LeaseSlot): void {
    const index = this.#indexOf(slot);
    this.#memory.words[dirtyAt(lock, index)] |= 1 << (index & 31);
  }

  remove(lock: Lock, slot: LeaseSlot): void {
    const index = this.#indexOf(slot);
    this.#memory.words[dirtyAt(lock, index)] &= ~(1 << (index & 31));
  }

  #indexOf(slot: LeaseSlot): number {
    return leaseSlotNumber(this.#firstSlot, slot) & (GROUP_SLOTS - 1);
  }
}
