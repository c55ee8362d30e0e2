/**
 * The messages between an acceptor and a shard worker of the redis engine, over the port of
 * `connectWorker`: corrections and inspections, which are no checks and may take several round
 * trips. Each belongs to the worker of its identity's shard. A worker that dies loses those that it
 * was sent; the acceptor fails them at CHECK_DEADLINE_MS.
 *
 * The state word of a request is shared: the worker begins a request only if the acceptor has not
 * withdrawn it, so that the acceptor can prove that nothing was changed.
 */

import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import type { CounterSelector } from '../engine.ts';
import type { StoredCounter } from './scripts/protocol.ts';

/** One word that both threads change by compare-and-exchange, from `waiting`. */
export const REQUEST_STATE = { waiting: 0, begun: 1, withdrawn: 2 } as const;

export type CounterAction =
  | {
      kind: 'refund';
      rule: RuleNumber;
      durationMs: number;
      /** Of the decision; GCRA ignores it. */
      window: number;
      cost: number;
    }
  | { kind: 'reset' | 'inspect'; selector: CounterSelector };

export interface CounterRequest {
  number: number;
  /** One of REQUEST_STATE. */
  state: Int32Array<SharedArrayBuffer>;
  identity: Identity;
  action: CounterAction;
}

/** To the request of a number. An acceptor ignores one whose number it does not know any more. */
export interface CounterResponse {
  number: number;
  result: CounterResult;
}

export type CounterResult =
  /** Tokens refunded. */
  | { kind: 'refund'; refunded: number }
  /** Counters removed. */
  | { kind: 'reset'; cleared: number }
  /** @property nowMs the time of Redis at the inspection: Unix time, ms */
  | { kind: 'inspect'; counters: StoredCounter[]; nowMs: number }
  /** It failed. @property isUnchanged whether it is proven that nothing was changed */
  | { kind: 'failure'; reason: string; isUnchanged: boolean };

/** What answers a kind of action that did not fail. */
export type ResultOf<Kind> = Extract<CounterResult, { kind: Kind }>;

/** Called by the worker before it acts. @returns false: the acceptor has withdrawn the request */
export function beginRequest({ state }: CounterRequest): boolean {
  const { waiting, begun } = REQUEST_STATE;
  return Atomics.compareExchange(state, 0, waiting, begun) === waiting;
}

/** Called by the acceptor at the deadline. @returns whether the worker has not begun it */
export function withdrawRequest({ state }: CounterRequest): boolean {
  const { waiting, withdrawn } = REQUEST_STATE;
  return Atomics.compareExchange(state, 0, waiting, withdrawn) === waiting;
}
