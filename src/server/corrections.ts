/**
 * Refund and reset, as an acceptor answers them: behind what lies in the rings to the worker of the
 * shard, so that deductions of checks that were answered before are in, they act on the counters in
 * place. Mostly the rings are empty, and the answer is given in the request's turn.
 *
 * A client that goes away meanwhile gets no answer; its correction is made all the same.
 */

import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import {
  type CounterReference,
  readRefund,
  readReset,
  resetMismatch,
} from '../api/v1/corrections.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { ApiError } from '../core/errors.ts';
import type { Identity } from '../core/hash.ts';
import { NO_BURST, RULE } from '../core/window-rules.ts';
import type { Counters } from '../engine/memory/counters.ts';
import { shardOf, workerOf } from '../engine/memory/shard.ts';
import type { QueueBarrier } from '../engine/worker/barrier.ts';
import type { ActiveOverrides, OverridableCheck } from '../overrides/active.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { BodyHandler } from './body.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

const WORKER_UNAVAILABLE =
  'the thread whose deductions come before this is not back; nothing was done';

export interface CorrectionDependencies {
  keyring: Keyring;
  namespaces: NamespaceFinder;
  counters: Counters;
  overrides: ActiveOverrides;
  queueBarrier: QueueBarrier;
  workerCount: number;
  clock: Clock;
  stats: AcceptorStats;
  responder: Responder;
}

export class CorrectionHandler {
  readonly #dependencies: CorrectionDependencies;

  constructor(dependencies: CorrectionDependencies) {
    this.#dependencies = dependencies;
  }

  /** Gives tokens back to the window whose `reset` the check was answered. */
  readonly refund: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, namespaces, counters, clock, stats } = this.#dependencies;
    keyring.requireValid(key);
    const refund = readRefund(namespaces, key, bytes);
    const { reset, cost } = refund;
    const id = this.#identify(refund);
    const durations = this.#candidateDurations(refund, refund.durationMs, id);
    const durationMs = durations.find((duration) => reset % duration === 0);
    if (durationMs === undefined) throw resetMismatch(reset, durations[0]);
    const window = reset / durationMs - 1;
    this.#afterQueuedWork(res, key, id, () => {
      const refunded = counters.refund(id, clock.nowMs(), window, durationMs, cost);
      stats.increment(ACCEPTOR_STAT.refunds);
      stats.add(ACCEPTOR_STAT.refundedTokens, refunded);
      return { refunded };
    });
  };

  /** Removes the counters of an identifier: of all durations, or of a check with one. */
  readonly reset: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, namespaces, counters, clock, stats } = this.#dependencies;
    keyring.requireValid(key);
    const reset = readReset(namespaces, key, bytes);
    const { durationMs: asked } = reset;
    const id = this.#identify(reset);
    const durations =
      asked === undefined ? [undefined] : this.#candidateDurations(reset, asked, id);
    this.#afterQueuedWork(res, key, id, () => {
      let cleared = 0;
      for (const durationMs of durations) cleared += counters.reset(id, clock.nowMs(), durationMs);
      stats.add(ACCEPTOR_STAT.countersReset, cleared);
      return { cleared };
    });
  };

  /** Its identity, to keep. */
  #identify({ namespace, identifier }: CounterReference): Identity {
    const { h0, h1, h2, h3 } = this.#dependencies.counters.identify(
      namespace.hashState,
      identifier,
    );
    return { h0, h1, h2, h3 };
  }

  /** What a check is counted by: first the duration that an override gives it, where one does. */
  #candidateDurations(counter: CounterReference, durationMs: number, id: Identity): number[] {
    const asked = {
      limit: 0,
      durationMs,
      cost: 0,
      rule: RULE.fixed,
      burst: NO_BURST,
      isAsync: false,
    };
    const override = { overrideId: undefined, needsOverrideId: false };
    const check: OverridableCheck = { ...counter, ...asked, ...override };
    this.#dependencies.overrides.resolve(check, id);
    return [...new Set([check.durationMs, durationMs])];
  }

  #afterQueuedWork(res: HttpResponse, key: Key, id: Identity, correct: () => object): void {
    const { keyring, queueBarrier, workerCount, stats, responder } = this.#dependencies;
    const ahead = queueBarrier.wait(workerOf(shardOf(id), workerCount));
    if (ahead === undefined) {
      responder.sendJson(res, JSON.stringify(correct()));
      return;
    }
    let isOpen = true;
    res.onAborted(() => {
      isOpen = false;
    });
    const answer = (write: () => void) => {
      stats.heartbeat();
      if (isOpen) res.cork(write);
    };
    void ahead.then((isDone) => {
      try {
        keyring.requireValid(key);
        if (!isDone) throw new ApiError('SERVICE_UNAVAILABLE', WORKER_UNAVAILABLE);
        const text = JSON.stringify(correct());
        answer(() => responder.sendJson(res, text));
      } catch (error) {
        answer(() => responder.sendError(res, error));
      }
    });
  }
}
