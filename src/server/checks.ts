/**
 * The routes of checks: the hot path of the service, from a complete body to its response. A single
 * check and a list of checks go to the engine, which may decide them in a later turn.
 */

import type { BodyScanner } from '../api/common/body-scanner.ts';
import type { CheckRequest } from '../api/common/check-request.ts';
import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import type { RequestIds } from '../api/common/request-ids.ts';
import type { UnknownFieldListener } from '../api/common/unknown-fields.ts';
import type { ByVersion } from '../api/common/versions.ts';
import type { CounterOperationV1 } from '../api/operations/unknown-field-stats.ts';
import { CheckReaderV1, limitV1, writeResponseV1 } from '../api/operations/v1/limit.ts';
import { CheckReaderV2, writeResponseV2 } from '../api/operations/v2/limit.ts';
import { CheckListReader, writeListResponse } from '../api/operations/v2/multi-limit.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Check } from '../core/check.ts';
import { MULTI_LIMIT_MAX, RESPONSE_MAX_BYTES } from '../core/constants.ts';
import type { Decision } from '../core/decision.ts';
import { ApiError } from '../core/errors.ts';
import { whenKnown } from '../core/eventual.ts';
import type { Hasher } from '../core/hash.ts';
import { JsonWriter } from '../core/json-writer.ts';
import { type DecisionRecorder, eventOf } from '../decision-thread/decision-recorder.ts';
import type { BatchCompletion, BatchDecision, Completion, Engine } from '../engine/engine.ts';
import type { RepeatableAnswer } from '../engine/request-engine.ts';
import type { RequestDetails } from '../events/decision-event.ts';
import { withBodyDetails } from '../events/request-details.ts';
import { type ActiveOverrides, NOT_OVERRIDDEN } from '../overrides/active.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { DeferredResponses } from './deferred-responses.ts';
import { parametersOf, type RepeatableRequests } from './repeatable-requests.ts';
import type { Responder } from './responder.ts';
import type { Turns } from './turns.ts';
import type { HttpResponse } from './uws.ts';

interface CheckDependencies {
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
  turns: Turns;
  onUnknownFields: UnknownFieldListener<CounterOperationV1>;
  ids: RequestIds;
  responders: ByVersion<Responder>;
}

/**
 * After how many checks a list that resolves its overrides looks at the clock: after each, and
 * after up to so many while they are quick.
 */
const CHECKS_PER_LOOK_MAX = 8;
const QUICK_MS = 0.1;

/**
 * A list pauses only after searches for overrides that take as long as so many requests. Its slice
 * of time may have been another process's, and a pipelined request after it closes the connection.
 */
const PAUSE_REQUESTS_MIN = 32;

/** The response to a single check, at once or deferred. */
interface CheckRoute {
  send(res: HttpResponse, check: Check, decision: Decision): void;
  completion: Completion<HttpResponse>;
}

/**
 * A list of checks. Their overrides are resolved one after the other, in later turns too if it
 * takes long; then the engine decides all checks as one, now or later.
 */
interface CheckList {
  readonly res: HttpResponse;
  readonly key: Key;
  readonly details: RequestDetails | undefined;
  readonly startedMs: number;
  checks: readonly CheckRequest[];
  /** The number of the check whose override is resolved next. */
  next: number;
  /** By check: the usage row of its override, of `activation` of the overrides. */
  usageRows: Int32Array;
  activation: number;
}

/** @param details of the head; undefined where the decisions on the request do not become events */
export type CheckBodyHandler = (
  res: HttpResponse,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  details?: RequestDetails,
) => void;

export class CheckHandler {
  readonly #dependencies: CheckDependencies;
  readonly #readerV1: CheckReaderV1;
  readonly #readerV2: CheckReaderV2;
  readonly #listReader: CheckListReader;
  readonly #writer = new JsonWriter(RESPONSE_MAX_BYTES);
  /** Those of a list that is decided in its turn. */
  readonly #usageRows = new Int32Array(MULTI_LIMIT_MAX);
  readonly #routeV1: CheckRoute;
  readonly #routeV2: CheckRoute;
  readonly #listCompletion: BatchCompletion<CheckList>;

