/**
 * The routes of reservations and leases. An engine that has to ask Redis answers in a later turn. A
 * client that disconnects before gets no response; its hold is made or ended, and counted, all the
 * same. A hold in a namespace that the key may not use is answered as one that does not exist.
 */

import type { CheckRequest } from '../api/common/check-request.ts';
import { holdNotFound } from '../api/common/holds.ts';
import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import { readBody, type UnknownFieldListener } from '../api/common/unknown-fields.ts';
import type { CounterOperationV1 } from '../api/operations/unknown-field-stats.ts';
import { type Acquire, acquire, acquireResult, readAcquire } from '../api/operations/v1/acquire.ts';
import { cancel } from '../api/operations/v1/cancel.ts';
import { commit, commitResult, costsOf } from '../api/operations/v1/commit.ts';
import { release } from '../api/operations/v1/release.ts';
import { renew, renewResult } from '../api/operations/v1/renew.ts';
import { listResult, ReserveReader, reserve, reserveResult } from '../api/operations/v1/reserve.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { newDecision } from '../core/decision.ts';
import { type Eventual, whenKnown } from '../core/eventual.ts';
import { type Hasher, newIdentity } from '../core/hash.ts';
import { type FlatObject, JsonWriter } from '../core/json-writer.ts';
import {
  type DecisionRecorder,
  eventOf,
  leaseEventOf,
} from '../decision-thread/decision-recorder.ts';
import type { Engine } from '../engine/engine.ts';
import type { Lease, LeaseRequest, Reservation } from '../engine/hold-engine.ts';
import { HOLD_KIND, type HoldId, type HoldKind, parseHoldId } from '../engine/hold-id.ts';
import type { RequestDetails } from '../events/decision-event.ts';
import { type ActiveOverrides, NOT_OVERRIDDEN } from '../overrides/active.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { BodyHandler } from './body.ts';
import type { CheckBodyHandler } from './checks.ts';
import type { DeferredResponses } from './deferred-responses.ts';
import { parametersOf, type RepeatableRequests } from './repeatable-requests.ts';
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
  deferredResponses: DeferredResponses;
  onUnknownFields: UnknownFieldListener<CounterOperationV1>;
  responder: Responder;
}

/** A hold, and how many checks it has. */
interface FoundHold {
  id: HoldId;
  count: number;
}

/** A reserve, until its response. */
interface PendingReserve {
  readonly key: Key;
  /** In a later turn these are copies. */
  checks: readonly CheckRequest[];
  readonly ttlMs: number;
  readonly isList: boolean;
  readonly startedMs: number;
  readonly details: RequestDetails | undefined;
  /** By check: the usage row of its override, of `activation` of the overrides. */
  readonly usageRows: readonly number[];
  readonly activation: number;
}

type IdentifiedAcquire = Acquire & LeaseRequest;

interface ReserveAnswer extends Reservation {
  /** Whether nothing was decided now. */
  isRepetition?: boolean;
}

interface AcquireAnswer extends Lease {
  /** Whether nothing was decided now. */
  isRepetition?: boolean;
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
    const { keyring, clock, overrides, engine, deferredResponses, responder } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const { checks, ttlMs, isList } = this.#reserveReader.read(key, bytes);
    for (const check of checks) this.#identify(check);
    const [first] = checks;
    const { requestId } = first;
    // Those of the request, which an override may replace.
    const parameters = requestId === undefined ? {} : { ...parametersOf(first), ttl: ttlMs };
    const usageRows = checks.map((check) => overrides.resolve(check, check.identity));
    const { activation } = overrides;
    const request = { key, checks, ttlMs, isList, startedMs, details, usageRows, activation };
    const reserved: Eventual<ReserveAnswer> =
      requestId === undefined
        ? engine.holds.reserve(checks, startedMs, ttlMs)
        : this.#reserveOnce(request, requestId, parameters);
    if (reserved instanceof Promise) request.checks = checks.map((check) => check.copy());
    const recorded = whenKnown(reserved, (reserved) => this.#recordReserved(request, reserved));
    const send = (reserved: ReserveAnswer) => this.#sendReserved(res, request, reserved);
    deferredResponses.respond(res, responder, recorded, send, true);
  };

