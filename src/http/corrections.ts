/**
 * Refund and reset, as an acceptor answers them: behind what lies in the rings to the worker of the
 * shard, so that deductions of checks that were answered before are in, they act on the counters in
 * place. Mostly the rings are empty, and the answer is given in the request's turn.
 *
 * A client that goes away meanwhile gets no answer; its correction is made all the same.
 */

import type { NamespaceFinder } from '../api/finder.ts';
import { type Counted, notOfDuration, readRefund, readReset } from '../api/v1/corrections.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Counters } from '../counters/counters.ts';
import type { Identity } from '../counters/hash.ts';
import { ApiError } from '../errors.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import type { Governed, OverridesInForce } from '../overrides/in-force.ts';
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
    const refund = readRefund(namespaces, key, bytes);
    const { reset, cost } = refund;
    const id = this.#identify(refund);
    const durations = this.#durations(refund, refund.durationMs, id);
    const durationMs = durations.find((duration) => reset % duration === 0);
    if (durationMs === undefined) throw notOfDuration(reset, durations[0]);
    const window = reset / durationMs - 1;
    this.#behindRings(res, key, id, () => {
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
    const reset = readReset(namespaces, key, bytes);
    const { durationMs: asked } = reset;
    const id = this.#identify(reset);
    const durations = asked === undefined ? [undefined] : this.#durations(reset, asked, id);
    this.#behindRings(res, key, id, () => {
      let cleared = 0;
      for (const durationMs of durations) cleared += counters.reset(id, clock.nowMs(), durationMs);
      lane.add(COUNT.countersReset, cleared);
      return { cleared };
    });
  };

  /** Its identity, to keep. */
  #identify({ namespace, identifier }: Counted): Identity {
    const { h0, h1, h2, h3 } = this.#parts.counters.identify(namespace.state, identifier);
    return { h0, h1, h2, h3 };
  }

  /** What a check is counted by: first the duration that an override gives it, where one does. */
  #durations(counted: Counted, durationMs: number, id: Identity): number[] {
    const asked = { limit: 0, durationMs, cost: 0, isSliding: false, isAsync: false };
    const check: Governed = { ...counted, ...asked, overrideId: undefined };
    this.#parts.overrides.govern(check, id);
    return [...new Set([check.durationMs, durationMs])];
  }

  #behindRings(res: HttpResponse, key: Key, id: Identity, correct: () => object): void {
    const { keyring, rings, workers, lane, replies } = this.#parts;
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
        keyring.requireValid(key);
        if (!isDone) throw new ApiError('SERVICE_UNAVAILABLE', NOT_DONE);
        const text = JSON.stringify(correct());
        answer(() => replies.json(res, text));
      } catch (error) {
        answer(() => replies.error(res, error));
      }
    });
  }
}
