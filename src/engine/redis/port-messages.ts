/**
 * The messages between an acceptor and a shard worker of the redis engine, over the port of
 * `connectWorker`: corrections, inspections, holds and stored answers, which are no checks and may
 * take several round trips. Each belongs to the worker of a shard. A worker that dies loses those
 * that it was sent; the acceptor fails them at CHECK_DEADLINE_MS.
 *
 * The state word of a request is shared: the worker begins a request only if the acceptor has not
 * withdrawn it, so that the acceptor can prove that nothing was changed.
 */

import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import { RedisError } from '../../redis/errors.ts';
import type { CounterSelector } from '../engine.ts';
import type { BeginHold, EndHold, EndHolds, HoldAnswer, HoldsAnswer } from './scripts/holds.ts';
import type { StoredCounter } from './scripts/protocol.ts';
import type { RequestCall, RequestResult } from './scripts/requests.ts';

/** One word that both threads change by compare-and-exchange, from `waiting`. */
export const REQUEST_STATE = { waiting: 0, begun: 1, withdrawn: 2 } as const;

export type CounterTask =
  | {
      kind: 'refund';
      rule: RuleNumber;
      durationMs: number;
      /** Of the decision; GCRA ignores it. */
      window: number;
      cost: number;
    }
  | { kind: 'reset' | 'inspect'; selector: CounterSelector };

export type CounterAction = CounterTask & { identity: Identity };

export type HoldAction =
  | { kind: 'beginHold'; call: BeginHold }
  | { kind: 'endHold'; call: EndHold }
  | { kind: 'endHolds'; call: EndHolds };

export type WorkerAction = CounterAction | HoldAction | { kind: 'request'; call: RequestCall };

export interface WorkerRequest {
  number: number;
  /** One of REQUEST_STATE. */
  state: Int32Array<SharedArrayBuffer>;
  action: WorkerAction;
}

/** To the request of a number. An acceptor ignores one whose number it does not know any more. */
export interface WorkerResponse {
  number: number;
  result: WorkerResult;
}

export type WorkerResult =
  /** Tokens refunded. */
  | { kind: 'refund'; refunded: number }
  /** Counters removed. */
  | { kind: 'reset'; cleared: number }
  /** @property nowMs the time of Redis at the inspection: Unix time, ms */
  | { kind: 'inspect'; counters: StoredCounter[]; nowMs: number }
  | { kind: 'beginHold'; answer: HoldAnswer }
  | { kind: 'endHold'; answer: HoldAnswer }
  | { kind: 'endHolds'; answer: HoldsAnswer }
  | { kind: 'request'; answer: RequestResult }
  /** It failed. @property isUnchanged whether it is proven that nothing was changed */
  | { kind: 'failure'; reason: string; isUnchanged: boolean };

/** What answers a kind of action that did not fail. */
export type ResultOf<Kind> = Extract<WorkerResult, { kind: Kind }>;

/** Nothing was changed. */
export class Unchanged extends Error {}

/** Has a worker act on a request, unless its acceptor has withdrawn it. */
export async function answerRequest(
  request: WorkerRequest,
  act: (action: WorkerAction) => Promise<WorkerResult>,
  respond: (response: WorkerResponse) => void,
): Promise<void> {
  if (!beginRequest(request)) return;
  let result: WorkerResult;
  try {
    result = await act(request.action);
  } catch (error) {
    const hasNotRun = error instanceof RedisError && !error.mayHaveRun;
    const isUnchanged =
      error instanceof Unchanged || hasNotRun || request.action.kind === 'inspect';
    const reason = error instanceof Error ? error.message : String(error);
    result = { kind: 'failure', reason, isUnchanged };
  }
  respond({ number: request.number, result });
}

/** Called by the worker before it acts. @returns false: the acceptor has withdrawn the request */
export function beginRequest({ state }: WorkerRequest): boolean {
  const { waiting, begun } = REQUEST_STATE;
  return Atomics.compareExchange(state, 0, waiting, begun) === waiting;
}

/** Called by the acceptor at the deadline. @returns whether the worker has not begun it */
export function withdrawRequest({ state }: WorkerRequest): boolean {
  const { waiting, withdrawn } = REQUEST_STATE;
  return Atomics.compareExchange(state, 0, waiting, withdrawn) === waiting;
}
