/**
 * Takes the answer of Redis to the message of a counter: brings its state up to date, decides the
 * checks of the message, and keeps those that cannot be decided yet.
 *
 *   no answer       the fate of the message is unknown. What it took from the lease stays away, and
 *                   the next message settles the account. Its checks are sent again.
 *   a stale answer  Redis knows a later message, or the slot is in a later window. Nothing is taken
 *                   from the answer, and the next message gives back what it has granted. Its
 *                   checks are sent again.
 *   denied without  the check is parked: another machine may hold unspent tokens, which Redis
 *   proof           recalls. It is sent again after a wake-up, and every RETRY_MS, and denied after
 *                   PARK_MS.
 *   usage is lost   in Redis: the checks are parked until the machines that Redis waits for have
 *                   reported the counter, for `recoveryParkMs` at most. So has this one: its
 *                   report is sent at once, together with its checks.
 *
 * Redis decides nothing twice: a check whose answer is lost is in no count of this machine, and
 * the next message gives its tokens back.
 */

import { AMOUNT_MAX } from '../../../core/constants.ts';
import { windowOf } from '../../windows/window.ts';
import {
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  SERVED,
} from '../scripts/protocol.ts';
import {
  BOUND_MAX_MS,
  BOUND_MIN_MS,
  BOUND_SHARE,
  CLOCK_DRIFT,
  PARK_MS,
  PREFETCH_MS,
  PREFETCH_RATE_MIN,
  RETRY_MS,
  SHARED_LEASE_MS,
  UNKNOWN_RETRY_MS,
} from '../scripts/protocol-constants.ts';
import type { Correction, Counter, SentMessage, WaitingCheck } from './counter.ts';
import { type CheckDecision, decisionOf, fencedDecision } from './decision.ts';
import {
  addToLease,
  type LeaseState,
  moveStateToWindow,
  reserve,
  returnToPresent,
} from './lease-state.ts';
import { pauseUntil } from './pause.ts';

export interface AnswerContext<Check> {
  /** When the message was sent, and the present: monotonic ms. */
  sentMs: number;
  nowMs: number;
  /** The present by the clock of Redis, as far as known: Unix time, ms. */
  redisMs: number;
  hasSlot: boolean;
  /** Whether checks may be decided from tokens taken in advance. */
  usesLeases: boolean;
  /** How long a check waits until usage that Redis has lost is reported, before it is denied. */
  recoveryParkMs: number;
  /** @returns false: the acceptor has decided the check by itself, and expects no decision */
  claim: (check: Check) => boolean;
  /** Whether `claim` would claim a check. */
  isOpen: (check: Check) => boolean;
}

/** What follows from an answer, for the caller to do. */
export interface AnswerResult<Check> {
  /** Whether Redis has done what the message says. */
  isDone: boolean;
  /** The answer, unless there is none or it is stale. */
  answer: CounterAnswer | undefined;
  decisions: [check: Check, decision: CheckDecision][];
  /** Tokens of the answer that are now reserved for checks of batches. */
  reserved: number;
  /** Whether the slot has usage or tokens that the next message has to report. */
  isDirty: boolean;
  /** Denials although usage is lost in Redis, and those for which other machines held tokens. */
  recoveryDenials: number;
  unprovenDenials: number;
  /** Tokens that were allowed although usage may be missing. */
  openedTokens: number;
  /** Whether checks wait for reports of a counter that Redis has requested before. */
  isUnknown: boolean;
  /** When a lease for sliding windows ends that is new or ends sooner, monotonic ms; 0: none. */
  slidingLeaseEndMs: number;
  /** Whether pending batches kept tokens of a returned lease, which are to be returned later. */
  returnsLater: boolean;
}

/**
 * Ends the message under way.
 * @param answer undefined: there is none
 */
export function takeAnswer<C extends WaitingCheck, R extends Correction>(
  counter: Counter<C, R>,
  state: LeaseState,
  answer: CounterAnswer | undefined,
  context: AnswerContext<C>,
): AnswerResult<C> {
  const { sent } = counter;
  if (sent === undefined) throw new Error('no message is under way');
  const result = newResult<C>();
  counter.sent = undefined;
  state.isPinned = false;
  const { done, retryRefund, recovering } = MESSAGE_STATUS;
  const mayApply = answer?.status === done || answer?.status === retryRefund;
  result.isDone = mayApply && applyAnswer(state, sent.message, answer, context);
  result.answer = mayApply && !result.isDone ? undefined : answer;
  if (mayApply && result.isDone) takeDone(counter, state, sent, answer, context, result);
  else {
    const isFenced = answer?.status === recovering;
    if (isFenced) returnToPresent(state, windowOf(context.redisMs, counter.durationMs));
    result.isDirty = true;
    sendAgain(counter, sent.checks, isFenced, context, result);
  }
  // A recall that the message had not answered yet, because Redis sent it afterwards.
  const isUnsettled = !result.isDone || state.lease > 0 || state.spent !== sent.message.spent;
  if (counter.isRecalled && isUnsettled) counter.mustReturn = true;
  counter.isRecalled = false;
  counter.isWoken = false;
  return result;
}