  readonly commit: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const body = readBody(commit.validator, bytes, commit.name, key, onUnknownFields);
    const committed = this.#ofHold(key, HOLD_KIND.reservation, body.reservationId, (hold) => {
      return engine.holds.commit(hold.id, costsOf(body, hold.count));
    });
    this.#respond(res, committed, (committed) => {
      if (committed === undefined) throw holdNotFound(HOLD_KIND.reservation, body.reservationId);
      return commitResult(committed);
    });
  };

  readonly cancel: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const body = readBody(cancel.validator, bytes, cancel.name, key, onUnknownFields);
    const { reservationId } = body;
    const cancelled = this.#ofHold(key, HOLD_KIND.reservation, reservationId, ({ id }) => {
      return engine.holds.cancel(id);
    });
    this.#respond(res, cancelled, (released) => {
      if (released === undefined) throw holdNotFound(HOLD_KIND.reservation, reservationId);
      return { released };
    });
  };

  /** Its decision is recorded too, but apart from those on checks. */
  readonly acquire: CheckBodyHandler = (res, key, bytes, details) => {
    const { keyring, finder, hasher, clock, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const startedMs = clock.monotonicMs();
    const body = readAcquire(finder, key, bytes, onUnknownFields);
    const { namespace, identifier, requestId } = body;
    const identity = hasher.hash(namespace.hashState, identifier, this.#identity);
    const request = { ...body, identity };
    const acquired: Eventual<AcquireAnswer> =
      requestId === undefined
        ? this.#acquire(request, startedMs)
        : this.#acquireOnce(request, key, requestId, startedMs);
    if (acquired instanceof Promise) request.identity = { ...identity };
    const recorded = whenKnown(acquired, (lease) => this.#recordLease(request, lease, details));
    this.#respond(res, recorded, acquireResult);
  };

  readonly renew: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const { leaseId, ttl } = readBody(renew.validator, bytes, renew.name, key, onUnknownFields);
    const renewed = this.#ofHold(key, HOLD_KIND.lease, leaseId, ({ id }) => {
      return engine.holds.renew(id, ttl);
    });
    this.#respond(res, renewed, renewResult);
  };

  readonly release: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, engine, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const { leaseId } = readBody(release.validator, bytes, release.name, key, onUnknownFields);
    const released = this.#ofHold(key, HOLD_KIND.lease, leaseId, ({ id }) => {
      return engine.holds.release(id);
    });
    this.#respond(res, released, (released) => {
      if (released === undefined) throw holdNotFound(HOLD_KIND.lease, leaseId);
      return { released };
    });
  };

  #identify({ namespace, identity, memory, identifierFrom, identifierTo }: CheckRequest): void {
    const { hasher } = this.#dependencies;
    hasher.hashBytes(namespace.hashState, memory, identifierFrom, identifierTo, identity);
  }

  /** @param parameters those of the request, for its repetitions */
  #reserveOnce(
    request: PendingReserve,
    requestId: string,
    parameters: Readonly<Record<string, number>>,
  ): Eventual<ReserveAnswer> {
    const { engine, repeatable } = this.#dependencies;
    const { key, startedMs, ttlMs } = request;
    const { identity } = request.checks[0];
    const terms = { operation: reserve.name, key, requestId, identity, parameters, startedMs };
    const answer = repeatable.answer(terms, () => {
      const reserved = engine.holds.reserve(request.checks, startedMs, ttlMs);
      return whenKnown(reserved, ({ allowed, decisions, id, expiresAt }) => {
        const { limit } = request.checks[0];
        const { remaining, reset } = decisions[0];
        return { allowed, limit, remaining, reset, id, expiresAt, inUse: 0 };
      });
    });
    return whenKnown(answer, (answer) => {
      request.checks[0].limit = answer.limit;
      return { ...answer, decisions: [{ ...newDecision(), ...answer }] };
    });
  }

  /** @returns the answer */
  #recordReserved(request: PendingReserve, reserved: ReserveAnswer): ReserveAnswer {
    const { stats, overrides, recorder } = this.#dependencies;
    const { checks, details, startedMs, usageRows, activation } = request;
    const { allowed, decisions, isRepetition } = reserved;
    if (isRepetition === true) return reserved;
    // Afterwards a row may belong to another override.
    const hasRows = activation === overrides.activation;
    const isEvent = details !== undefined && recorder.selects(allowed);
    for (let number = 0; number < checks.length; number++) {
      const check = checks[number];
      const usageRow = usageRows[number];
      if (hasRows && usageRow !== NOT_OVERRIDDEN) {
        stats.increment(ACCEPTOR_STAT.overriddenChecks);
        if (check.cost > 0) stats.usage.record(usageRow, startedMs);
      }
      recorder.count(check, allowed);
      if (isEvent) recorder.recordEvent(eventOf(check, decisions[number], allowed, details));
    }
    return reserved;
  }

  #sendReserved(
    res: HttpResponse,
    { checks, isList, startedMs }: PendingReserve,
    reserved: ReserveAnswer,
  ): void {
    const { responder, clock, stats } = this.#dependencies;
    if (isList) responder.sendJson(res, JSON.stringify(listResult(checks, reserved)));
    else this.#send(res, reserveResult(checks[0], reserved));
    if (reserved.isRepetition !== true) stats.recordLatency(clock.monotonicMs() - startedMs);
  }

  /** Acquires a lease by its own limit, or by that of an override, whose use is counted. */
  #acquire(request: IdentifiedAcquire, startedMs: number): Eventual<Lease> {
    const { engine, overrides, stats } = this.#dependencies;
    const usageRow = overrides.resolveAcquire(request, request.identity);
    if (usageRow !== NOT_OVERRIDDEN) stats.usage.record(usageRow, startedMs);
    return engine.holds.acquire(request);
  }

  #acquireOnce(
    request: IdentifiedAcquire,
    key: Key,
    requestId: string,
    startedMs: number,
  ): Eventual<AcquireAnswer> {
    const { repeatable } = this.#dependencies;
    const { identity, limit, cost, ttlMs } = request;
    const parameters = { limit, cost, ttl: ttlMs };
    const terms = { operation: acquire.name, key, requestId, identity, parameters, startedMs };
    const answer = repeatable.answer(terms, () => {
      const acquired = this.#acquire(request, startedMs);
      return whenKnown(acquired, ({ granted: allowed, id, inUse, limit, expiresAt }) => {
        return { allowed, limit, remaining: 0, reset: 0, id, expiresAt, inUse };
      });
    });
    return whenKnown(answer, (answer) => ({ ...answer, granted: answer.allowed }));
  }

  /** @returns the lease */
  #recordLease(
    request: IdentifiedAcquire,
    lease: AcquireAnswer,
    details: RequestDetails | undefined,
  ): Lease {
    const { recorder } = this.#dependencies;
    const { granted, isRepetition } = lease;
    if (isRepetition === true) return lease;
    recorder.countLease(request, granted);
    if (details !== undefined && recorder.selects(granted)) {
      recorder.recordEvent(leaseEventOf(request, lease, details));
    }
    return lease;
  }

  /**
   * Does something with a hold.
   * @returns undefined if no hold has this id, or the key may not use all of its namespaces
   */
  #ofHold<T>(
    key: Key,
    kind: HoldKind,
    text: string,
    act: (hold: FoundHold) => Eventual<T | undefined>,
  ): Eventual<T | undefined> {
    const { keyring, finder, engine } = this.#dependencies;
    const id = parseHoldId(kind, text);
    if (id === undefined) return undefined;
    return whenKnown(engine.holds.namespacesOf(id), (namespaces) => {
      // It may have been revoked meanwhile.
      keyring.requireValid(key);
      if (namespaces === undefined) return undefined;
      const mayUse = namespaces.every((namespace) => finder.mayUseHold(key, namespace));
      return mayUse ? act({ id, count: namespaces.length }) : undefined;
    });
  }

  /** @param bodyOf may throw an ApiError */
  #respond<T>(res: HttpResponse, result: Eventual<T>, bodyOf: (result: T) => FlatObject): void {
    const { deferredResponses, responder } = this.#dependencies;
    const body = whenKnown(result, bodyOf);
    deferredResponses.respond(res, responder, body, (body) => this.#send(res, body));
  }

  #send(res: HttpResponse, body: FlatObject): void {
    const writer = this.#writer;
    writer.seek(0);
    writer.writeFlatObject(body);
    this.#dependencies.responder.sendJson(res, writer.finish());
  }
}
