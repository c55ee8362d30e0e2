/**
 * Reading and writing a counter in its slot of a lease table. Called under the lock of its group.
 *
 * A slot stores `total`, which is spent + lease + reserved. So a check that uses the lease is one
 * store, and no thread can die between the lease and the usage. Other stores are ordered so that a
 * thread which dies between two of them leaves no larger lease and no less usage: a lease is
 * lowered first and raised last, and what restricts it is stored before it. Usage may be too high
 * then, by at most the lease. `repairSlot` makes the redundant `held` right again.
 */

import { AMOUNT_MAX } from '../../core/constants.ts';
import type { Identity } from '../../core/hash.ts';
import type { Words } from '../table/layout.ts';
import { hashAt, keyAt, type Slot, tagAt } from '../table/layout.ts';
import { type LeaseState, moveStateToWindow, newLeaseState } from './counter/lease-state.ts';
import {
  boundUntilAt,
  deadlineAt,
  firstSequenceAt,
  heldAt,
  LEASE_FLAG,
  type LeaseViews,
  lastLimitAt,
  leaseAt,
  leaseFlagsAt,
  leaseNamespaceAt,
  lentLimitAt,
  othersAt,
  othersDeductedAt,
  PAUSE_SHIFT,
  pauseOf,
  prefetchBelowOf,
  previousKnownUsageAt,
  previousUsageAt,
  reportedAt,
  reservedAt,
  SUMMARY_COVERS_SLIDING,
  SUMMARY_OTHER_LIMIT,
  sequenceAt,
  summaryAt,
  summaryOf,
  totalAt,
  WORKER_NUMBERS,
  windowNumberAt,
  withoutPrefetch,
  workerNumberAt,
} from './lease-layout.ts';
import { type GcraState, NO_WINDOW } from './scripts/protocol.ts';

const NO_WINDOW_WORD = -1;

/** Of one call. */
const scratch = newLeaseState();

export function readWindow(words: Words, slot: Slot): number {
  const word = words[windowNumberAt(slot)];
  return word === NO_WINDOW_WORD ? NO_WINDOW : word >>> 0;
}

/** Tokens of this machine in the newest window: spent, in the lease, and reserved. */
export function readTotal({ words, details }: LeaseViews, slot: Slot): number {
  return details[totalAt(slot, words[windowNumberAt(slot)] & 1)];
}

export function readSpent(memory: LeaseViews, slot: Slot): number {
  const { doubles, details } = memory;
  return readTotal(memory, slot) - doubles[leaseAt(slot)] - details[reservedAt(slot)];
}

/** Tokens that this machine has spent in the window before the newest, or still reserves there. */
export function readPreviousSpent({ words, details }: LeaseViews, slot: Slot): number {
  return details[totalAt(slot, (words[windowNumberAt(slot)] & 1) ^ 1)];
}

export function readLeaseState(memory: LeaseViews, slot: Slot, into: LeaseState): void {
  const { words, doubles, detailWords, details } = memory;
  const flags = detailWords[leaseFlagsAt(slot)];
  const summary = words[summaryAt(slot)];
  into.window = readWindow(words, slot);
  into.spent = readSpent(memory, slot);
  into.previousSpent = readPreviousSpent(memory, slot);
  into.previousUsage = details[previousUsageAt(slot)];
  into.previousKnownUsage = details[previousKnownUsageAt(slot)];
  into.lease = doubles[leaseAt(slot)];
  into.lentLimit = doubles[lentLimitAt(slot)];
  into.coversSliding = (summary & SUMMARY_COVERS_SLIDING) !== 0;
  into.reserved = details[reservedAt(slot)];
  into.deadlineMs = doubles[deadlineAt(slot)];
  into.others = details[othersAt(slot)];
  into.othersDeducted = details[othersDeductedAt(slot)];
  into.boundUntilMs = details[boundUntilAt(slot)];
  into.sequence = details[sequenceAt(slot)];
  into.firstSequence = details[firstSequenceAt(slot)];
  into.lastLimit = details[lastLimitAt(slot)];
  into.prefetchBelow = prefetchBelowOf(summary);
  into.isStored = (flags & LEASE_FLAG.stored) !== 0;
  into.isPinned = (flags & LEASE_FLAG.pinned) !== 0;
  into.isDoubted = (flags & LEASE_FLAG.doubted) !== 0;
  into.isInherited = (flags & LEASE_FLAG.inherited) !== 0;
  into.pause = pauseOf(flags);
  into.reported = details[reportedAt(slot)];
  into.rate = details[workerNumberAt(slot, 0)];
  into.rateFromMs = details[workerNumberAt(slot, 1)];
  into.rateSpent = details[workerNumberAt(slot, 2)];
}

