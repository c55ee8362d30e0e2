/**
 * Composes the messages about a counter, and applies the answers of Redis to its state. Pure
 * functions of that state; the caller holds the lock of its slot.
 *
 * A message that carries checks takes the whole lease with it, so that Redis decides with all
 * tokens. An answer is used only if no later message was sent: then it may be wrong about the
 * lease, and the answer to the later message will return what it had granted.
 */

import type { Identity } from '../../core/hash.ts';
import { pauseFlags } from './lease-layout.ts';
import { addToLease, type LeaseState, moveStateToWindow } from './lease-slot.ts';
import type { CounterAnswer, CounterMessage, TokenCheck } from './scripts/protocol.ts';

/** Clocks of two machines differ in their rate by at most this. */
const CLOCK_DRIFT = 0.0005;
const BOUND_MIN_MS = 1_000;
const BOUND_MAX_MS = 5_000;
const BOUND_SHARE = 1 / 12;
/** The time over which the rate of a counter is averaged, and for which a lease shall suffice. */
const LEASE_MIN_MS = 100;
const LEASE_MAX_MS = 15_000;
const LEASE_SHARE = 1 / 4;
/** More tokens are wanted when the lease suffices for this time, if checks are so frequent. */
const PREFETCH_MS = 2.5;
const PREFETCH_RATE_MIN = 100;

/** Tokens of a sliding window that is used up, and shared, are returned after this time. */
export const SHARED_LEASE_MS = 1_000;

/** What a message is for. */
export interface Purpose {
  checks: readonly TokenCheck[];
  /** Whether the lease is returned, or needed by the checks. */
  takesLease: boolean;
  wantsLease: boolean;
  isSliding: boolean;
  /** The number of the request for a report that is answered; 0 for none. */
  report: number;
  /** See `CounterMessage.inherits`. */
  inherits: number;
  /** Whether there may be usage of the window before that Redis does not know. */
  hasPrevious: boolean;
  recalls: boolean;
  refund: number;
  refundWindow: number;
}

/** Changes the state as the message says, before it is sent. */
export function composeMessage(
  identity: Identity,
  durationMs: number,
  state: LeaseState,
  purpose: Purpose,
  nowMs: number,
): CounterMessage {
  updateRate(state, durationMs, nowMs);
  if (purpose.takesLease) state.lease = 0;
  // The monotonic time makes it greater than those of an earlier slot, and of an earlier thread.
  state.sequence = Math.max(state.sequence + 1, Math.floor(nowMs * 1_000));
  state.reported = Number.POSITIVE_INFINITY;
  return {
    identity,
    durationMs,
    window: state.window,
    spent: state.spent,
    previousSpent: state.previousSpent,
    hasPrevious: purpose.hasPrevious,
    sequence: state.sequence,
    kept: state.lease + state.reserved,
    rate: state.rate,
    lastLimit: state.lastLimit,
    wantsLease: purpose.wantsLease,
    isSliding: purpose.isSliding,
    firstSequence: state.firstSequence,
    isStored: state.isStored,
    others: state.others,
    previousKnown: state.previousKnownUse,
    report: purpose.report,
    inherits: purpose.inherits,
    recalls: purpose.recalls,
    refund: purpose.refund,
    refundWindow: purpose.refundWindow,
    checks: purpose.checks,
  };
}

export interface AnswerTimes {
  /** When the message was sent, and when the answer came: monotonic ms. */
  sentMs: number;
  nowMs: number;
}

/**
 * Takes over all of an answer but the costs of its checks.
 * @param usesLeases whether later checks may be decided without Redis
 * @returns false: the answer is stale, and nothing has changed
 */
export function applyAnswer(
  state: LeaseState,
  message: CounterMessage,
  answer: CounterAnswer,
  { sentMs, nowMs }: AnswerTimes,
  usesLeases: boolean,
): boolean {
  if (answer.sequence !== state.sequence || answer.window < state.window) return false;
  const { durationMs } = message;
  // A lease that is kept ends no later than before.
  let deadlineMs = sentMs + (answer.leftUs / 1_000) * (1 - CLOCK_DRIFT);
  if (answer.window === state.window && state.lease > 0) {
    deadlineMs = Math.min(deadlineMs, state.deadlineMs);
  }
  if (answer.window > state.window) {
    const { spent } = state;
    moveStateToWindow(state, answer.window);
    state.rateSpent -= spent;
  }
  state.isStored = answer.isStored;
  state.isDoubted = answer.wasWrittenOff;
  state.others = answer.others;
  state.othersDeducted = answer.othersDeducted;
  if (readsPrevious(message, answer)) {
    state.previousUse = answer.previousUse;
    state.previousKnownUse = answer.previousKnownUse;
  } else {
    // Other machines may have used some: not 0, so that this lease serves no sliding windows.
    state.previousUse = Math.max(1, state.previousUse);
  }
  state.reported = answer.window === message.window ? message.spent : 0;
  state.spent -= answer.refunded;
  state.deadlineMs = deadlineMs;
  if (usesLeases) {
    addToLease(state, answer.lent, answer.lentLimit, message.isSliding);
    state.pause = 0;
    if (answer.pauseMs > 0) {
      if (state.lease === 0) state.lentLimit = answer.lentLimit;
      // Other machines want what this one does not use.
      else state.deadlineMs = Math.min(state.deadlineMs, nowMs + SHARED_LEASE_MS);
      const isOfLimit = state.reserved === 0 && state.lentLimit <= answer.lentLimit;
      if (isOfLimit) state.pause = pauseFlags(nowMs + answer.pauseMs);
    }
    const boundMs = Math.max(BOUND_MIN_MS, Math.min(durationMs * BOUND_SHARE, BOUND_MAX_MS));
    state.boundUntilMs = answer.mayDeny ? nowMs + boundMs : 0;
    const isFrequent = state.rate >= PREFETCH_RATE_MIN;
    state.prefetchBelow = isFrequent ? (state.rate * PREFETCH_MS) / 1_000 : 0;
  }
  return true;
}

/** Whether an answer shows the usage of the window before. */
function readsPrevious(message: CounterMessage, answer: CounterAnswer): boolean {
  const { isSliding, hasPrevious, checks, window, inherits } = message;
  if (isSliding || hasPrevious || inherits > 0 || window === answer.window - 1) return true;
  return checks.some((check) => check.isSliding);
}

/**
 * Whether Redis must be told of usage in the window that has just ended, because it was allowed
 * after the message was composed. Only sliding windows look at it.
 */
export function hasLateUsage(message: CounterMessage, state: LeaseState): boolean {
  if (!message.isSliding || state.window !== message.window + 1) return false;
  return state.previousSpent !== message.spent;
}

function updateRate(state: LeaseState, durationMs: number, nowMs: number): void {
  const passedMs = nowMs - state.rateFromMs;
  if (state.rateFromMs !== 0 && passedMs > 0) {
    const overMs = Math.max(LEASE_MIN_MS, Math.min(durationMs * LEASE_SHARE, LEASE_MAX_MS));
    const weight = 1 - Math.exp(-passedMs / overMs);
    const perS = (Math.max(0, state.spent - state.rateSpent) / passedMs) * 1_000;
    state.rate += weight * (perS - state.rate);
  }
  state.rateFromMs = nowMs;
  state.rateSpent = state.spent;
}
