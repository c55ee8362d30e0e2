/**
 * Which slot a new counter gets in a lease table. Called under the lock of its group, off the hot
 * path: a check of a counter without a slot waits for Redis.
 *
 * Nothing is lost when a counter whose usage Redis knows is evicted: its next check costs a token
 * request. The order:
 *
 *   1. A free slot: an empty one, or one whose window and the next one have ended.
 *   2. A counter whose window has ended.
 *   3. A counter that does not deny checks.
 *   4. Any other. Of each kind, the one whose window ends first.
 *   5. None: the table is full for this counter.
 *
 * In 2-4 no counter is chosen with a message under way, with usage that Redis does not know, or
 * with a lease or reserved tokens in a window that has not ended. A namespace that holds more than
 * half of the slots loses its own counters first.
 */

import { chooseEviction, type EvictionCandidate, NEVER_EVICTED } from '../table/eviction.ts';
import { chooseFreeSlot } from '../table/free-slot.ts';
import { type Location, slotsOf } from '../table/group.ts';
import type { Lock } from '../table/layout.ts';
import { BUCKET_SLOTS, keyAt, NO_SLOT, type Slot, slotAt, tagAt } from '../table/layout.ts';
import { endMs, isExpired, isGcraKey } from '../windows/registry.ts';
import type { DirtySlots } from './dirty-slots.ts';
import type { EngineState } from './engine-state.ts';
import {
  boundUntilAt,
  LEASE_FLAG,
  type LeaseViews,
  leaseAt,
  leaseFlagsAt,
  leaseNamespaceAt,
  reservedAt,
  totalAt,
} from './lease-layout.ts';
import { readWindow } from './lease-slot.ts';
import { NO_WINDOW } from './scripts/protocol.ts';

export interface LeaseInsertion {
  /** NO_SLOT: the table is full for this counter. */
  slot: Slot;
  /** Whether a live counter is evicted. */
  evicts: boolean;
}

interface LeaseCandidate extends EvictionCandidate {
  /** Its place in the order above: 0 for 2, 2 for 4. */
  rank: number;
}

const RANKS = 3;

export function findInsertion(
  memory: LeaseViews,
  at: Location,
  nowMs: number,
  state: EngineState,
  dirty: DirtySlots,
): LeaseInsertion {
  const isFree = (slot: Slot) => isUnused(memory, slot, nowMs, state, at.lock, dirty);
  const free = chooseFreeSlot(at, freeSlots(at.bucketA, isFree), freeSlots(at.bucketB, isFree));
  if (free !== NO_SLOT) return { slot: free, evicts: false };
  const candidates = slotsOf(at).map((slot) => {
    return readCandidate(memory, slot, nowMs, state, at.lock, dirty);
  });
  const slot = chooseEviction(candidates, ({ rank, namespaceTag }, majority) => {
    return namespaceTag === majority ? rank : rank + RANKS;
  });
  return { slot, evicts: slot !== NO_SLOT };
}

/** A bit for each free slot of a bucket. */
function freeSlots(bucket: Slot, isFree: (slot: Slot) => boolean): number {
  let free = 0;
  for (let i = 0; i < BUCKET_SLOTS; i++) free |= Number(isFree(slotAt(bucket, i))) << i;
  return free;
}

/** Whether a slot is empty, or nothing that it holds matters any more. */
function isUnused(
  memory: LeaseViews,
  slot: Slot,
  nowMs: number,
  state: EngineState,
  lock: Lock,
  dirty: DirtySlots,
): boolean {
  const { words, doubles, detailWords, details } = memory;
  const tag = words[tagAt(slot)];
  if (tag === 0) return true;
  if ((detailWords[leaseFlagsAt(slot)] & LEASE_FLAG.pinned) !== 0) return false;
  const key = doubles[keyAt(slot)];
  const window = readWindow(words, slot);
  const redisMs = state.redisMs(tag, nowMs);
  // Tokens of a bucket that Redis does not know matter as long as the bucket is not full.
  if (isGcraKey(key)) {
    return isExpired(key, details[totalAt(slot, 0)], redisMs);
  }
  if (window === NO_WINDOW) return !dirty.has(lock, slot);
  return isExpired(key, window, redisMs);
}

function readCandidate(
  memory: LeaseViews,
  slot: Slot,
  nowMs: number,
  state: EngineState,
  lock: Lock,
  dirty: DirtySlots,
): LeaseCandidate {
  const { words, doubles, detailWords, details } = memory;
  const key = doubles[keyAt(slot)];
  const isBucket = isGcraKey(key);
  const ends = endMs(key, isBucket ? details[totalAt(slot, 0)] : readWindow(words, slot));
  const namespaceTag = detailWords[leaseNamespaceAt(slot)];
  const redisMs = state.redisMs(words[tagAt(slot)], nowMs);
  const hasEnded = ends <= redisMs;
  const isPinned = (detailWords[leaseFlagsAt(slot)] & LEASE_FLAG.pinned) !== 0;
  const hasTokens = doubles[leaseAt(slot)] > 0 || details[reservedAt(slot)] !== 0;
  // Tokens of a lease of an ended window stay counted in Redis.
  const mustStay = isPinned || dirty.has(lock, slot) || (hasTokens && !hasEnded);
  const denies = details[boundUntilAt(slot)] > nowMs;
  const rank = mustStay ? NEVER_EVICTED : hasEnded ? 0 : denies ? 2 : 1;
  // Nothing is lost: Redis knows the usage.
  return { slot, namespaceTag, usedShare: 0, rank, endMs: ends };
}
