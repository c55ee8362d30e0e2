/**
 * The routes of reservations and leases. An engine that has to ask Redis answers in a later turn. A
 * client that disconnects before gets no response; its hold is made or ended, and counted, all the
 * same. A hold in a namespace that the key may not use is answered as one that does not exist.
 */

import { type BodyScanner, FIELD } from '../api/common/body-scanner.ts';
import type { CheckRequest } from '../api/common/check-request.ts';
import { HoldReader, type HoldRequest } from '../api/common/hold-reader.ts';
import { holdNotFound } from '../api/common/holds.ts';
import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import { readBody, type UnknownFieldListener } from '../api/common/unknown-fields.ts';
import type { CounterOperationV1 } from '../api/operations/unknown-field-stats.ts';
import {
  AcquireReader,
  type AcquireRequest,
  acquire,
  writeAcquireResult,
} from '../api/operations/v1/acquire.ts';
import { cancel } from '../api/operations/v1/cancel.ts';
import { commit, costsOf, writeCommitResult } from '../api/operations/v1/commit.ts';
import { release } from '../api/operations/v1/release.ts';
import { ENDED_LEASE, renew, renewResult } from '../api/operations/v1/renew.ts';
import {
  listResult,
  ReserveReader,
  reserve,
  writeReserveResult,
} from '../api/operations/v1/reserve.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { newDecision } from '../core/decision.ts';
import { type Eventual, whenKnown } from '../core/eventual.ts';
import type { Hasher } from '../core/hash.ts';
import { encodeFragment, JsonWriter } from '../core/json-writer.ts';
import {
  type DecisionRecorder,
  eventOf,
  leaseEventOf,
} from '../decision-thread/decision-recorder.ts';
import type { Engine } from '../engine/engine.ts';
import type { Commit, Lease, NamespaceFingerprint, Reservation } from '../engine/hold-engine.ts';
import { formatHoldId, HOLD_KIND, type HoldId, type HoldKind } from '../engine/hold-id.ts';
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
  scanner: BodyScanner;
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

/** An operation on a hold that its request names. */
interface HoldOperation<T> {
  kind: HoldKind;
  reader: HoldReader;
  /** @param count how many checks the hold has */
  act(id: HoldId, request: HoldRequest, count: number): Eventual<T | undefined>;
  /** Writes the body of the 200. */
  write(writer: JsonWriter, result: T): void;
  /** The result for a hold that is unknown to the key. Undefined: a 404. */
  unknown?: T;
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

interface ReserveAnswer extends Reservation {
  /** Whether nothing was decided now. */
  isRepetition?: boolean;
}

interface AcquireAnswer extends Lease {
  /** Whether nothing was decided now. */
  isRepetition?: boolean;
}

/** Bits of FIELD: none beside the id of the hold. */
const NO_FIELDS = 0;

/** More than the longest response. */
const RESPONSE_BYTES = 512;

export class HoldHandler {
  readonly #dependencies: HoldDependencies;
  readonly #reserveReader: ReserveReader;
  readonly #acquireReader: AcquireReader;
  readonly #writer = new JsonWriter(RESPONSE_BYTES);
  readonly commit: BodyHandler<Key>;
  readonly cancel: BodyHandler<Key>;
  readonly renew: BodyHandler<Key>;
  readonly release: BodyHandler<Key>;

