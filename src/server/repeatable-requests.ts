/**
 * Answers requests with a `requestId`. A repetition of an allowed request gets the same answer, and
 * is not a decision: its handler records nothing of it. Failures are ApiErrors: 409 for a
 * repetition with other parameters, and those of the engine.
 */

import { requestIdConflict } from '../api/common/repeatable.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import { NAMESPACE_ID_PREFIX } from '../core/constants.ts';
import type { CheckParameters } from '../core/decision.ts';
import { type Eventual, whenKnown } from '../core/eventual.ts';
import { type Hasher, type Identity, type NamespaceState, newIdentity } from '../core/hash.ts';
import type { RepeatableAnswer, RequestAnswer, RequestEngine } from '../engine/request-engine.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';

export interface RequestTerms {
  operation: string;
  key: Key;
  requestId: string;
  /** The hash of its namespace and identifier. */
  identity: Identity;
  /** Its other fields by name. An override has not replaced them. */
  parameters: Readonly<Record<string, number>>;
  startedMs: number;
}

export class RepeatableRequests {
  readonly #engine: RequestEngine;
  readonly #keyring: Keyring;
  readonly #hasher: Hasher;
  readonly #stats: AcceptorStats;
  /** No namespace has this key, so no hash here is the identity of a counter. */
  readonly #hashState: NamespaceState;
  /** Overwritten by each request. */
  readonly #request = { key: newIdentity(), parameters: newIdentity() };

  constructor(engine: RequestEngine, keyring: Keyring, hasher: Hasher, stats: AcceptorStats) {
    this.#engine = engine;
    this.#keyring = keyring;
    this.#hasher = hasher;
    this.#stats = stats;
    this.#hashState = hasher.namespace(`${NAMESPACE_ID_PREFIX}requests`);
  }

  /**
   * @param decide called unless it is a repetition: in the same turn, or in a later one in which
   *   the key is still valid. The answer then comes in a later turn too
   */
  answer(
    { operation, key, requestId, identity, parameters, startedMs }: RequestTerms,
    decide: (engine: RequestEngine) => Eventual<RequestAnswer>,
  ): Eventual<RepeatableAnswer> {
    const engine = this.#engine;
    const { h0, h1, h2, h3 } = identity;
    const request = this.#request;
    // Only the last part can contain a space.
    this.#hash([key.id, operation, h0, h1, h2, h3, requestId], request.key);
    this.#hash(Object.values(parameters), request.parameters);
    const answer = engine.answer(request, startedMs, () => {
      this.#keyring.requireValid(key);
      return decide(engine);
    });
    return whenKnown(answer, (answer) => {
      if (answer === undefined) throw requestIdConflict(requestId, Object.keys(parameters));
      if (answer.isRepetition) this.#stats.increment(ACCEPTOR_STAT.repeatedRequests);
      return answer;
    });
  }

  #hash(parts: readonly (string | number)[], into: ReturnType<typeof newIdentity>): void {
    this.#hasher.hash(this.#hashState, parts.join(' '), into);
  }
}

/** The parameters of a check, by the names of their fields. */
export function parametersOf({ limit, durationMs, rule, burst, cost }: CheckParameters) {
  return { limit, duration: durationMs, algorithm: rule, burst, cost };
}