/**
 * Writes all of a counter but its reserved tokens. While there are some, a new lease serves no more
 * checks than the one they came from, because they may return to it.
 */
export function writeLeaseState(memory: LeaseViews, slot: Slot, from: LeaseState): void {
  const { words, doubles, detailWords, details } = memory;
  details[boundUntilAt(slot)] = 0;
  if (from.window !== readWindow(words, slot)) enterWindow(memory, slot, from);
  const lease = doubles[leaseAt(slot)];
  if (from.lease < lease) doubles[leaseAt(slot)] = from.lease;
  const reserved = details[reservedAt(slot)];
  const hasReserved = reserved !== 0;
  let { lentLimit, coversSliding } = from;
  if (hasReserved) {
    lentLimit = Math.max(lentLimit, doubles[lentLimitAt(slot)]);
    coversSliding &&= (words[summaryAt(slot)] & SUMMARY_COVERS_SLIDING) !== 0;
  }
  detailWords[leaseFlagsAt(slot)] =
    (from.isStored ? LEASE_FLAG.stored : 0) |
    (from.isPinned ? LEASE_FLAG.pinned : 0) |
    (from.isDoubted ? LEASE_FLAG.doubted : 0) |
    (from.isInherited ? LEASE_FLAG.inherited : 0) |
    (from.pause << PAUSE_SHIFT);
  doubles[lentLimitAt(slot)] = lentLimit;
  const total = Math.min(from.spent + from.lease + reserved, AMOUNT_MAX);
  const parity = from.window & 1;
  details[totalAt(slot, parity)] = total;
  details[totalAt(slot, parity ^ 1)] = from.previousSpent;
  details[othersAt(slot)] = from.others;
  details[othersDeductedAt(slot)] = from.othersDeducted;
  doubles[heldAt(slot)] = Math.min(total + from.othersDeducted, AMOUNT_MAX);
  details[previousUsageAt(slot)] = from.previousUsage;
  details[previousKnownUsageAt(slot)] = from.previousKnownUsage;
  details[sequenceAt(slot)] = from.sequence;
  details[firstSequenceAt(slot)] = from.firstSequence;
  details[lastLimitAt(slot)] = from.lastLimit;
  details[reportedAt(slot)] = from.reported;
  details[workerNumberAt(slot, 0)] = from.rate;
  details[workerNumberAt(slot, 1)] = from.rateFromMs;
  details[workerNumberAt(slot, 2)] = from.rateSpent;
  const hasOtherLimit = from.lastLimit !== lentLimit;
  words[summaryAt(slot)] = summaryOf(
    hasOtherLimit,
    coversSliding,
    from.prefetchBelow,
    from.previousUsage,
  );
  doubles[deadlineAt(slot)] = from.deadlineMs;
  doubles[leaseAt(slot)] = from.lease;
  details[boundUntilAt(slot)] = Math.min(from.boundUntilMs, from.deadlineMs);
}

/** Moves a slot to a later window, without an answer: nothing of the new window is known. */
export function moveSlotToWindow(memory: LeaseViews, slot: Slot, window: number): void {
  readLeaseState(memory, slot, scratch);
  moveStateToWindow(scratch, window);
  writeLeaseState(memory, slot, scratch);
}

/** The stores of a write that end the window of the slot, in an order that loses no usage. */
function enterWindow(memory: LeaseViews, slot: Slot, from: LeaseState): void {
  const { words, detailWords, details } = memory;
  dropLease(memory, slot);
  const parity = from.window & 1;
  details[totalAt(slot, parity ^ 1)] = from.previousSpent;
  details[totalAt(slot, parity)] = Math.min(from.spent + from.lease, AMOUNT_MAX);
  detailWords[leaseFlagsAt(slot)] &= ~(LEASE_FLAG.stored | LEASE_FLAG.doubted);
  words[windowNumberAt(slot)] = from.window | 0;
}

/** Removes the lease of an ended window. Tokens that are reserved in it count as spent. */
function dropLease({ words, doubles, details }: LeaseViews, slot: Slot): void {
  details[boundUntilAt(slot)] = 0;
  doubles[leaseAt(slot)] = 0;
  doubles[deadlineAt(slot)] = 0;
  details[reservedAt(slot)] = 0;
  words[summaryAt(slot)] = withoutPrefetch(words[summaryAt(slot)]);
}

