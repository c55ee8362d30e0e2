/**
 * Answers of an engine to requests that a client may repeat. The answer to an allowed request is
 * stored for REQUEST_ID_MS, and a repetition gets it again: nothing is decided or counted twice. A
 * denial is not stored.
 */

import type { Check } from '../core/check.ts';
import type { Decision } from '../core/decision.ts';
import type { Eventual } from '../core/eventual.ts';
import type { Identity } from '../core/hash.ts';
import type { HoldId } from './hold-id.ts';

/** What the response says. A field that the operation does not have is 0, or undefined. */
export interface RequestAnswer {
  allowed: boolean;
  limit: number;
  remaining: number;
  reset: number;
  /** Of the reservation or lease. */
  id: HoldId | undefined;
  expiresAt: number;
  inUse: number;
}

export interface RepeatableAnswer extends RequestAnswer {
  /** Whether an earlier request got it, so that nothing was decided now. */
  isRepetition: boolean;
}

/** The keyed hashes of what makes two requests the same, and of their parameters. */
export interface RepeatableRequest {
  key: Identity;
  parameters: Identity;
}

export interface RequestEngine {
  /** Decides a check also if it is asynchronous. The check is read in the turn of the call only. */
  decide(check: Check, startedMs: number): Eventual<Decision>;
  /**
   * Answers a request. Repetitions at the same time, on any thread and machine, are decided once.
   * @param request read in the turn of the call only
   * @param decide decides the request if there is no stored answer: in the turn of the call, unless
   *   the answer comes in a later one
   * @returns undefined if a request with this key and other parameters was allowed
   */
  answer(
    request: RepeatableRequest,
    startedMs: number,
    decide: () => Eventual<RequestAnswer>,
  ): Eventual<RepeatableAnswer | undefined>;
}
