/**
 * The routes that explain what the next check of an identifier would get, and why, and that find an
 * identifier in all namespaces. The main thread says which overrides match; the engine then shows
 * the counters, and predicts the check in one moment. Nothing changes. The response comes in a
 * later turn; a client that disconnects gets none.
 */

import type { NamespaceFinder } from '../api/common/namespace-finder.ts';
import type { UnknownFieldListener } from '../api/common/unknown-fields.ts';
import type { ExplainFacts, ExplainQuestion } from '../api/explain/facts.ts';
import type { FindQuestion, KnownPlaces } from '../api/explain/places.ts';
import { checksOf, mayUsePolicy, termsOf } from '../api/explain/terms.ts';
import type { CounterOperationV1 } from '../api/operations/unknown-field-stats.ts';
import { type ExplainRequest, explainResult, readExplain } from '../api/operations/v1/explain.ts';
import { type CountedPlace, findResult, readFind } from '../api/operations/v1/find-identifier.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { whenKnown } from '../core/eventual.ts';
import { type Hasher, newIdentity } from '../core/hash.ts';
import type { CounterState, Engine } from '../engine/engine.ts';
import type { BodyHandler } from './body.ts';
import type { DeferredResponses } from './deferred-responses.ts';
import type { OperationForwarder } from './operation-forwarder.ts';
import type { Responder } from './responder.ts';

interface ExplanationDependencies {
  keyring: Keyring;
  finder: NamespaceFinder;
  hasher: Hasher;
  engine: Engine;
  onUnknownFields: UnknownFieldListener<CounterOperationV1>;
  deferredResponses: DeferredResponses;
  operations: OperationForwarder;
  responder: Responder;
}

const ALL_COUNTERS = { durationsMs: undefined, rule: undefined };

export class ExplanationHandler {
  readonly #dependencies: ExplanationDependencies;

  constructor(dependencies: ExplanationDependencies) {
    this.#dependencies = dependencies;
  }

  readonly explain: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, finder, deferredResponses, responder, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const request = readExplain(finder, key, bytes, onUnknownFields);
    deferredResponses.respond(res, responder, this.#explain(key, request), (result) => {
      responder.sendJson(res, JSON.stringify(result));
    });
  };

  readonly findIdentifier: BodyHandler<Key> = (res, key, bytes) => {
    const { keyring, deferredResponses, responder, onUnknownFields } = this.#dependencies;
    keyring.requireValid(key);
    const request = readFind(key, bytes, onUnknownFields);
    deferredResponses.respond(res, responder, this.#find(key, request), (result) => {
      responder.sendJson(res, JSON.stringify(result));
    });
  };

  /** Looks in the namespaces one after the other: an engine may take a call for each. */
  async #find(key: Key, request: FindQuestion): Promise<object> {
    const { keyring, hasher, engine, operations, finder } = this.#dependencies;
    const known = await operations.ask<KnownPlaces>('ratelimits.findIdentifier', key, request);
    const counted: (CountedPlace | undefined)[] = [];
    for (const { name } of known.places) {
      const namespace = finder.find(key, 'read_namespace', name);
      // It was deleted meanwhile, or is so new that this acceptor does not know it yet.
      if (namespace === undefined) {
        counted.push(undefined);
        continue;
      }
      const identity = hasher.hash(namespace.hashState, request.identifier, newIdentity());
      const confirm = () => keyring.requireValid(key);
      const counters = await engine.inspect(identity, ALL_COUNTERS, confirm);
      counted.push({ counters, holds: await engine.holds.liveHolds(identity) });
    }
    return findResult(request, known, counted);
  }

  async #explain(key: Key, request: ExplainRequest): Promise<object> {
    const { keyring, hasher, engine, operations } = this.#dependencies;
    const { namespace } = request;
    const question: ExplainQuestion = {
      namespace: namespace.name,
      key: namespace.key,
      identifier: request.identifier,
      mayUsePolicy: mayUsePolicy(request),
    };
    // The winner and the losers are of one version, also if an override changes meanwhile.
    const facts = await operations.ask<ExplainFacts>('ratelimits.explain', key, question);
    const { identifier = request.identifier } = facts;
    const termsFor = (counters: readonly CounterState[]) => termsOf(request, facts, counters);
    const identity = newIdentity();
    hasher.hash(namespace.hashState, identifier, identity);
    const explanation = await engine.explain(
      namespace,
      identity,
      (counters) => checksOf(termsFor(counters)),
      () => keyring.requireValid(key),
    );
    const terms = termsFor(explanation.counters);
    return whenKnown(engine.holds.liveHolds(identity), (holds) => {
      return explainResult(request, facts, terms, explanation, holds);
    });
  }
}
