/**
 * The routes of reservations and leases. The engine does each of them in place, so each response
 * comes in the turn of its request. A hold in a namespace that the key may not use is answered as
 * one that does not exist. With an engine without holds, every route answers with a 400.
 */

import type { CheckRequest } from '../api/common/check-request.ts';
import { holdNotFound } from '../api/common/holds.ts';
import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import { readBody, type UnknownFieldListener } from '../api/common/unknown-fields.ts';
import type { CounterOperationV1 } from '../api/operations/unknown-field-stats.ts';
import { acquire, acquireResult, readAcquire } from '../api/operations/v1/acquire.ts';
import { cancel } from '../api/operations/v1/cancel.ts';
import { commit, commitResult, costsOf } from '../api/operations/v1/commit.ts';
import { release } from '../api/operations/v1/release.ts';
import { renew, renewResult } from '../api/operations/v1/renew.ts';
import { listResult, ReserveReader, reserve, reserveResult } from '../api/operations/v1/reserve.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { newDecision } from '../core/decision.ts';
import { type Hasher, newIdentity } from '../core/hash.ts';
import { type FlatObject, JsonWriter } from '../core/json-writer.ts';
import { type DecisionRecorder, eventOf } from '../decision-thread/decision-recorder.ts';
import type { Engine } from '../engine/engine.ts';
import type { HoldEngine, Reservation } from '../engine/hold-engine.ts';
import { HOLD_KIND, type HoldId, type HoldKind, parseHoldId } from '../engine/hold-id.ts';
import { type ActiveOverrides, NOT_OVERRIDDEN } from '../overrides/active.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { BodyHandler } from './body.ts';
import type { CheckBodyHandler } from './checks.ts';
import { parametersOf, type RepeatableRequests } from './repeatable-requests.ts';
import { requireHolds } from './require-holds.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

interface HoldDependencies {
  keyring: Keyring;
  finder: NamespaceFinder;
  hasher: Hasher;
  overrides: ActiveOverrides;
  engine: Engine;
  clock: Clock;
  stats: AcceptorStats;
  recorder: DecisionRecorder;
  repeatable: RepeatableRequests;
  onUnknownFields: UnknownFieldListener<CounterOperationV1>;
  responder: Responder;
}

/** A hold, and how many checks it has. */
interface FoundHold {
  id: HoldId;
  count: number;
}

/** More than the longest response. */
const RESPONSE_BYTES = 512;

export class HoldHandler {
  readonly #dependencies: HoldDependencies;
  readonly #reserveReader: ReserveReader;
  readonly #identity = newIdentity();
  readonly #writer = new JsonWriter(RESPONSE_BYTES);

  constructor(dependencies: HoldDependencies) {
    const { finder, onUnknownFields, recorder } = dependencies;
    this.#dependencies = dependencies;
    this.#reserveReader = new ReserveReader(finder, onUnknownFields, recorder.hasEvents);
  }

  /** Checks, which count and are recorded as all others. */
  readonly reserve: CheckBodyHandler = (res, key, bytes, details) => {
    const { clock, stats, recorder, overrides, responder, repeatable } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    const holds = this.#holdsFor(key);
    const { checks, ttlMs, isList } = this.#reserveReader.read(key, bytes);
    for (const check of checks) this.#identify(check);
    const [first] = checks;
    const { requestId, identity } = first;
    // Those of the request, which an override may replace.
    const parameters = requestId === undefined ? {} : { ...parametersOf(first), ttl: ttlMs };
    const usageRows = checks.map((check) => overrides.resolve(check, check.identity));
    let reservation: Reservation;
    if (requestId === undefined) reservation = holds.reserve(checks, startedMs, ttlMs);
    else {
      const terms = { operation: reserve.name, key, requestId, identity, parameters, startedMs };
      const answer = repeatable.answer(terms, () => {
        const { allowed, decisions, id, expiresAt } = holds.reserve(checks, startedMs, ttlMs);
        const { remaining, reset } = decisions[0];
        return { allowed, limit: first.limit, remaining, reset, id, expiresAt, inUse: 0 };
      });
      first.limit = answer.limit;
      reservation = { ...answer, decisions: [{ ...newDecision(), ...answer }] };
      if (answer.isRepetition) {
        this.#send(res, reserveResult(first, reservation));
        return;
      }
    }
    for (const [number, usageRow] of usageRows.entries()) {
      if (usageRow === NOT_OVERRIDDEN) continue;
      stats.increment(ACCEPTOR_STAT.overriddenChecks);
      if (checks[number].cost > 0) stats.usage.record(usageRow, startedMs);
    }
    const { allowed, decisions } = reservation;
    const isEvent = details !== undefined && recorder.selects(allowed);
    for (let number = 0; number < checks.length; number++) {
      const check = checks[number];
      recorder.count(check, allowed);
      if (isEvent) recorder.recordEvent(eventOf(check, decisions[number], allowed, details));
    }
    if (isList) responder.sendJson(res, JSON.stringify(listResult(checks, reservation)));
    else this.#send(res, reserveResult(checks[0], reservation));
    stats.recordLatency(clock.monotonicMs() - startedMs);
  };

