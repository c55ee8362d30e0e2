/**
 * Which counter is evicted for a new one when both of its buckets are full. Pure, and off the hot
 * path, so written for the reader. The engine says in which order its counters go.
 *
 * A namespace that holds more than half of the slots can lose its own counters first: so a client
 * that sprays identifiers evicts these, and no namespace locks others out.
 */

import { NO_SLOT, type Slot } from './layout.ts';

export interface EvictionCandidate {
  slot: Slot;
  namespaceTag: number;
  /** The share of its limit that an eviction would lose. */
  usedShare: number;
  /** When its window ends, ms. */
  endMs: number;
}

/** The rank of a counter that is not evicted. */
export const NEVER_EVICTED = Number.POSITIVE_INFINITY;

/**
 * Chooses the candidate with the lowest rank. Of these, the one with the smallest used share; of
 * these, the one whose window ends first.
 * @param rankOf gets the namespace that holds more than half of the slots, if there is one
 * @returns NO_SLOT when none may be evicted: the table is full for the new counter
 */
export function chooseEviction<C extends EvictionCandidate>(
  candidates: readonly C[],
  rankOf: (candidate: C, majority: number | undefined) => number,
): Slot {
  const majority = majorityNamespace(candidates);
  let best: C | undefined;
  let bestRank = NEVER_EVICTED;
  for (const candidate of candidates) {
    const rank = rankOf(candidate, majority);
    if (rank > bestRank || rank === NEVER_EVICTED) continue;
    if (rank === bestRank && best !== undefined && !goesBefore(candidate, best)) continue;
    best = candidate;
    bestRank = rank;
  }
  return best?.slot ?? NO_SLOT;
}

function goesBefore(a: EvictionCandidate, b: EvictionCandidate): boolean {
  return a.usedShare < b.usedShare || (a.usedShare === b.usedShare && a.endMs < b.endMs);
}

function majorityNamespace(candidates: readonly EvictionCandidate[]): number | undefined {
  const counts = new Map<number, number>();
  for (const { namespaceTag } of candidates) {
    const count = (counts.get(namespaceTag) ?? 0) + 1;
    if (count > candidates.length / 2) return namespaceTag;
    counts.set(namespaceTag, count);
  }
  return undefined;
}
