/**
 * The routes that correct and show counters: refund, reset and inspect. The engine does each of
 * them after the deductions of all checks that were answered before, so a response may come in a
 * later turn. Here is also the route by which an operator ends a hold: its response waits for the
 * audit log. A client that disconnects gets none; its correction is made all the same.
 */

import type { CounterReference, CounterSelection } from '../api/common/counters.ts';
import type { HoldEnd } from '../api/common/hold-end.ts';
import { noLiveHold } from '../api/common/holds.ts';
import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import type { UnknownFieldListener } from '../api/common/unknown-fields.ts';
import type { CounterOperationV1 } from '../api/operations/unknown-field-stats.ts';
import { endHoldResult, type HoldReference, readEndHold } from '../api/operations/v1/end-hold.ts';
import { inspectResult, readInspect } from '../api/operations/v1/inspect.ts';
import { readRefund, resetMismatch } from '../api/operations/v1/refund.ts';
import { readReset } from '../api/operations/v1/reset.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { ApiError } from '../core/errors.ts';
import { type Eventual, whenKnown } from '../core/eventual.ts';
import { type Hasher, type Identity, newIdentity } from '../core/hash.ts';
import { hasWindows, NO_BURST, RULE } from '../core/window-rules.ts';
import type { CounterSelector, Engine } from '../engine/engine.ts';
import { isWindowEnd, windowEndingAt } from '../engine/windows/window.ts';
import type { ActiveOverrides, OverridableCheck } from '../overrides/active.ts';
import type { BodyHandler } from './body.ts';
import type { DeferredResponses } from './deferred-responses.ts';
import type { OperationForwarder } from './operation-forwarder.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

interface CorrectionDependencies {
  keyring: Keyring;
  finder: NamespaceFinder;
  hasher: Hasher;
  overrides: ActiveOverrides;
  engine: Engine;
  onUnknownFields: UnknownFieldListener<CounterOperationV1>;
  deferredResponses: DeferredResponses;
  operations: Pick<OperationForwarder, 'ask'>;
  responder: Responder;
}

export class CorrectionHandler {
  readonly #dependencies: CorrectionDependencies;

  constructor(dependencies: CorrectionDependencies) {
    this.#dependencies = dependencies;
  }

  /** Returns tokens to the window whose `reset` was in the response to the check. */
  readonly refund: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, finder, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const refund = readRefund(finder, key, bytes, onUnknownFields);
    const { rule, reset, cost } = refund;
    const check = this.#checkOf(refund, refund.durationMs);
    const durations = [check.durationMs, refund.durationMs];
    const durationMs = hasWindows(rule)
      ? durations.find((duration) => isWindowEnd(reset, duration))
      : durations[0];
    if (durationMs === undefined) throw resetMismatch(reset, durations[0]);
    const window = windowEndingAt(reset, durationMs);
    const confirm = () => keyring.requireValid(key);
    const refunded = engine.refund(check.identity, rule, durationMs, window, cost, confirm);
    const result = whenKnown(refunded, (refunded) => ({ refunded }));
    this.#respond(res, result);
  };

  /** Removes the counters of an identifier: all of them, or those of checks with a duration. */
  readonly reset: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, finder, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const reset = readReset(finder, key, bytes, onUnknownFields);
    const { identity, selector } = this.#countersOf(reset);
    const cleared = engine.reset(identity, selector, () => keyring.requireValid(key));
    const result = whenKnown<number, object>(cleared, (cleared) => {
      if (!reset.endsLeases) return { cleared };
      return whenKnown(engine.holds.endLeases(identity), (leases) => ({ cleared, leases }));
    });
    this.#respond(res, result);
  };

  /** Shows the counters and the live holds of an identifier, and changes none of them. */
  readonly inspect: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, finder, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const inspect = readInspect(finder, key, bytes, onUnknownFields);
    const { identity, selector } = this.#countersOf(inspect);
    const counters = engine.inspect(identity, selector, () => keyring.requireValid(key));
    const result = whenKnown(counters, (counters) => {
      const holds = engine.holds.liveHolds(identity);
      return whenKnown(holds, (holds) => inspectResult(inspect, counters, holds));
    });
    this.#respond(res, result);
  };

  /** Ends one live hold of an identifier, by the handle that an inspection shows. */
  readonly endHold: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, finder, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const reference = readEndHold(finder, key, bytes, onUnknownFields);
    this.#respond(res, this.#endHold(key, reference));
  };

  async #endHold(key: Key, { namespace, identifier, handle }: HoldReference): Promise<object> {
    const { hasher, engine, operations } = this.#dependencies;
    const identity = newIdentity();
    hasher.hash(namespace.hashState, identifier, identity);
    const ended = await engine.holds.endHold(identity, handle);
    if (ended === undefined) throw noLiveHold(handle, identifier);
    const body = endHoldResult(ended);
    const end: HoldEnd = { namespace: namespace.name, identifier, handle, ...body };
    await operations.ask('ratelimits.endHold', key, end).catch((error) => {
      throw unrecorded(error);
    });
    return body;
  }

  /** Which counters a request means. An override may have given its checks another duration. */
  #countersOf(reference: CounterSelection): { identity: Identity; selector: CounterSelector } {
    const { durationMs, rule } = reference;
    const check = this.#checkOf(reference, durationMs ?? 0);
    const durationsMs =
      durationMs === undefined ? undefined : [...new Set([check.durationMs, durationMs])];
    return { identity: check.identity, selector: { durationsMs, rule } };
  }

  /** A check of an identifier, with the duration of the override that there is for it. */
  #checkOf(counter: CounterReference, durationMs: number): OverridableCheck {
    const { hasher, overrides } = this.#dependencies;
    const identity = newIdentity();
    hasher.hash(counter.namespace.hashState, counter.identifier, identity);
    const rule = { rule: RULE.fixed, burst: NO_BURST };
    const terms = { limit: 0, durationMs, cost: 0, ...rule, isAsync: false };
    const override = { overrideId: undefined, needsOverrideId: false };
    const check: OverridableCheck = { ...counter, identity, ...terms, ...override };
    overrides.resolve(check, identity);
    return check;
  }

  #respond(res: HttpResponse, result: Eventual<object>): void {
    const { deferredResponses, responder } = this.#dependencies;
    deferredResponses.respond(res, responder, result, (result) => {
      responder.sendJson(res, JSON.stringify(result));
    });
  }
}

/** An error after a hold has ended. */
function unrecorded(error: unknown): unknown {
  if (!(error instanceof ApiError)) return error;
  const cause = error.message.replace(/; nothing was changed$/, '');
  const message = `the hold has ended, but the audit log has no entry of it: ${cause}`;
  return new ApiError(error.code, message);
}