  readonly commit: BodyHandler<Key> = (res, key, bytes) => {
    const { onUnknownFields } = this.#dependencies;
    const holds = this.#holdsFor(key);
    const body = readBody(commit.validator, bytes, commit.name, key, onUnknownFields);
    const { reservationId } = body;
    const found = this.#find(holds, key, HOLD_KIND.reservation, reservationId);
    const committed = found && holds.commit(found.id, costsOf(body, found.count));
    if (committed === undefined) throw holdNotFound(HOLD_KIND.reservation, reservationId);
    this.#send(res, commitResult(committed));
  };

  readonly cancel: BodyHandler<Key> = (res, key, bytes) => {
    const { onUnknownFields } = this.#dependencies;
    const holds = this.#holdsFor(key);
    const body = readBody(cancel.validator, bytes, cancel.name, key, onUnknownFields);
    const { reservationId } = body;
    const found = this.#find(holds, key, HOLD_KIND.reservation, reservationId);
    const released = found && holds.cancel(found.id);
    if (released === undefined) throw holdNotFound(HOLD_KIND.reservation, reservationId);
    this.#send(res, { released });
  };

  readonly acquire: BodyHandler<Key> = (res, key, bytes) => {
    const { finder, hasher, clock, onUnknownFields, repeatable } = this.#dependencies;
    const holds = this.#holdsFor(key);
    const startedMs = clock.monotonicMs();
    const request = readAcquire(finder, key, bytes, onUnknownFields);
    const { namespace, identifier, limit, cost, ttlMs, requestId } = request;
    const identity = hasher.hash(namespace.hashState, identifier, this.#identity);
    const acquireLease = () => holds.acquire({ namespace, identity, limit, cost, ttlMs });
    if (requestId === undefined) {
      this.#send(res, acquireResult(acquireLease()));
      return;
    }
    const parameters = { limit, cost, ttl: ttlMs };
    const terms = { operation: acquire.name, key, requestId, identity, parameters, startedMs };
    const answer = repeatable.answer(terms, () => {
      const { granted: allowed, id, inUse, expiresAt } = acquireLease();
      return { allowed, limit, remaining: 0, reset: 0, id, expiresAt, inUse };
    });
    this.#send(res, acquireResult({ ...answer, granted: answer.allowed }));
  };

  readonly renew: BodyHandler<Key> = (res, key, bytes) => {
    const { onUnknownFields } = this.#dependencies;
    const holds = this.#holdsFor(key);
    const { leaseId, ttl } = readBody(renew.validator, bytes, renew.name, key, onUnknownFields);
    const found = this.#find(holds, key, HOLD_KIND.lease, leaseId);
    this.#send(res, renewResult(found && holds.renew(found.id, ttl)));
  };

  readonly release: BodyHandler<Key> = (res, key, bytes) => {
    const { onUnknownFields } = this.#dependencies;
    const holds = this.#holdsFor(key);
    const { leaseId } = readBody(release.validator, bytes, release.name, key, onUnknownFields);
    const found = this.#find(holds, key, HOLD_KIND.lease, leaseId);
    const released = found && holds.release(found.id);
    if (released === undefined) throw holdNotFound(HOLD_KIND.lease, leaseId);
    this.#send(res, { released });
  };

  #identify({ namespace, identity, memory, identifierFrom, identifierTo }: CheckRequest): void {
    const { hasher } = this.#dependencies;
    hasher.hashBytes(namespace.hashState, memory, identifierFrom, identifierTo, identity);
  }

  /** @throws ApiError (400) if the engine has no holds, (401) if the key is not valid any more */
  #holdsFor(key: Key): HoldEngine {
    const { keyring, engine } = this.#dependencies;
    keyring.requireValid(key);
    return requireHolds(engine);
  }

  /** @returns undefined if no hold has this id, or the key may not use all of its namespaces */
  #find(holds: HoldEngine, key: Key, kind: HoldKind, text: string): FoundHold | undefined {
    const id = parseHoldId(kind, text);
    if (id === undefined) return undefined;
    const namespaces = holds.namespacesOf(id);
    if (namespaces === undefined) return undefined;
    const { finder } = this.#dependencies;
    const mayUse = namespaces.every((namespace) => finder.mayUseHold(key, namespace));
    return mayUse ? { id, count: namespaces.length } : undefined;
  }

  #send(res: HttpResponse, body: FlatObject): void {
    const writer = this.#writer;
    writer.seek(0);
    writer.writeFlatObject(body);
    this.#dependencies.responder.sendJson(res, writer.finish());
  }
}
