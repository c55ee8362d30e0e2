/**
 * Which live counter is evicted for a new one when both of its buckets are full of live counters.
 * The caller holds the lock of the group.
 *
 * A counter is protected while it has denied a check and its usage still counts: an identifier that
 * is being denied does not get a new counter. The order:
 *
 *   1. Of a namespace that holds more than half of the slots: an unprotected counter.
 *   2. Of such a namespace, for a new counter of another one: a protected counter.
 *   3. An unprotected counter of any namespace.
 *   4. None: the table is full for this new counter.
 *
 * Counters of the new counter's own identity are the last of the unprotected: of several windows of
 * one identifier, one would evict the other with every request, and none would reach its limit.
 */

import type { Identity } from '../../core/hash.ts';
import { chooseEviction, type EvictionCandidate, NEVER_EVICTED } from '../table/eviction.ts';
import { type Location, slotsOf } from '../table/group.ts';
import { keyAt, type MemoryViews, type Slot } from '../table/layout.ts';
import { isSlotOf } from '../table/slot.ts';
import { durationOfKey, ruleOfKey } from '../windows/registry.ts';
import { newCells } from '../windows/rule.ts';
import { deniedAt, namespaceAt } from './layout.ts';
import { readCells } from './slot.ts';

interface CounterCandidate extends EvictionCandidate {
  isProtected: boolean;
}

/**
 * @param namespaceTag of the new counter
 * @returns one of the slots in two full buckets, or NO_SLOT
 */
export function findEviction(
  memory: MemoryViews,
  at: Location,
  id: Identity,
  namespaceTag: number,
  nowMs: number,
): Slot {
  const candidates = slotsOf(at).map((slot) => readCandidate(memory, slot, nowMs));
  return chooseEviction(candidates, (candidate, majority) => {
    const isOfMajority = candidate.namespaceTag === majority;
    const isOwn = isSlotOf(memory, candidate.slot, id);
    if (isOfMajority && !candidate.isProtected && !isOwn) return 0;
    if (isOfMajority && majority !== namespaceTag) return 1;
    if (candidate.isProtected) return NEVER_EVICTED;
    return isOwn ? 3 : 2;
  });
}

function readCandidate(memory: MemoryViews, slot: Slot, nowMs: number): CounterCandidate {
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
