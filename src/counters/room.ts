/**
 * Where a newcomer finds room without anybody making any: in an empty slot or that of an expired
 * counter, of the bucket that has more of them; how its counter is written there; and how counters
 * are removed. Called under the lock of the group.
 */

import { isOf } from './find.ts';
import type { Identity } from './hash.ts';
import {
  BUCKET,
  BUCKET_SLOTS,
  type Memory,
  NO_PLACE,
  PLACES,
  SLOT,
  SLOT_WORD,
  slotAt,
} from './layout.ts';
import { type Cells, isExpired } from './window.ts';

/** @returns a free place in two buckets, or NO_PLACE */
export function freePlace(memory: Memory, a: number, b: number, nowMs: number): number {
  const freeInA = countFree(memory, a, nowMs);
  const freeInB = countFree(memory, b, nowMs);
  if (freeInA + freeInB === 0) return NO_PLACE;
  return freeInB > freeInA
    ? BUCKET_SLOTS + firstFree(memory, b, nowMs)
    : firstFree(memory, a, nowMs);
}

/** When the first window of the counters in two full buckets ends, ms. */
export function earliestEnd({ doubles }: Memory, a: number, b: number): number {
  let earliest = Number.POSITIVE_INFINITY;
  for (let place = 0; place < PLACES; place++) {
    const slot = slotAt(place < BUCKET_SLOTS ? a : b, place % BUCKET_SLOTS);
    const end = (doubles[slot + SLOT.newest] + 1) * doubles[slot + SLOT.duration];
    if (end < earliest) earliest = end;
  }
  return earliest;
}

function isFree({ words, doubles }: Memory, bucket: number, index: number, nowMs: number): boolean {
  if (words[bucket + BUCKET.tags + index] === 0) return true;
  const slot = slotAt(bucket, index);
  return isExpired(doubles[slot + SLOT.newest], doubles[slot + SLOT.duration], nowMs);
}

function countFree(memory: Memory, bucket: number, nowMs: number): number {
  let free = 0;
  for (let i = 0; i < BUCKET_SLOTS; i++) if (isFree(memory, bucket, i, nowMs)) free++;
  return free;
}

function firstFree(memory: Memory, bucket: number, nowMs: number): number {
  let index = 0;
  while (!isFree(memory, bucket, index, nowMs)) index++;
  return index;
}

/** Writes a counter into an unused slot, or over another counter. */
export function fillPlace(
  { words, doubles }: Memory,
  bucket: number,
  index: number,
  id: Identity,
  namespaceTag: number,
  cells: Cells,
  durationMs: number,
  limit: number,
): void {
  const tag = bucket + BUCKET.tags + index;
  const slot = slotAt(bucket, index);
  words[tag] = 0;
  doubles[slot + SLOT.duration] = durationMs;
  doubles[slot + SLOT.newest] = cells.newest;
  doubles[slot + SLOT.ring + (cells.newest & 1)] = cells.current;
  doubles[slot + SLOT.ring + (~cells.newest & 1)] = cells.previous;
  doubles[slot + SLOT.limit] = limit;
  const slotWords = slot * 2;
  words[slotWords + SLOT_WORD.hash0] = id.h0;
  words[slotWords + SLOT_WORD.hash1] = id.h1;
  words[slotWords + SLOT_WORD.hash2] = id.h2;
  words[slotWords + SLOT_WORD.refused] = 0;
  words[bucket + BUCKET.namespaces + index] = namespaceTag;
  words[tag] = id.h3;
}

/**
 * Empties the slots of an identity in a bucket, of one duration or of all.
 * @returns how many of them had not expired
 */
export function emptyPlaces(
  { words, doubles }: Memory,
  bucket: number,
  id: Identity,
  durationMs: number | undefined,
  nowMs: number,
): number {
  let live = 0;
  for (let i = 0; i < BUCKET_SLOTS; i++) {
    const tag = bucket + BUCKET.tags + i;
    if (words[tag] !== id.h3) continue;
    const slot = slotAt(bucket, i);
    const duration = doubles[slot + SLOT.duration];
    if (!isOf(id, words, slot) || (durationMs !== undefined && duration !== durationMs)) {
      continue;
    }
    words[tag] = 0;
    if (!isExpired(doubles[slot + SLOT.newest], duration, nowMs)) live++;
  }
  return live;
}
