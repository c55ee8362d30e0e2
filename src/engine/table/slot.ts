/**
 * Finds the slot of a counter by its identity and key. Called under the lock of its group, or
 * without it: what is found then was there, and may be about to change.
 */

import type { Identity, MutableIdentity } from '../../core/hash.ts';
import { type Location, slotsOf } from './group.ts';
import {
  BUCKET_SLOTS,
  hashAt,
  keyAt,
  type MemoryViews,
  NO_SLOT,
  type Slot,
  slotAt,
  tagAt,
} from './layout.ts';

/** @returns the slot of a counter; NO_SLOT when there is none */
export function find(memory: MemoryViews, at: Location, id: Identity, key: number): Slot {
  if (isCounterOf(memory, at.preferredSlotA, id, key)) return at.preferredSlotA;
  if (isCounterOf(memory, at.preferredSlotB, id, key)) return at.preferredSlotB;
  const slot = findInBucket(memory, at.bucketA, id, key);
  return slot !== NO_SLOT ? slot : findInBucket(memory, at.bucketB, id, key);
}

function findInBucket(memory: MemoryViews, bucket: Slot, id: Identity, key: number): Slot {
  const { words } = memory;
  const tag = id.h3;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const slot = slotAt(bucket, i);
    if (words[tagAt(slot)] !== tag) continue;
    if (isCounterOf(memory, slot, id, key)) return slot;
  }
  return NO_SLOT;
}

/** The slots of all counters of an identity, expired ones included. */
export function findAll(memory: MemoryViews, at: Location, id: Identity): Slot[] {
  return slotsOf(at).filter((slot) => isSlotOf(memory, slot, id));
}

/** Whether a slot holds the counter of an identity and a key. */
export function isCounterOf(memory: MemoryViews, slot: Slot, id: Identity, key: number): boolean {
  return isSlotOf(memory, slot, id) && memory.doubles[keyAt(slot)] === key;
}

/** Whether a slot holds a counter of an identity. */
export function isSlotOf({ words }: MemoryViews, slot: Slot, id: Identity): boolean {
  return (
    words[tagAt(slot)] === id.h3 &&
    words[hashAt(slot, 0)] === id.h0 &&
    words[hashAt(slot, 1)] === id.h1 &&
    words[hashAt(slot, 2)] === id.h2
  );
}

export function readIdentity({ words }: MemoryViews, slot: Slot, into: MutableIdentity): Identity {
  into.h0 = words[hashAt(slot, 0)];
  into.h1 = words[hashAt(slot, 1)];
  into.h2 = words[hashAt(slot, 2)];
  into.h3 = words[tagAt(slot)];
  return into;
}