  constructor(dependencies: CheckDependencies) {
    const { deferredResponses, scanner, finder, recorder, ids, responders, onUnknownFields } =
      dependencies;
    const { hasEvents } = recorder;
    const writer = this.#writer;
    this.#dependencies = dependencies;
    this.#readerV1 = new CheckReaderV1(scanner, finder, onUnknownFields, hasEvents);
    this.#readerV2 = new CheckReaderV2(scanner, finder);
    this.#listReader = new CheckListReader(scanner, finder);
    this.#routeV1 = createRoute(responders.v1, deferredResponses, recorder, writeResponseV1);
    this.#routeV2 = createRoute(responders.v2, deferredResponses, recorder, (check, decision) =>
      writeResponseV2(writer, ids, check, decision),
    );
    this.#listCompletion = {
      complete: (list, _startedMs, _checks, decision) => {
        const { res, startedMs } = list;
        this.#recordList(list, decision);
        deferredResponses.complete(res, startedMs, () => this.#sendList(list, decision));
      },
      fail: ({ res }, error) => {
        deferredResponses.fail(res, () => responders.v2.sendError(res, error));
      },
    };
  }

  readonly limitV1: CheckBodyHandler = (res, key, bytes, details) => {
    const { keyring, clock } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = this.#readerV1.read(key, bytes);
    if (check.requestId !== undefined) {
      this.#decideOnce(res, key, check, check.requestId, startedMs, bytes, details);
      return;
    }
    this.#identifyAndOverride(check, startedMs);
    this.#decide(res, check, startedMs, this.#routeV1, bytes, details);
  };

  readonly limitV2: CheckBodyHandler = (res, key, bytes, details) => {
    const { keyring, clock } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = this.#readerV2.read(key, bytes);
    this.#identifyAndOverride(check, startedMs);
    this.#decide(res, check, startedMs, this.#routeV2, bytes, details);
  };

  readonly multiLimitV2: CheckBodyHandler = (res, key, bytes, details) => {
    const { keyring, clock, turns, overrides } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const checks = this.#listReader.read(key, bytes);
    turns.addChecks(checks.length);
    const usageRows = this.#usageRows;
    const { activation } = overrides;
    const list = { res, key, details, startedMs, checks, next: 0, usageRows, activation };
    const nowMs = clock.monotonicMs();
    if (this.#resolve(list, turns.sliceEndMs(nowMs))) this.#decideList(list, startedMs);
    else this.#pause(list, nowMs);
  };

  /**
   * Applies overrides to the checks of a list, to some at least.
   * @returns whether all are done; not if `endMs` has passed with searches that take long
   */
  #resolve(list: CheckList, endMs: number): boolean {
    const { clock, turns } = this.#dependencies;
    const { checks, usageRows } = list;
    const longRequests = turns.requests + PAUSE_REQUESTS_MIN;
    let lookMs = clock.monotonicMs();
    let checksPerLook = 1;
    do {
      const end = Math.min(list.next + checksPerLook, checks.length);
      for (; list.next < end; list.next++) {
        usageRows[list.next] = this.#resolveOverride(checks[list.next]);
      }
      if (end === checks.length) return true;
      const nowMs = clock.monotonicMs();
      const isQuick = nowMs - lookMs < QUICK_MS;
      checksPerLook = isQuick ? Math.min(2 * checksPerLook, CHECKS_PER_LOOK_MAX) : 1;
      lookMs = nowMs;
    } while (lookMs < endMs || turns.requests < longRequests);
    return false;
  }

  /**
   * Goes on with a list in later turns. Nothing is counted if its client disconnects before.
   * @param beganMs when its first slice began
   * @throws ApiError (503) where too many lists do
   */
  #pause(list: CheckList, beganMs: number): void {
    const { keyring, clock, turns, responders, overrides } = this.#dependencies;
    const { res, key } = list;
    turns.requireRoom();
    list.checks = list.checks.map((check) => check.copy());
    list.usageRows = list.usageRows.slice();
    const namespaces = new Set(list.checks.map(({ namespace }) => namespace));
    const usable = [...namespaces].filter(({ isTransient }) => !isTransient);
    const proceed = (endMs: number): boolean => {
      if (list.activation !== overrides.activation) {
        // These rows may belong to other overrides now: this use is not counted.
        list.usageRows.fill(NOT_OVERRIDDEN, 0, list.next);
        list.activation = overrides.activation;
      }
      if (!this.#resolve(list, endMs)) return false;
      keyring.requireValid(key);
      if (usable.some(({ isTransient }) => isTransient)) throw namespaceDeleted();
      this.#decideList(list, clock.monotonicMs());
      return true;
    };
    const proceedCorked = (endMs: number) => {
      let isFinished = true;
      res.cork(() => {
        try {
          isFinished = proceed(endMs);
        } catch (error) {
          responders.v2.sendError(res, error);
        }
      });
      return isFinished;
    };
    turns.pause(res, { proceed: proceedCorked }, clock.monotonicMs() - beganMs);
  }

  #decideList(list: CheckList, decidedMs: number): void {
    const { engine, clock, stats, deferredResponses } = this.#dependencies;
    const { res, checks, startedMs, usageRows } = list;
    for (let i = 0; i < checks.length; i++)
      this.#recordOverride(checks[i], usageRows[i], decidedMs);
    const decision = engine.decideBatch(checks, decidedMs, list, this.#listCompletion);
    if (decision === undefined) {
      list.checks = checks.map((check) => check.copy());
      deferredResponses.defer(res);
      return;
    }
    this.#recordList(list, decision);
    this.#sendList(list, decision);
    stats.recordLatency(clock.monotonicMs() - startedMs);
  }

  #identifyAndOverride(check: CheckRequest, startedMs: number): void {
    this.#recordOverride(check, this.#resolveOverride(check), startedMs);
  }

  /**
   * Hashes the identifier of a check, and applies the override that there is for it.
   * @returns its usage row
   */
  #resolveOverride(check: CheckRequest): number {
    const { hasher, overrides } = this.#dependencies;
    const { namespace, identity, memory, identifierFrom, identifierTo } = check;
    hasher.hashBytes(namespace.hashState, memory, identifierFrom, identifierTo, identity);
    return overrides.resolve(check, identity);
  }

  #recordOverride(check: CheckRequest, usageRow: number, startedMs: number): void {
    const { stats } = this.#dependencies;
    if (usageRow === NOT_OVERRIDDEN) return;
    stats.increment(ACCEPTOR_STAT.overriddenChecks);
    // A check with cost 0 only asks.
    if (check.cost > 0) stats.usage.record(usageRow, startedMs);
  }

  #decide(
    res: HttpResponse,
    check: CheckRequest,
    startedMs: number,
    route: CheckRoute,
    bytes: ArrayBuffer | Uint8Array,
    details: RequestDetails | undefined,
  ): void {
    const { engine, clock, stats, deferredResponses, recorder } = this.#dependencies;
    const decision = engine.decide(check, startedMs, res, route.completion);
    if (decision === undefined) {
      if (details !== undefined) recorder.keepDetails(res, detailsOf(check, details, bytes));
      deferredResponses.defer(res);
      return;
    }
    this.#record(check, decision, bytes, details);
    route.send(res, check, decision);
    stats.recordLatency(clock.monotonicMs() - startedMs);
  }

  /** Decides a check of v1 that is never asynchronous, unless it repeats one that was allowed. */
  #decideOnce(
    res: HttpResponse,
    key: Key,
    check: CheckRequest,
    requestId: string,
    startedMs: number,
    bytes: ArrayBuffer | Uint8Array,
    details: RequestDetails | undefined,
  ): void {
    const { repeatable, overrides, recorder, clock, stats, deferredResponses, responders } =
      this.#dependencies;
    const { identity } = check;
    const parameters = parametersOf(check);
    const usageRow = this.#resolveOverride(check);
    const { activation } = overrides;
    const request = details && detailsOf(check, details, bytes);
    let decided = check;
    const terms = { operation: limitV1.name, key, requestId, identity, parameters, startedMs };
    const answer = repeatable.answer(terms, (engine) => {
      return whenKnown(engine.decide(decided, startedMs), ({ allowed, remaining, reset }) => {
        const withoutHold = { id: undefined, expiresAt: 0, inUse: 0 };
        return { allowed, limit: decided.limit, remaining, reset, ...withoutHold };
      });
    });
    if (answer instanceof Promise) decided = check.copy();
    const recorded = whenKnown(answer, (answer) => {
      if (answer.isRepetition) return answer;
      const { allowed } = answer;
      if (activation === overrides.activation) this.#recordOverride(decided, usageRow, startedMs);
      const records = recorder.count(decided, allowed, request);
      if (records !== 0) recorder.record(records, eventOf(decided, answer, allowed, request));
      return answer;
    });
    const { v1: responder } = responders;
    const send = (answer: RepeatableAnswer) => {
      responder.sendJson(res, writeResponseV1(answer, answer));
      if (!answer.isRepetition) stats.recordLatency(clock.monotonicMs() - startedMs);
    };
    deferredResponses.respond(res, responder, recorded, send, true);
  }

  #record(
    check: CheckRequest,
    decision: Pick<Decision, 'allowed' | 'remaining' | 'reset'>,
    bytes: ArrayBuffer | Uint8Array,
    details: RequestDetails | undefined,
  ): void {
    const { recorder } = this.#dependencies;
    const { allowed } = decision;
    const records = recorder.count(check, allowed, details);
    if (records === 0) return;
    const request = details && detailsOf(check, details, bytes);
    recorder.record(records, eventOf(check, decision, allowed, request));
  }

  #recordList({ checks, details }: CheckList, { allowed, decisions }: BatchDecision): void {
    const { recorder } = this.#dependencies;
    for (let number = 0; number < checks.length; number++) {
      const check = checks[number];
      const isCause = decisions[number].allowed === allowed;
      const records = recorder.count(check, allowed, details, isCause);
      if (records === 0) continue;
      recorder.record(records, eventOf(check, decisions[number], allowed, details));
    }
  }

  #sendList({ res, checks }: CheckList, { allowed, decisions }: BatchDecision): void {
    const { ids, responders } = this.#dependencies;
    const body = writeListResponse(this.#writer, ids, checks, allowed, decisions);
    responders.v2.sendJson(res, body);
  }
}