function newResult<C>(): AnswerResult<C> {
  return {
    isDone: false,
    answer: undefined,
    decisions: [],
    reserved: 0,
    isDirty: false,
    recoveryDenials: 0,
    unprovenDenials: 0,
    openedTokens: 0,
    isUnknown: false,
    slidingLeaseEndMs: 0,
    returnsLater: false,
  };
}

function takeDone<C extends WaitingCheck, R extends Correction>(
  counter: Counter<C, R>,
  state: LeaseState,
  { message, checks, isReturn }: SentMessage<C, R>,
  answer: CounterAnswer,
  context: AnswerContext<C>,
  result: AnswerResult<C>,
): void {
  const { nowMs } = context;
  // Until then, Redis may lose the record that was taken over, and have the earlier one again.
  if (answer.window > message.window) state.isInherited = false;
  // The reports of machines that are well come sooner.
  result.isUnknown = answer.isUnknown && checks.some(({ parkedMs }) => parkedMs !== 0);
  result.isDirty = hasLateUsage(message, state);
  const unproven = decideChecks(state, checks, answer, context, result);
  if (counter.isWoken) endDenials(state, nowMs);
  if (answer.report !== 0) {
    counter.report = answer.report;
    counter.retryMs = nowMs;
  }
  if (answer.isMissing) result.openedTokens += answer.lent;
  const isNewDeadline = answer.lent > 0 || (answer.pauseMs > 0 && state.lease > 0);
  if (message.isSliding && isNewDeadline) result.slidingLeaseEndMs = state.deadlineMs;
  park(counter, unproven, answer.isUnknown, context);
  result.returnsLater = isReturn && message.kept > 0;
}

/** @returns the checks that cannot be decided yet */
function decideChecks<C extends WaitingCheck>(
  state: LeaseState,
  checks: readonly C[],
  answer: CounterAnswer,
  context: AnswerContext<C>,
  result: AnswerResult<C>,
): C[] {
  const { claim, hasSlot } = context;
  const unproven: C[] = [];
  for (const [at, waiting] of checks.entries()) {
    const served = answer.served[at];
    const { check } = waiting;
    if (served === SERVED.unproven && !isParkingOver(waiting, answer.isUnknown, context)) {
      unproven.push(waiting);
      continue;
    }
    if (!claim(waiting)) {
      // Its tokens go back with the next message.
      result.isDirty ||= served === SERVED.allowed;
      continue;
    }
    if (served === SERVED.allowed) {
      if (waiting.isReserve && hasSlot) {
        reserve(state, check);
        result.reserved += check.cost;
      } else state.spent += check.cost;
      if (check.cost > 0) state.lastLimit = check.limit;
      if (answer.isMissing) result.openedTokens += check.cost;
    } else if (check.countsDenied) state.spent += check.cost;
    if (served === SERVED.unproven) {
      // Redis has not counted it.
      result.isDirty ||= check.countsDenied;
      if (answer.isUnknown) result.recoveryDenials++;
      else result.unprovenDenials++;
    }
    const { countsDenied } = check;
    const decision = decisionOf(state, answer, waiting.parameters, served, countsDenied);
    result.decisions.push([waiting, decision]);
  }
  return unproven;
}

/** Sends the checks again, or denies those for which Redis has been behind for too long. */
function sendAgain<C extends WaitingCheck, R extends Correction>(
  counter: Counter<C, R>,
  checks: readonly C[],
  isFenced: boolean,
  context: AnswerContext<C>,
  result: AnswerResult<C>,
): void {
  const { nowMs, redisMs, claim, isOpen } = context;
  const again = checks.filter((waiting) => {
    if (!isFenced) return isOpen(waiting);
    if (!isParkingOver(waiting, false, context)) {
      if (waiting.parkedMs === 0) waiting.parkedMs = nowMs;
      return isOpen(waiting);
    }
    if (claim(waiting)) {
      result.decisions.push([waiting, fencedDecision(waiting.parameters, redisMs)]);
      result.recoveryDenials++;
    }
    return false;
  });
  counter.waiting.unshift(...again);
  counter.retryMs = nowMs + RETRY_MS;
}