/** Writes an unused counter into a slot, over another counter or none. */
export function clearSlot(
  { words, doubles, detailWords, details }: LeaseViews,
  slot: Slot,
  id: Identity,
  namespaceTag: number,
  key: number,
  sequence: number,
): void {
  words[tagAt(slot)] = 0;
  words[hashAt(slot, 0)] = id.h0;
  words[hashAt(slot, 1)] = id.h1;
  words[hashAt(slot, 2)] = id.h2;
  doubles[keyAt(slot)] = key;
  doubles[leaseAt(slot)] = 0;
  doubles[deadlineAt(slot)] = 0;
  doubles[lentLimitAt(slot)] = 0;
  words[windowNumberAt(slot)] = NO_WINDOW_WORD;
  words[summaryAt(slot)] = 0;
  doubles[heldAt(slot)] = 0;
  detailWords[leaseNamespaceAt(slot)] = namespaceTag;
  detailWords[leaseFlagsAt(slot)] = 0;
  details[totalAt(slot, 0)] = 0;
  details[totalAt(slot, 1)] = 0;
  details[reservedAt(slot)] = 0;
  details[othersAt(slot)] = 0;
  details[othersDeductedAt(slot)] = 0;
  details[boundUntilAt(slot)] = 0;
  details[previousUsageAt(slot)] = 0;
  details[previousKnownUsageAt(slot)] = 0;
  details[sequenceAt(slot)] = sequence;
  details[firstSequenceAt(slot)] = sequence + 1;
  details[lastLimitAt(slot)] = 0;
  details[reportedAt(slot)] = 0;
  for (let number = 0; number < WORKER_NUMBERS; number++) {
    details[workerNumberAt(slot, number)] = 0;
  }
  words[tagAt(slot)] = id.h3;
}

/** Adds usage that Redis does not know. The slot is marked as dirty before. */
export function addUnreported(memory: LeaseViews, slot: Slot, cost: number): void {
  const { words, doubles, details } = memory;
  const at = totalAt(slot, words[windowNumberAt(slot)] & 1);
  const total = Math.min(details[at] + cost, AMOUNT_MAX);
  details[at] = total;
  doubles[heldAt(slot)] = Math.min(total + details[othersDeductedAt(slot)], AMOUNT_MAX);
}

/** Adds tokens that Redis has deducted for checks of batches. */
export function addReserved(memory: LeaseViews, slot: Slot, tokens: number): void {
  addUnreported(memory, slot, tokens);
  memory.details[reservedAt(slot)] += tokens;
}

/** Makes the redundant numbers of a slot right, after a thread died while it wrote them. */
export function repairSlot(memory: LeaseViews, slot: Slot): void {
  const { doubles, details } = memory;
  const total = readTotal(memory, slot);
  doubles[heldAt(slot)] = Math.min(total + details[othersDeductedAt(slot)], AMOUNT_MAX);
  summarize(memory, slot);
}

/** Makes the summary of a slot follow its other numbers. */
function summarize({ words, doubles, details }: LeaseViews, slot: Slot): void {
  const summary = words[summaryAt(slot)];
  words[summaryAt(slot)] = summaryOf(
    details[lastLimitAt(slot)] !== doubles[lentLimitAt(slot)],
    (summary & SUMMARY_COVERS_SLIDING) !== 0,
    prefetchBelowOf(summary),
    details[previousUsageAt(slot)],
  );
}

/** Notes the limit of an allowed check. */
export function noteLimit(
  { words, doubles, details }: LeaseViews,
  slot: Slot,
  limit: number,
): void {
  details[lastLimitAt(slot)] = limit;
  const other = limit === doubles[lentLimitAt(slot)] ? 0 : SUMMARY_OTHER_LIMIT;
  words[summaryAt(slot)] = (words[summaryAt(slot)] & ~SUMMARY_OTHER_LIMIT) | other;
}

/** A GCRA bucket as Redis or this machine has left it; `newest` is 0 if it was never used. */
export function readBucket({ details }: LeaseViews, slot: Slot): GcraState {
  return {
    newest: details[totalAt(slot, 0)],
    current: details[totalAt(slot, 1)],
    limit: details[lastLimitAt(slot)],
  };
}

/** A thread that dies meanwhile leaves a bucket that is no fuller than before or after. */
export function writeBucket(
  { details }: LeaseViews,
  slot: Slot,
  { newest, current, limit }: GcraState,
): void {
  details[totalAt(slot, 1)] = 0;
  if (limit > details[lastLimitAt(slot)]) details[lastLimitAt(slot)] = limit;
  details[totalAt(slot, 0)] = newest;
  details[lastLimitAt(slot)] = limit;
  details[totalAt(slot, 1)] = current;
}
