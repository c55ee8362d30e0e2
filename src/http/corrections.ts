/**
 * Refund and reset, as an acceptor answers them: behind what lies in the rings to the worker of the
 * shard, so that deductions of checks that were answered before are in, they act on the counters in
 * place. Mostly the rings are empty, and the answer is given in the request's turn.
 *
 * A client that goes away meanwhile gets no answer; its correction is made all the same.
 */

import type { NamespaceFinder } from '../api/finder.ts';
import { notOfDuration, readRefund, readReset } from '../api/v1/corrections.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Counters } from '../counters/counters.ts';
import type { Identity } from '../counters/hash.ts';
import type { Check } from '../decide/decider.ts';
import { ApiError } from '../errors.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import type { OverridesInForce } from '../overrides/in-force.ts';
import type { RingsAhead } from '../shards/ahead.ts';
import { shardOf, workerOf } from '../shards/shard.ts';
import type { Clock } from '../time.ts';
import type { OnBody } from './body.ts';
import type { Replies } from './reply.ts';
import type { HttpResponse } from './uws.ts';

const NOT_DONE = 'the thread whose deductions come before this is not back; nothing was done';

export interface CorrectionParts {
  keyring: Keyring;
  namespaces: NamespaceFinder;
  counters: Counters;
  overrides: OverridesInForce;
  rings: RingsAhead;
  workers: number;
  clock: Clock;
  lane: AcceptorLane;
  replies: Replies;
}

export class Corrections {
  readonly #parts: CorrectionParts;

  constructor(parts: CorrectionParts) {
    this.#parts = parts;
  }

  /** Gives tokens back to the window whose `reset` the check was answered. */
  readonly refund: OnBody<Key> = (res, key, bytes) => {
    const { keyring, namespaces, counters, clock, lane } = this.#parts;
    keyring.requireValid(key);
    const { check, reset } = readRefund(namespaces, key, bytes);
    const { durationMs: asked, cost } = check;
    const id = this.#identify(check);
    const durationMs = [check.durationMs, asked].find((duration) => reset % duration === 0);
    if (durationMs === undefined) throw notOfDuration(reset, check.durationMs);
    const window = reset / durationMs - 1;
    this.#behindRings(res, id, () => {
      const refunded = counters.refund(id, clock.nowMs(), window, durationMs, cost);
      lane.count(COUNT.refunds);
      lane.add(COUNT.refundedTokens, refunded);
      return { refunded };
    });
  };

  /** Removes the counters of an identifier: of all durations, or of a check with one. */
  readonly reset: OnBody<Key> = (res, key, bytes) => {
    const { keyring, namespaces, counters, clock, lane } = this.#parts;
    keyring.requireValid(key);
    const { check, ofAllDurations } = readReset(namespaces, key, bytes);
    const { durationMs: asked } = check;
    const id = this.#identify(check);
    const durations = ofAllDurations ? [undefined] : new Set([asked, check.durationMs]);
    this.#behindRings(res, id, () => {
      let cleared = 0;
      for (const durationMs of durations) cleared += counters.reset(id, clock.nowMs(), durationMs);
      lane.add(COUNT.countersReset, cleared);
      return { cleared };
    });
  };

  /** Its identity, to keep; and the check as an override has it. */
  #identify(check: Check): Identity {
    const { counters, overrides } = this.#parts;
    const { h0, h1, h2, h3 } = counters.identify(check.namespace.state, check.identifier);
    const id = { h0, h1, h2, h3 };
    overrides.govern(check, id);
    return id;
  }

  #behindRings(res: HttpResponse, id: Identity, correct: () => object): void {
    const { rings, workers, lane, replies } = this.#parts;
    const ahead = rings.wait(workerOf(shardOf(id), workers));
    if (ahead === undefined) {
      replies.json(res, JSON.stringify(correct()));
      return;
    }
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    const answer = (write: () => void) => {
      lane.beat();
      if (isOpen) res.cork(write);
    };
    void ahead.then((isDone) => {
      try {
        if (!isDone) throw new ApiError('SERVICE_UNAVAILABLE', NOT_DONE);
        const text = JSON.stringify(correct());
        answer(() => replies.json(res, text));
      } catch (error) {
        answer(() => replies.error(res, error));
      }
    });
  }
}
