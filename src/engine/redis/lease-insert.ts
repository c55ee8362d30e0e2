/**
 * Which slot a new counter gets in a lease table. Called under the lock of its group, off the hot
 * path: a check of a counter without a slot waits for Redis.
 *
 * Nothing is lost when a counter whose usage Redis knows is evicted: its next check costs a token
 * request. The order:
 *
 *   1. An empty slot, or one whose window and the next one have ended: the preferred slots first,
 *      else one in the bucket with more room.
 *   2. A counter whose window has ended.
 *   3. A counter that does not deny checks.
 *   4. Any other. Of each kind, the one whose window ends first.
 *   5. None: the table is full for this counter.
 *
 * In 2-4 no counter is chosen with a message under way, with usage that Redis does not know, or
 * with a lease or reserved tokens in a window that has not ended. A namespace that holds more than
 * half of the slots loses its own counters first.
 */

import { RULE } from '../../core/window-rules.ts';
import type { Lock } from '../memory/layout.ts';
import { durationOfKey, ruleOfKey } from '../windows/registry.ts';
import type { EngineState } from './engine-state.ts';
import {
  boundUntilAt,
  LEASE_FLAG,
  type LeaseSlot,
  type LeaseViews,
  leaseAt,
  leaseFlagsAt,
  leaseKeyAt,
  leaseNamespaceAt,
  leaseTagAt,
  NO_LEASE_SLOT,
  reservedAt,
  totalAt,
} from './lease-layout.ts';
import { type DirtySlots, type LeaseLocation, slotsOf } from './lease-location.ts';
import { readWindow } from './lease-slot.ts';
import { NO_WINDOW } from './scripts/protocol.ts';

export interface LeaseInsertion {
  /** NO_LEASE_SLOT: the table is full for this counter. */
  slot: LeaseSlot;
  /** Whether a live counter is evicted. */
  evicts: boolean;
}

interface Candidate {
  slot: LeaseSlot;
  namespaceTag: number;
  /** 0 for the best of the order above that are evictions; 3 for a slot that must stay. */
  rank: number;
  endMs: number;
}

const MUST_STAY = 3;

export function findInsertion(
  memory: LeaseViews,
  at: LeaseLocation,
  nowMs: number,
  state: EngineState,
  dirty: DirtySlots,
): LeaseInsertion {
  const isFree = (slot: LeaseSlot) => isUnused(memory, slot, nowMs, state, at.lock, dirty);
  const free = findFree(at, isFree);
  if (free !== NO_LEASE_SLOT) return { slot: free, evicts: false };
  const candidates = [...slotsOf(at.bucketA), ...slotsOf(at.bucketB)].map((slot) => {
    return readCandidate(memory, slot, nowMs, state, at.lock, dirty);
  });
  const evictable = candidates.filter(({ rank }) => rank < MUST_STAY);
  const majority = majorityNamespace(candidates);
  const best =
    first(evictable.filter(({ namespaceTag }) => namespaceTag === majority)) ?? first(evictable);
  return { slot: best?.slot ?? NO_LEASE_SLOT, evicts: best !== undefined };
}

function findFree(at: LeaseLocation, isFree: (slot: LeaseSlot) => boolean): LeaseSlot {
  if (isFree(at.preferredSlotA)) return at.preferredSlotA;
  if (isFree(at.preferredSlotB)) return at.preferredSlotB;
  const freeA = slotsOf(at.bucketA).filter(isFree);
  const freeB = slotsOf(at.bucketB).filter(isFree);
  return (freeB.length > freeA.length ? freeB[0] : freeA[0]) ?? NO_LEASE_SLOT;
}

/** Whether a slot is empty, or nothing that it holds matters any more. */
function isUnused(
  memory: LeaseViews,
  slot: LeaseSlot,
  nowMs: number,
  state: EngineState,
  lock: Lock,
  dirty: DirtySlots,
): boolean {
  const { words, doubles, detailWords, details } = memory;
  const tag = words[leaseTagAt(slot)];
  if (tag === 0) return true;
  if ((detailWords[leaseFlagsAt(slot)] & LEASE_FLAG.pinned) !== 0) return false;
  const key = doubles[leaseKeyAt(slot)];
  const window = readWindow(words, slot);
  const redisMs = state.redisMs(tag, nowMs);
  // Tokens of a bucket that Redis does not know matter as long as the bucket is not full.
  if (ruleOfKey(key).counterRule === RULE.gcra) return details[totalAt(slot, 0)] <= redisMs;
  if (window === NO_WINDOW) return !dirty.has(lock, slot);
  return (window + 2) * durationOfKey(key) <= redisMs;
}

function readCandidate(
  memory: LeaseViews,
  slot: LeaseSlot,
  nowMs: number,
  state: EngineState,
  lock: Lock,
  dirty: DirtySlots,
): Candidate {
  const { words, doubles, detailWords, details } = memory;
  const key = doubles[leaseKeyAt(slot)];
  const isBucket = ruleOfKey(key).counterRule === RULE.gcra;
  const endMs = isBucket
    ? details[totalAt(slot, 0)]
    : (readWindow(words, slot) + 1) * durationOfKey(key);
  const namespaceTag = detailWords[leaseNamespaceAt(slot)];
  const redisMs = state.redisMs(words[leaseTagAt(slot)], nowMs);
  const hasEnded = endMs <= redisMs;
  const isPinned = (detailWords[leaseFlagsAt(slot)] & LEASE_FLAG.pinned) !== 0;
  const hasTokens = doubles[leaseAt(slot)] > 0 || details[reservedAt(slot)] !== 0;
  // Tokens of a lease of an ended window stay counted in Redis.
  const mustStay = isPinned || dirty.has(lock, slot) || (hasTokens && !hasEnded);
  const denies = details[boundUntilAt(slot)] > nowMs;
  const rank = mustStay ? MUST_STAY : hasEnded ? 0 : denies ? 2 : 1;
  return { slot, namespaceTag, rank, endMs };
}

/** The namespace that holds more than half of the slots, if there is one. */
function majorityNamespace(candidates: readonly Candidate[]): number | undefined {
  const counts = new Map<number, number>();
  for (const { namespaceTag } of candidates) {
    const count = (counts.get(namespaceTag) ?? 0) + 1;
    if (count > candidates.length / 2) return namespaceTag;
    counts.set(namespaceTag, count);
  }
  return undefined;
}

function first(candidates: readonly Candidate[]): Candidate | undefined {
  return candidates.toSorted((a, b) => a.rank - b.rank || a.endMs - b.endMs)[0];
}