function namespaceDeleted(): ApiError {
  const message = 'a namespace of the list was deleted meanwhile; nothing was counted';
  return new ApiError('SERVICE_UNAVAILABLE', message);
}

/** The details of a request with those of its body, for a check whose body may have any. */
function detailsOf(
  { mayHaveOtherFields }: CheckRequest,
  details: RequestDetails,
  bytes: ArrayBuffer | Uint8Array,
): RequestDetails {
  return mayHaveOtherFields ? withBodyDetails(details, bytes) : details;
}

function createRoute(
  responder: Responder,
  deferredResponses: DeferredResponses,
  recorder: DecisionRecorder,
  bodyOf: (check: Check, decision: Decision) => Uint8Array,
): CheckRoute {
  const send = (res: HttpResponse, check: Check, decision: Decision) => {
    responder.sendJson(res, bodyOf(check, decision));
  };
  return {
    send,
    completion: {
      complete: (res, startedMs, check, decision) => {
        const { allowed } = decision;
        const details = recorder.keptDetails(res);
        const records = recorder.countText(check, check.cost, allowed, details);
        if (records !== 0) recorder.record(records, eventOf(check, decision, allowed, details));
        deferredResponses.complete(res, startedMs, () => send(res, check, decision));
      },
      fail: (res, error) => {
        deferredResponses.fail(res, () => responder.sendError(res, error));
      },
    },
  };
}
