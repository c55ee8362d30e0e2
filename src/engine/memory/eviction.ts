/**
 * Which live counter is evicted for a new one when both of its buckets are full of live counters.
 * Pure over the sixteen slots, whose lock the caller holds. Off the hot path, so written for the
 * reader.
 *
 * A counter is protected while it has denied a check and its usage still counts: an identifier that
 * is being denied does not get a new counter. The order:
 *
 *   1. A namespace that holds more than half of the slots loses its own counter first: the
 *      unprotected one with the smallest used share of its limit; for a new counter of another
 *      namespace, its protected ones too. So a client that sprays identifiers evicts these, and no
 *      namespace locks others out.
 *   2. Of all unprotected counters, the one with the smallest used share of its limit.
 *   3. None: the table is full for this new counter.
 *
 * Counters of the new counter's own identity are the last of the unprotected: of several windows of
 * one identifier, one would evict the other with every request, and none would reach its limit.
 *
 * Of equal shares, the counter whose window ends first is evicted.
 */

import type { Identity } from '../../core/hash.ts';
import { durationOfKey, ruleOfKey } from '../windows/registry.ts';
import { newCells } from '../windows/rule.ts';
import type { BucketPair } from './insert.ts';
import {
  BUCKET_SLOTS,
  deniedAt,
  keyAt,
  type MemoryViews,
  NO_SLOT,
  namespaceAt,
  type Slot,
  slotAt,
} from './layout.ts';
import { isSlotOf, readCells } from './slot.ts';

interface EvictionCandidate {
  slot: Slot;
  namespaceTag: number;
  isProtected: boolean;
  usedShare: number;
  endMs: number;
}

/**
 * @param namespaceTag of the new counter
 * @returns one of the slots in two full buckets, or NO_SLOT
 */
export function chooseEviction(
  memory: MemoryViews,
  { bucketA, bucketB }: BucketPair,
  id: Identity,
  namespaceTag: number,
  nowMs: number,
): Slot {
  const candidates: EvictionCandidate[] = [];
  for (const bucket of [bucketA, bucketB]) {
    for (let i = 0; i < BUCKET_SLOTS; i++) {
      candidates.push(readCandidate(memory, slotAt(bucket, i), nowMs));
    }
  }
  const unprotected = candidates.filter(({ isProtected }) => !isProtected);
  const others = unprotected.filter(({ slot }) => !isSlotOf(memory, slot, id));
  const majority = majorityNamespace(candidates);
  if (majority !== undefined) {
    const unprotectedOfMajority = leastUsed(
      others.filter((candidate) => candidate.namespaceTag === majority),
    );
    if (unprotectedOfMajority !== undefined) return unprotectedOfMajority.slot;
    if (majority !== namespaceTag) {
      const any = leastUsed(candidates.filter((candidate) => candidate.namespaceTag === majority));
      if (any !== undefined) return any.slot;
    }
  }
  return (leastUsed(others) ?? leastUsed(unprotected))?.slot ?? NO_SLOT;
}

function readCandidate(memory: MemoryViews, slot: Slot, nowMs: number): EvictionCandidate {
  const { words, doubles } = memory;
  const key = doubles[keyAt(slot)];
  const rule = ruleOfKey(key);
  const durationMs = durationOfKey(key);
  const cells = newCells();
  readCells(memory, slot, cells);
  return {
    slot,
    namespaceTag: words[namespaceAt(slot)],
    isProtected: rule.isProtected(cells.newest, durationMs, words[deniedAt(slot)], nowMs),
    usedShare: rule.usedShare(cells, durationMs, nowMs),
    endMs: rule.endMs(cells.newest, durationMs),
  };
}

/** The namespace that holds more than half of the slots, if there is one. */
function majorityNamespace(candidates: EvictionCandidate[]): number | undefined {
  const counts = new Map<number, number>();
  for (const { namespaceTag } of candidates) {
    const count = (counts.get(namespaceTag) ?? 0) + 1;
    if (count > candidates.length / 2) return namespaceTag;
    counts.set(namespaceTag, count);
  }
  return undefined;
}

function leastUsed(candidates: EvictionCandidate[]): EvictionCandidate | undefined {
  let best: EvictionCandidate | undefined;
  for (const candidate of candidates) {
    const isBetter =
      best === undefined ||
      candidate.usedShare < best.usedShare ||
      (candidate.usedShare === best.usedShare && candidate.endMs < best.endMs);
    if (isBetter) best = candidate;
  }
  return best;
}
