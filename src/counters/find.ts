/**
 * Finding the slot of an identity in a bucket. Called under the lock of the group, or without: the
 * tag is emptied first and written last when a slot is filled, so that what is found without a lock
 * was there, and may be on its way out.
 */

import type { Identity } from './hash.ts';
import { BUCKET, BUCKET_SLOTS, type Memory, SLOT, SLOT_WORD, slotAt } from './layout.ts';

/** @returns an index of doubles, 0 when it is not there */
export function findSlot(
  { words, doubles }: Memory,
  bucket: number,
  id: Identity,
  durationMs: number,
): number {
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    if (words[bucket + BUCKET.tags + i] !== id.h3) continue;
    const slot = slotAt(bucket, i);
    if (isOf(id, words, slot) && doubles[slot + SLOT.duration] === durationMs) return slot;
  }
  return 0;
}

/**
 * The slot with the tag of an identity, which is nearly always its own: without a look at it.
 * @returns an index of doubles, 0 when there is none
 */
export function taggedSlot({ words }: Memory, bucket: number, { h3 }: Identity): number {
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    if (words[bucket + BUCKET.tags + i] === h3) return slotAt(bucket, i);
  }
  return 0;
}

/** Whether a slot with the tag of an identity has the other words of its hash. */
export function isOf({ h0, h1, h2 }: Identity, words: Int32Array, slot: number): boolean {
  const at = slot * 2;
  const { hash0, hash1, hash2 } = SLOT_WORD;
  return words[at + hash0] === h0 && words[at + hash1] === h1 && words[at + hash2] === h2;
}
