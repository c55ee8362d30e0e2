/**
 * Finding the slot of an identity in a bucket. Called under the lock of the group, or without: the
 * tag is emptied first and written last when a slot is filled, so that what is found without a lock
 * was there, and may be on its way out.
 */

import type { Identity } from '../../core/hash.ts';
import { BUCKET_SLOTS, type MemoryViews, NO_SLOT, SLOT, SLOT_WORD, slotAt } from './layout.ts';

/** @returns an index of doubles, NO_SLOT when it is not there */
export function findSlot(
  memory: MemoryViews,
  bucket: number,
  id: Identity,
  durationMs: number,
): number {
  const { words } = memory;
  const tag = id.h3;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const slot = slotAt(bucket, i);
    if (words[slot * 2 + SLOT_WORD.tag] !== tag) continue;
    if (isCounterOf(memory, slot, id, durationMs)) return slot;
  }
  return NO_SLOT;
}

/** Whether a slot is that of an identity and a duration. */
export function isCounterOf(
  memory: MemoryViews,
  slot: number,
  id: Identity,
  durationMs: number,
): boolean {
  return isSlotOf(memory, slot, id) && memory.doubles[slot + SLOT.duration] === durationMs;
}

/** Whether a slot is that of an identity. */
export function isSlotOf({ words }: MemoryViews, slot: number, id: Identity): boolean {
  const at = slot * 2;
  return (
    words[at + SLOT_WORD.tag] === id.h3 &&
    words[at + SLOT_WORD.hash0] === id.h0 &&
    words[at + SLOT_WORD.hash1] === id.h1 &&
    words[at + SLOT_WORD.hash2] === id.h2
  );
}
