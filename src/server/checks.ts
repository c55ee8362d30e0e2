/**
 * The checks, as an acceptor answers them: the hot path of the service from a whole body to its
 * answer. One check goes to the decider; many at once are decided here, in place, in whatever mode:
 * they may belong to the shards of several workers, and are all or nothing.
 */

import { BodyScanner } from '../api/common/body-scanner.ts';
import { BodyWriter } from '../api/common/body-writer.ts';
import type { CheckRequest } from '../api/common/check-request.ts';
import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import type { RequestIds } from '../api/common/request-ids.ts';
import type { ByVersion } from '../api/common/versions.ts';
import { CheckReaderV1, writeResponseV1 } from '../api/v1/limit.ts';
import { CheckReaderV2, writeMultiResponse, writeResponseV2 } from '../api/v2/limit.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Check } from '../core/check.ts';
import { RESPONSE_MAX_BYTES } from '../core/constants.ts';
import type { Decision } from '../core/decision.ts';
import type { Identity } from '../core/hash.ts';
import { type Completion, countDecision, type Engine } from '../engine/engine.ts';
import type { Counters } from '../engine/memory/counters.ts';
import type { ActiveOverrides } from '../overrides/active.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { BodyHandler } from './body.ts';
import type { Responder } from './responder.ts';
import type { HttpResponse } from './uws.ts';

export interface CheckDependencies {
  keyring: Keyring;
  namespaces: NamespaceFinder;
  counters: Counters;
  overrides: ActiveOverrides;
  decider: Engine<HttpResponse>;
  clock: Clock;
  stats: AcceptorStats;
  ids: RequestIds;
  responders: ByVersion<Responder>;
}

export class CheckHandler {
  readonly #dependencies: CheckDependencies;
  readonly #readerV1: CheckReaderV1;
  readonly #readerV2: CheckReaderV2;
  readonly #writer = new BodyWriter(RESPONSE_MAX_BYTES);
  readonly #completionV1: Completion<HttpResponse>;
  readonly #completionV2: Completion<HttpResponse>;

  constructor(dependencies: CheckDependencies) {
    const { ids, namespaces, responders } = dependencies;
    const writer = this.#writer;
    const scan = new BodyScanner();
    this.#dependencies = dependencies;
    this.#readerV1 = new CheckReaderV1(scan, namespaces);
    this.#readerV2 = new CheckReaderV2(scan, namespaces);
    this.#completionV1 = createCompletion(responders.v1, writeResponseV1);
    this.#completionV2 = createCompletion(responders.v2, (check, decision) =>
      writeResponseV2(writer, ids, check, decision),
    );
  }

  readonly limitV1: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, clock } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = this.#readerV1.read(key, bytes);
    this.#decide(res, check, this.#identifyAndOverride(check), startedMs, this.#completionV1);
  };

  readonly limitV2: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, clock } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = this.#readerV2.read(key, bytes);
    this.#decide(res, check, this.#identifyAndOverride(check), startedMs, this.#completionV2);
  };

  readonly multiLimitV2: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, counters, clock, stats, ids, responders } = this.#dependencies;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const checks = this.#readerV2.readMany(key, bytes);
    const { batch } = counters;
    batch.begin();
    checks.forEach((check, number) => {
      // Patterns made for it keep each check busy for some 20 ms: the thread does not hang.
      if (number % 8 === 0) stats.heartbeat();
      const id = this.#identifyAndOverride(check);
      batch.add(id, check.namespace.hashState[0], check);
    });
    const passed = batch.decide(clock.wallMs(startedMs));
    const decision = (number: number) => batch.decision(number);
    checks.forEach(({ namespace, cost }, number) => {
      countDecision(stats, namespace, cost, passed, decision(number).outcome);
    });
    responders.v2.sendJson(res, writeMultiResponse(this.#writer, ids, checks, passed, decision));
    stats.recordLatency(clock.monotonicMs() - startedMs);
  };

  /** Its identity, overwritten by the next; and the check as an override has it. */
  #identifyAndOverride(check: CheckRequest): Identity {
    const { counters, overrides, stats } = this.#dependencies;
    const { namespace, memory, identifierFrom, identifierTo } = check;
    const id = counters.identifyBytes(namespace.hashState, memory, identifierFrom, identifierTo);
    if (overrides.resolve(check, id)) stats.increment(ACCEPTOR_STAT.overriddenChecks);
    return id;
  }

  #decide(
    res: HttpResponse,
    check: Check,
    id: Identity,
    startedMs: number,
    completion: Completion<HttpResponse>,
  ): void {
    const { decider, clock, stats } = this.#dependencies;
    const decision = decider.decide(check, id, startedMs, res, completion);
    if (decision === undefined) return;
    completion.complete(res, check, decision);
    stats.recordLatency(clock.monotonicMs() - startedMs);
  }
}

function createCompletion(
  responder: Responder,
  bodyOf: (check: Check, decision: Decision) => Uint8Array,
): Completion<HttpResponse> {
  return {
    complete: (res, check, decision) => responder.sendJson(res, bodyOf(check, decision)),
    fail: (res, error) => responder.sendError(res, error),
  };
}
