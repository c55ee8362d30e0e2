/**
 * The pending work of one counter on a machine: its waiting checks, its duties, and the message
 * under way. It is plain data. `compose.ts` makes the next message from it, and `answer.ts` changes
 * it by the answer. It exists only while there is work. The `LeaseState` of the counter's slot has
 * everything that must not be lost. So a duty whose message gets no answer is not kept here: the
 * slot is dirty then, and is reported again; of a counter without a slot, Redis asks again.
 *
 *           check, prefetch, report, return, correction
 *     idle ----------------------------------------------> ready <---------+
 *      ^                                                     |             | after RETRY_MS,
 *      | nothing is left                             compose |             | a wake-up,
 *      |                                                     v             | or a new check
 *      +---------------------------- answer, or none --- under way ----> parked
 *
 *   parked      checks wait: they were denied without proof, usage is lost, or no answer came
 *   recall      while a message is under way: the lease that it brings is returned by the next one
 *   wake        while a message is under way: its answer may be older than the wake-up
 *
 * No function here reads a clock, waits, or touches shared memory. Their caller holds the lock of
 * the slot. `test/model` explores these functions in every order of events.
 */

import type { CheckParameters } from '../../../core/decision.ts';
import type { Identity } from '../../../core/hash.ts';
import type { CounterMessage, TokenCheck } from '../scripts/protocol.ts';
import { CHECKS_PER_MESSAGE } from '../scripts/protocol-constants.ts';

/** A check that waits for Redis. */
export interface WaitingCheck {
  readonly parameters: Readonly<CheckParameters>;
  /** The same as a message has it. */
  readonly check: TokenCheck;
  /** Whether its tokens are reserved for a batch. */
  readonly isReserve: boolean;
  /** When it began to wait, monotonic ms. */
  readonly queuedMs: number;
  /** Whether a message has carried it. */
  wasSent: boolean;
  /** When it was first denied without proof, monotonic ms; 0: it was not. */
  parkedMs: number;
}

/** A refund, or a recall of all leases before an inspection. */
export interface Correction {
  readonly refund: number;
  /** NO_WINDOW without a refund. */
  readonly refundWindow: number;
  readonly recalls: boolean;
}

/** A message under way. */
export interface SentMessage<Check, Request> {
  readonly message: CounterMessage;
  readonly checks: readonly Check[];
  readonly correction: Request | undefined;
  /** Whether it returns the lease, of which pending batches may keep some. */
  readonly isReturn: boolean;
}

export interface Counter<
  Check extends WaitingCheck = WaitingCheck,
  Request extends Correction = Correction,
> {
  readonly identity: Identity;
  readonly durationMs: number;
  waiting: Check[];
  corrections: Request[];
  /** Whether the last message was a correction: now it is the turn of the checks that wait. */
  hasCorrected: boolean;
  sent: SentMessage<Check, Request> | undefined;
  /** The check for which more tokens are wanted in advance. */
  prefetch: { limit: number; isSliding: boolean } | undefined;
  /** Whether usage is to be reported, and the lease returned. */
  mustSync: boolean;
  mustReturn: boolean;
  /** The number of the request for a report that Redis waits for; 0 for none. */
  report: number;
  /** Whether a recall has come while a message was under way. */
  isRecalled: boolean;
  /** Whether the known usage has fallen while a message was under way. */
  isWoken: boolean;
  /** When the waiting checks are sent again, monotonic ms. */
  retryMs: number;
}

export function newCounter<Check extends WaitingCheck, Request extends Correction>(
  identity: Identity,
  durationMs: number,
): Counter<Check, Request> {
  return {
    identity,
    durationMs,
    waiting: [],
    corrections: [],
    hasCorrected: false,
    sent: undefined,
    prefetch: undefined,
    mustSync: false,
    mustReturn: false,
    report: 0,
    isRecalled: false,
    isWoken: false,
    retryMs: Number.POSITIVE_INFINITY,
  };
}

/** Whether a message can be sent now. */
export function isReady(counter: Counter, nowMs: number): boolean {
  if (counter.sent !== undefined) return false;
  if (hasDuties(counter)) return true;
  const { waiting, retryMs } = counter;
  // Those that were sent come first: is there a new one among the checks of the next message?
  const last = waiting[Math.min(waiting.length, CHECKS_PER_MESSAGE) - 1];
  return last !== undefined && (!last.wasSent || nowMs >= retryMs);
}

/** Whether there is nothing left to do, or to wait for. */
export function isIdle(counter: Counter): boolean {
  return counter.sent === undefined && counter.waiting.length === 0 && !hasDuties(counter);
}

function hasDuties(counter: Counter): boolean {
  const { mustSync, mustReturn, report, prefetch, corrections } = counter;
  return mustSync || mustReturn || report !== 0 || prefetch !== undefined || corrections.length > 0;
}

/**
 * Decides waiting checks in memory, up to the first that cannot: checks of a request are decided in
 * their order, and a later one may have a larger limit.
 * @param tryDecide returns whether the check is over
 */
export function decideInOrder<Check extends WaitingCheck>(
  counter: Counter<Check>,
  tryDecide: (check: Check) => boolean,
): void {
  let isBlocked = false;
  counter.waiting = counter.waiting.filter((waiting) => {
    if (waiting.wasSent) return true;
    isBlocked ||= !tryDecide(waiting);
    return isBlocked;
  });
}

/** Redis recalls the lease. */
export function recall(counter: Counter): void {
  if (counter.sent === undefined) counter.mustReturn = true;
  else counter.isRecalled = true;
}

/** The known usage has fallen, or tokens came back. The answer under way may be older. */
export function wake(counter: Counter): void {
  counter.isWoken = counter.sent !== undefined;
  counter.retryMs = 0;
}
