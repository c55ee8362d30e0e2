/**
 * The state of one counter on a machine: its usage, its lease, and the usage that it knows of other
 * machines. It is plain data. A slot of the lease table stores it (`lease-slot.ts`), and acceptors
 * change it there while they decide checks.
 */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import { windowExpiryMs } from '../../windows/window.ts';
import { NO_WINDOW, type TokenCheck } from '../scripts/protocol.ts';

export interface LeaseState {
  /** NO_WINDOW until the first answer or local decision. */
  window: number;
  /** Tokens that this machine has allowed in that window, less refunds. May be negative. */
  spent: number;
  /** The same for the window before, with tokens that are still reserved there. */
  previousSpent: number;
  /** Of the answer: usage of the window before, of all machines, with leases and without. */
  previousUsage: number;
  previousKnownUsage: number;
  lease: number;
  /** The lease serves no check with a lower limit. */
  lentLimit: number;
  /** Whether the lease also serves checks of the sliding window. */
  coversSliding: boolean;
  /**
   * Tokens of pending batches. A message that returns the lease still keeps them: `kept` is at
   * least `reserved`. When the window ends, they are in `previousSpent`.
   */
  reserved: number;
  /** When the lease ends: before the end of the window, monotonic ms. */
  deadlineMs: number;
  /** Usage that is known of all other machines, in this window. */
  others: number;
  /** The same with the tokens of their leases: what is left is counted by it. */
  othersDeducted: number;
  /** Until when `others` may deny a check, monotonic ms. */
  boundUntilMs: number;
  /** Of the last message. The next one has a greater one. */
  sequence: number;
  /** That of the first message of this slot. */
  firstSequence: number;
  lastLimit: number;
  /** A lease below this wants more tokens. The first check that finds one lower clears it. */
  prefetchBelow: number;
  /** Whether Redis has answered that it stores a record of this machine in `window`. */
  isStored: boolean;
  /** A message is under way: the slot is not evicted. A new run of the worker clears it. */
  isPinned: boolean;
  /** Whether tokens of leases that were written off count as used in `window`. */
  isDoubted: boolean;
  /** Whether messages must say that `spent` goes on from that of the process before. */
  isInherited: boolean;
  /** `pauseUntil` the time until which no more tokens are requested; 0: there is no pause. */
  pause: number;
  /** Of `spent`, what messages have reported; infinite while a report is requested or under way. */
  reported: number;
  /** Estimates the rate of the counter: tokens per second, as of a time and a value of `spent`. */
  rate: number;
  rateFromMs: number;
  rateSpent: number;
}

export function newLeaseState(): LeaseState {
  return {
    window: NO_WINDOW,
    spent: 0,
    previousSpent: 0,
    previousUsage: 0,
    previousKnownUsage: 0,
    lease: 0,
    lentLimit: 0,
    coversSliding: false,
    reserved: 0,
    deadlineMs: 0,
    others: 0,
    othersDeducted: 0,
    boundUntilMs: 0,
    sequence: 0,
    firstSequence: 0,
    lastLimit: 0,
    prefetchBelow: 0,
    isStored: false,
    isPinned: false,
    isDoubted: false,
    isInherited: false,
    pause: 0,
    reported: 0,
    rate: 0,
    rateFromMs: 0,
    rateSpent: 0,
  };
}

/** Moves a counter to a later window: what is known of the ended one becomes the window before. */
export function moveStateToWindow(state: LeaseState, window: number): void {
  if (window <= state.window) return;
  const isNext = state.window !== NO_WINDOW && window === state.window + 1;
  const known = isNext ? Math.max(0, state.others + state.spent) : 0;
  const used = isNext ? state.othersDeducted + state.spent + state.reserved : 0;
  state.previousSpent = isNext ? state.spent + state.reserved : 0;
  state.previousUsage = Math.min(Math.max(known, used), AMOUNT_MAX);
  state.previousKnownUsage = Math.min(known, AMOUNT_MAX);
  state.isStored = false;
  state.isDoubted = false;
  state.window = window;
  state.rateSpent -= state.spent;
  state.spent = 0;
  state.reported = 0;
  state.lease = 0;
  state.reserved = 0;
  state.others = 0;
  state.othersDeducted = 0;
  state.deadlineMs = 0;
  state.boundUntilMs = 0;
  state.prefetchBelow = 0;
}

/**
 * Moves a counter back from a window that Redis has not reached, and of which it has no record: a
 * machine whose clock is ahead has decided there alone, before the first answer. Redis then counts
 * this usage in the present window, beside that of the process before.
 */
export function returnToPresent(state: LeaseState, window: number): void {
  if (state.isStored || state.window <= window) return;
  state.window = window;
  state.isInherited = false;
}

/**
 * Adds tokens to a lease. The two together serve what both may serve.
 * @param coversSliding whether the answer took what the window before carries over into account
 */
export function addToLease(
  state: LeaseState,
  lent: number,
  lentLimit: number,
  coversSliding: boolean,
): void {
  if (lent <= 0) return;
  const isAlone = state.lease === 0;
  state.lentLimit = isAlone ? lentLimit : Math.max(state.lentLimit, lentLimit);
  state.coversSliding = coversSliding && (isAlone || state.coversSliding);
  state.lease += lent;
}

/** Reserves tokens of an answer. They may return to the lease, which then serves what both may. */
export function reserve(state: LeaseState, { cost, limit, isSliding }: TokenCheck): void {
  const isAlone = state.lease === 0 && state.reserved === 0;
  state.lentLimit = isAlone ? limit : Math.max(state.lentLimit, limit);
  state.coversSliding = isSliding && (isAlone || state.coversSliding);
  state.reserved += cost;
}

/** Whether Redis may count by this state, so that it must be reported after a loss. */
export function mustReport(
  { window, isPinned }: LeaseState,
  durationMs: number,
  redisMs: number,
): boolean {
  // The answer to its first message may come from the server that is gone, and is awaited.
  if (window === NO_WINDOW) return isPinned;
  return windowExpiryMs(window, durationMs) > redisMs;
}

/** No check is denied by what was known of a counter, which was reset. */
export function forgetUsage(state: LeaseState): void {
  state.boundUntilMs = 0;
  // A message with a limit shows that the counter was used, and a reset removes it.
  state.lastLimit = 0;
}

/** Takes the lease away. @returns how many tokens it had */
export function dropLease(state: LeaseState): number {
  const { lease } = state;
  state.lease = 0;
  state.boundUntilMs = 0;
  return lease;
}
