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

import { isOf } from './find.ts';
import type { Identity } from './hash.ts';
import { BUCKET_SLOTS, type Memory, NO_SLOT, SLOT, SLOT_WORD, slotAt } from './layout.ts';
import { isCurrent } from './window.ts';

interface Place {
  slot: number;
  namespace: number;
  guarded: boolean;
  share: number;
  endMs: number;
}

/**
 * @param namespaceTag of the newcomer
 * @returns one of the slots in two full buckets, or NO_SLOT
 */
export function chooseVictim(
  memory: Memory,
  a: number,
  b: number,
  id: Identity,
  namespaceTag: number,
  nowMs: number,
): number {
  const places: Place[] = [];
  for (const bucket of [a, b]) {
    for (let i = 0; i < BUCKET_SLOTS; i++) places.push(readPlace(memory, slotAt(bucket, i), nowMs));
  }
  const unguarded = places.filter((place) => !place.guarded);
  const others = unguarded.filter(({ slot }) => !isOf(memory, slot, id));
  const crowd = majority(places);
  if (crowd !== undefined) {
    const ofCrowd = smallestShare(others.filter((place) => place.namespace === crowd));
    if (ofCrowd !== undefined) return ofCrowd.slot;
    if (crowd !== namespaceTag) {
      const guarded = smallestShare(places.filter((place) => place.namespace === crowd));
      if (guarded !== undefined) return guarded.slot;
    }
  }
  return (smallestShare(others) ?? smallestShare(unguarded))?.slot ?? NO_SLOT;
}

function readPlace({ words, doubles }: Memory, slot: number, nowMs: number): Place {
  const newest = doubles[slot + SLOT.newest];
  const durationMs = doubles[slot + SLOT.duration];
  const cell = newest & 1;
  const current = isCurrent(newest, durationMs, nowMs);
  return {
    slot,
    namespace: words[slot * 2 + SLOT_WORD.namespace],
    guarded: current && (words[slot * 2 + SLOT_WORD.refused] & (1 << cell)) !== 0,
    share: current ? doubles[slot + SLOT.ring + cell] / doubles[slot + SLOT.limit] : 0,
    endMs: (newest + 1) * durationMs,
  };
}

/** The namespace that holds more than half of the places, if one does. */
function majority(places: Place[]): number | undefined {
  const held = new Map<number, number>();
  for (const { namespace } of places) {
    const count = (held.get(namespace) ?? 0) + 1;
    if (count > places.length / 2) return namespace;
    held.set(namespace, count);
  }
  return undefined;
}

function smallestShare(places: Place[]): Place | undefined {
  let best: Place | undefined;
  for (const place of places) {
    const better =
      best === undefined ||
      place.share < best.share ||
      (place.share === best.share && place.endMs < best.endMs);
    if (better) best = place;
  }
  return best;
}