/** Whether a check without a proven decision has waited long enough. */
function isParkingOver(
  { parkedMs, queuedMs }: WaitingCheck,
  isUnknown: boolean,
  { nowMs, recoveryParkMs }: AnswerContext<never>,
): boolean {
  if (isUnknown) return nowMs - queuedMs >= recoveryParkMs;
  return parkedMs !== 0 && nowMs - parkedMs >= PARK_MS;
}

/** Keeps checks that cannot be decided yet. */
function park<C extends WaitingCheck, R extends Correction>(
  counter: Counter<C, R>,
  checks: readonly C[],
  isUnknown: boolean,
  { nowMs, recoveryParkMs }: AnswerContext<C>,
): void {
  for (const waiting of checks) {
    if (waiting.parkedMs === 0) waiting.parkedMs = nowMs;
    const endMs = isUnknown ? waiting.queuedMs + recoveryParkMs : waiting.parkedMs + PARK_MS;
    const isLong = isUnknown && nowMs - waiting.parkedMs > UNKNOWN_RETRY_MS;
    const retryMs = nowMs + (isLong ? UNKNOWN_RETRY_MS : RETRY_MS);
    counter.retryMs = Math.min(counter.retryMs, retryMs, Math.max(nowMs, endMs));
  }
  counter.waiting.unshift(...checks);
}

/**
 * The known usage has fallen: checks that it denied may fit now. After many refunds in a row a
 * message is not sent for each of them, but every RETRY_MS.
 */
export function endDenials(state: LeaseState, nowMs: number): void {
  state.boundUntilMs = Math.min(state.boundUntilMs, nowMs + RETRY_MS);
}

/**
 * Takes over all of an answer but the costs of its checks.
 * @returns false: the answer is stale, and nothing has changed
 */
function applyAnswer(
  state: LeaseState,
  message: CounterMessage,
  answer: CounterAnswer,
  { sentMs, nowMs, usesLeases }: AnswerContext<never>,
): boolean {
  if (answer.sequence !== state.sequence || answer.window < state.window) return false;
  const { durationMs } = message;
  // A lease that is kept ends no later than before.
  let deadlineMs = sentMs + (answer.leftUs / 1_000) * (1 - CLOCK_DRIFT);
  if (answer.window === state.window && state.lease > 0) {
    deadlineMs = Math.min(deadlineMs, state.deadlineMs);
  }
  moveStateToWindow(state, answer.window);
  state.isStored = answer.isStored;
  state.isDoubted = answer.wasWrittenOff;
  state.others = answer.others;
  state.othersDeducted = answer.othersDeducted;
  if (readsPrevious(message, answer)) {
    state.previousUsage = answer.previousUsage;
    state.previousKnownUsage = answer.previousKnownUsage;
  } else {
    // Other machines may have used some: not 0, so that this lease serves no sliding windows.
    state.previousUsage = Math.max(1, state.previousUsage);
  }
  state.reported = answer.window === message.window ? message.spent : 0;
  state.spent = Math.max(state.spent - answer.refunded, -AMOUNT_MAX);
  state.deadlineMs = deadlineMs;
  if (!usesLeases) return true;
  addToLease(state, answer.lent, answer.lentLimit, message.isSliding);
  state.pause = 0;
  if (answer.pauseMs > 0) {
    if (state.lease === 0) state.lentLimit = answer.lentLimit;
    // Other machines want what this one does not use.
    else state.deadlineMs = Math.min(state.deadlineMs, nowMs + SHARED_LEASE_MS);
    const isOfLimit = state.reserved === 0 && state.lentLimit <= answer.lentLimit;
    if (isOfLimit) state.pause = pauseUntil(nowMs + answer.pauseMs);
  }
  const boundMs = Math.max(BOUND_MIN_MS, Math.min(durationMs * BOUND_SHARE, BOUND_MAX_MS));
  state.boundUntilMs = answer.mayDeny ? nowMs + boundMs : 0;
  const isFrequent = state.rate >= PREFETCH_RATE_MIN;
  state.prefetchBelow = isFrequent ? (state.rate * PREFETCH_MS) / 1_000 : 0;
  return true;
}

/** Whether an answer shows the usage of the window before. */
function readsPrevious(message: CounterMessage, answer: CounterAnswer): boolean {
  const { isSliding, hasPrevious, checks, window, inherits } = message;
  if (isSliding || hasPrevious || inherits > 0 || window === answer.window - 1) return true;
  return checks.some((check) => check.isSliding);
}

/**
 * Whether the window has ended, and usage in it was allowed after the message was composed. Only
 * sliding windows look at it.
 */
function hasLateUsage(message: CounterMessage, state: LeaseState): boolean {
  if (!message.isSliding || state.window !== message.window + 1) return false;
  return state.previousSpent !== message.spent;
}