  constructor(dependencies: HoldDependencies) {
    const { scanner, finder, engine, onUnknownFields, recorder } = dependencies;
    const { holds } = engine;
    this.#dependencies = dependencies;
    this.#reserveReader = new ReserveReader(scanner, finder, onUnknownFields, recorder.hasEvents);
    this.#acquireReader = new AcquireReader(scanner, finder, onUnknownFields);
    const { reservation, lease } = HOLD_KIND;
    this.commit = this.#handlerOf<Commit>({
      kind: reservation,
      reader: new HoldReader(scanner, reservation, FIELD.cost, (key, bytes) => {
        return readBody(commit.validator, bytes, commit.name, key, onUnknownFields);
      }),
      act: (id, request, count) => holds.commit(id, costsOf(request, count)),
      write: writeCommitResult,
    });
    this.cancel = this.#handlerOf<number>({
      kind: reservation,
      reader: new HoldReader(scanner, reservation, NO_FIELDS, (key, bytes) => {
        return readBody(cancel.validator, bytes, cancel.name, key, onUnknownFields);
      }),
      act: (id) => holds.cancel(id),
      write: writeReleased,
    });
    this.renew = this.#handlerOf<Lease>({
      kind: lease,
      reader: new HoldReader(scanner, lease, FIELD.ttl, (key, bytes) => {
        return readBody(renew.validator, bytes, renew.name, key, onUnknownFields);
      }),
      act: (id, { ttlMs }) => holds.renew(id, ttlMs),
      write: (writer, renewed) => writer.writeFlatObject(renewResult(renewed)),
      unknown: ENDED_LEASE,
    });
    this.release = this.#handlerOf<number>({
      kind: lease,
      reader: new HoldReader(scanner, lease, NO_FIELDS, (key, bytes) => {
        return readBody(release.validator, bytes, release.name, key, onUnknownFields);
      }),
      act: (id) => holds.release(id),
      write: writeReleased,
    });
  }

  /** Checks, which count and are recorded as all others. */
  readonly reserve: CheckBodyHandler = (res, key, bytes, details) => {
    const { keyring, clock, overrides, engine, deferredResponses, responder } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const { checks, ttlMs, isList } = this.#reserveReader.read(key, bytes);
    const [first] = checks;
    const { requestId } = first;
    // Those of the request, which an override may replace.
    const parameters = requestId === undefined ? {} : { ...parametersOf(first), ttl: ttlMs };
    const usageRows = Array<number>(checks.length);
    for (let number = 0; number < checks.length; number++) {
      const check = checks[number];
      this.#identify(check);
      usageRows[number] = overrides.resolve(check, check.identity);
    }
    const { activation } = overrides;
    const request = { key, checks, ttlMs, isList, startedMs, details, usageRows, activation };
    const reserved: Eventual<ReserveAnswer> =
      requestId === undefined
        ? engine.holds.reserve(checks, startedMs, ttlMs)
        : this.#reserveOnce(request, requestId, parameters);
    if (!(reserved instanceof Promise)) {
      this.#recordReserved(request, reserved);
      this.#sendReserved(res, request, reserved);
      return;
    }
    request.checks = checks.map((check) => check.copy());
    const recorded = reserved.then((reserved) => this.#recordReserved(request, reserved));
    const send = (reserved: ReserveAnswer) => this.#sendReserved(res, request, reserved);
    deferredResponses.respond(res, responder, recorded, send, true);
  };

  /** Its decision is recorded too, but apart from those on checks. */
  readonly acquire: CheckBodyHandler = (res, key, bytes, details) => {
    const { keyring, clock, deferredResponses, responder } = this.#dependencies;
    keyring.requireValid(key);
    const startedMs = clock.monotonicMs();
    const request = this.#acquireReader.read(key, bytes);
    this.#identify(request);
    const { requestId } = request;
    const acquired: Eventual<AcquireAnswer> =
      requestId === undefined
        ? this.#acquire(request, startedMs)
        : this.#acquireOnce(request.copy(), key, requestId, startedMs);
    if (!(acquired instanceof Promise)) {
      this.#recordLease(request, acquired, details);
      this.#send(res, writeAcquireResult, acquired);
      return;
    }
    const kept = request.copy();
    const recorded = acquired.then((lease) => this.#recordLease(kept, lease, details));
    const send = (lease: Lease) => this.#send(res, writeAcquireResult, lease);
    deferredResponses.respond(res, responder, recorded, send);
  };

  #identify(request: CheckRequest | AcquireRequest): void {
    const { hasher } = this.#dependencies;
    const { namespace, identity, memory, identifierFrom, identifierTo } = request;
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
    for (let number = 0; number < checks.length; number++) {
      const check = checks[number];
      const usageRow = usageRows[number];
      if (hasRows && usageRow !== NOT_OVERRIDDEN) {
        stats.increment(ACCEPTOR_STAT.overriddenChecks);
        if (check.cost > 0) stats.usage.record(usageRow, startedMs);
      }
      const isCause = decisions[number].allowed === allowed;
      const records = recorder.count(check, allowed, details, isCause);
      if (records === 0) continue;
      recorder.record(records, eventOf(check, decisions[number], allowed, details));
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
    else {
      const writer = this.#writer;
      writer.seek(0);
      writeReserveResult(writer, checks[0], reserved);
      responder.sendJson(res, writer.finish());
    }
    if (reserved.isRepetition !== true) stats.recordLatency(clock.monotonicMs() - startedMs);
  }

  /** Acquires a lease by its own limit, or by that of an override, whose use is counted. */
  #acquire(request: AcquireRequest, startedMs: number): Eventual<Lease> {
    const { engine, overrides, stats } = this.#dependencies;
    const usageRow = overrides.resolveAcquire(request, request.identity);
    if (usageRow !== NOT_OVERRIDDEN) stats.usage.record(usageRow, startedMs);
    return engine.holds.acquire(request);
  }

  #acquireOnce(
    request: AcquireRequest,
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
    request: AcquireRequest,
    lease: AcquireAnswer,
    details: RequestDetails | undefined,
  ): Lease {
    const { recorder } = this.#dependencies;
    const { granted, isRepetition } = lease;
    if (isRepetition === true) return lease;
    const records = recorder.countLease(request, granted, details);
    if (records !== 0) recorder.record(records, leaseEventOf(request, lease, details));
    return lease;
  }

  #handlerOf<T>(operation: HoldOperation<T>): BodyHandler<Key> {
    const { keyring, engine, deferredResponses, responder } = this.#dependencies;
    const { reader, write } = operation;
    return (res, key, bytes) => {
      keyring.requireValid(key);
      const request = reader.read(key, bytes);
      const { id } = request;
      const namespaces = id && engine.holds.namespacesOf(id);
      const result =
        namespaces instanceof Promise
          ? this.#actLater(operation, key, { ...request }, namespaces)
          : this.#act(operation, key, request, namespaces);
      if (!(result instanceof Promise)) this.#send(res, write, result);
      else {
        deferredResponses.respond(res, responder, result, (result) => {
          this.#send(res, write, result);
        });
      }
    };
  }

  async #actLater<T>(
    operation: HoldOperation<T>,
    key: Key,
    request: HoldRequest,
    namespaces: Promise<readonly NamespaceFingerprint[] | undefined>,
  ): Promise<T> {
    const found = await namespaces;
    // It may have been revoked meanwhile.
    this.#dependencies.keyring.requireValid(key);
    return this.#act(operation, key, request, found);
  }

  /** @param namespaces those of the hold; undefined if there is none */
  #act<T>(
    operation: HoldOperation<T>,
    key: Key,
    request: HoldRequest,
    namespaces: readonly NamespaceFingerprint[] | undefined,
  ): Eventual<T> {
    const { id, invalidId } = request;
    const { finder } = this.#dependencies;
    const mayUse =
      id !== undefined &&
      namespaces?.every((namespace) => finder.mayUseHold(key, namespace)) === true;
    const result = mayUse ? operation.act(id, request, namespaces.length) : undefined;
    return result instanceof Promise
      ? result.then((result) => resultOf(operation, id, invalidId, result))
      : resultOf(operation, id, invalidId, result);
  }

  #send<T>(res: HttpResponse, write: (writer: JsonWriter, result: T) => void, result: T): void {
    const writer = this.#writer;
    writer.seek(0);
    write(writer, result);
    this.#dependencies.responder.sendJson(res, writer.finish());
  }
}

/** @throws ApiError (404) for a hold that is unknown to the key, unless that is a result */
function resultOf<T>(
  { kind, unknown }: HoldOperation<T>,
  id: HoldId | undefined,
  invalidId: string,
  result: T | undefined,
): T {
  const known = result ?? unknown;
  if (known !== undefined) return known;
  throw holdNotFound(kind, id === undefined ? invalidId : formatHoldId(id));
}

const RELEASED = encodeFragment('{"released":');
const END = encodeFragment('}');

/** Writes the body of the 200 of a cancel, and of a release. */
function writeReleased(writer: JsonWriter, released: number): void {
  writer.writeFragment(RELEASED);
  writer.writeInteger(released);
  writer.writeFragment(END);
}
