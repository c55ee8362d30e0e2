/**
 * Which live counter makes room when both buckets of a newcomer are full of live ones. Pure over
 * the sixteen slots that the caller has locked; off the hot path, so written for the reader.
 *
 * A counter is guarded while it has refused someone in a window that still runs: a client that is
 * being refused is not forgotten. In this order:
 *
 *   1. A namespace that holds more than half of the places gives up its own first, the unguarded
 *      one with the smallest used share of its limit; for a newcomer of another namespace its
 *      guarded ones too. So spraying identifiers displaces the sprayed, and no namespace locks
 *      others out.
 *   2. Of all unguarded counters the one with the smallest used share of its limit.
 *   3. Nobody: the table is full for this newcomer.
 *
 * Counters of the newcomer's own identity go last of the unguarded: of several windows of one
 * caller, one would displace the other with every request, and none would ever be used up.
 *
 * A window that has ended counts as share 0, also where the sliding window carries some of it over:
 * the table does not know who will ask. Of equal shares the one whose window ends first goes.
 */

import type { Identity } from '../../core/hash.ts';
import { isSlotOf } from './find.ts';
import { BUCKET_SLOTS, type MemoryViews, NO_SLOT, SLOT, SLOT_WORD, slotAt } from './layout.ts';
import { isCurrent } from './windows/window.ts';

interface EvictionCandidate {
  slot: number;
  namespaceTag: number;
  isProtected: boolean;
  usedShare: number;
  endMs: number;
}

/**
 * @param namespaceTag of the newcomer
 * @returns one of the slots in two full buckets, or NO_SLOT
 */
export function chooseEviction(
  memory: MemoryViews,
  bucketA: number,
  bucketB: number,
  id: Identity,
  namespaceTag: number,
  nowMs: number,
): number {
  const places: EvictionCandidate[] = [];
  for (const bucket of [bucketA, bucketB]) {
    for (let i = 0; i < BUCKET_SLOTS; i++)
      places.push(readCandidate(memory, slotAt(bucket, i), nowMs));
  }
  const unguarded = places.filter((place) => !place.isProtected);
  const others = unguarded.filter(({ slot }) => !isSlotOf(memory, slot, id));
  const crowd = majorityNamespace(places);
  if (crowd !== undefined) {
    const ofCrowd = leastUsed(others.filter((place) => place.namespaceTag === crowd));
    if (ofCrowd !== undefined) return ofCrowd.slot;
    if (crowd !== namespaceTag) {
      const guarded = leastUsed(places.filter((place) => place.namespaceTag === crowd));
      if (guarded !== undefined) return guarded.slot;
    }
  }
  return (leastUsed(others) ?? leastUsed(unguarded))?.slot ?? NO_SLOT;
}

function readCandidate(
  { words, doubles }: MemoryViews,
  slot: number,
  nowMs: number,
): EvictionCandidate {
  const newest = doubles[slot + SLOT.newest];
  const durationMs = doubles[slot + SLOT.duration];
  const cell = newest & 1;
  const current = isCurrent(newest, durationMs, nowMs);
  return {
    slot,
    namespaceTag: words[slot * 2 + SLOT_WORD.namespace],
    isProtected: current && (words[slot * 2 + SLOT_WORD.denied] & (1 << cell)) !== 0,
    usedShare: current ? doubles[slot + SLOT.cells + cell] / doubles[slot + SLOT.limit] : 0,
    endMs: (newest + 1) * durationMs,
  };
}

/** The namespace that holds more than half of the places, if one does. */
function majorityNamespace(candidates: EvictionCandidate[]): number | undefined {
  const held = new Map<number, number>();
  for (const { namespaceTag } of candidates) {
    const count = (held.get(namespaceTag) ?? 0) + 1;
    if (count > candidates.length / 2) return namespaceTag;
    held.set(namespaceTag, count);
  }
  return undefined;
}

function leastUsed(candidates: EvictionCandidate[]): EvictionCandidate | undefined {
  let best: EvictionCandidate | undefined;
  for (const place of candidates) {
    const better =
      best === undefined ||
      place.usedShare < best.usedShare ||
      (place.usedShare === best.usedShare && place.endMs < best.endMs);
    if (better) best = place;
  }
  return best;
}
