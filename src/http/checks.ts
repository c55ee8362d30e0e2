/**
 * The checks, as an acceptor answers them: the hot path of the service from a whole body to its
 * answer. One check goes to the decider; many at once are decided here, in place, in whatever mode:
 * they may belong to the shards of several workers, and are all or nothing.
 */

import type { ByVersion } from '../api/faces.ts';
import type { NamespaceFinder } from '../api/finder.ts';
import type { RequestIds } from '../api/request-ids.ts';
import { answerV1, readV1 } from '../api/v1/limit.ts';
import { answerMany, answerV2, readMany, readV2 } from '../api/v2/limit.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Counters } from '../counters/counters.ts';
import type { Identity } from '../counters/hash.ts';
import { type Asker, type Check, type Decider, tally } from '../decide/decider.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import type { OverridesInForce } from '../overrides/in-force.ts';
import type { Clock } from '../time.ts';
import type { OnBody } from './body.ts';
import type { Replies } from './reply.ts';
import type { HttpResponse } from './uws.ts';

export interface CheckParts {
  keyring: Keyring;
  namespaces: NamespaceFinder;
  counters: Counters;
  overrides: OverridesInForce;
  decider: Decider;
  clock: Clock;
  lane: AcceptorLane;
  ids: RequestIds;
  replies: ByVersion<Replies>;
}

export class Checks {
  readonly #parts: CheckParts;
  readonly #v1: Asker;
  readonly #v2: Asker;

  constructor(parts: CheckParts) {
    const { ids, replies } = parts;
    this.#parts = parts;
    this.#v1 = asker(replies.v1, answerV1);
    this.#v2 = asker(replies.v2, (check, decision) => answerV2(check, decision, ids.next()));
  }

  readonly v1: OnBody<Key> = (res, key, bytes) => {
    const { keyring, namespaces, counters, overrides, clock, lane } = this.#parts;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = readV1(namespaces, key, bytes);
    const id = counters.identify(check.namespace.state, check.identifier);
    if (overrides.govern(check, id)) lane.count(COUNT.overridden);
    this.#decide(res, check, id, startedMs, this.#v1);
  };

  readonly v2: OnBody<Key> = (res, key, bytes) => {
    const { keyring, namespaces, clock } = this.#parts;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = readV2(namespaces, key, bytes);
    this.#decide(res, check, this.#identify(check), startedMs, this.#v2);
  };

  readonly many: OnBody<Key> = (res, key, bytes) => {
    const { keyring, namespaces, counters, clock, lane, ids, replies } = this.#parts;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const many = readMany(namespaces, key, bytes);
    const { together } = counters;
    together.begin();
    many.checks.forEach((check, number) => {
      // Patterns made for it keep each check busy for some 20 ms: the thread does not hang.
      if (number % 8 === 0) lane.beat();
      const id = this.#identify(check);
      together.add(id, check.namespace.state[0], check);
    });
    const passed = together.decide(clock.wallMs(startedMs));
    const decision = (number: number) => together.decision(number);
    many.checks.forEach(({ namespace, cost }, number) => {
      tally(lane, namespace, cost, passed, decision(number).outcome);
    });
    replies.v2.json(res, answerMany(many, passed, decision, ids.next()));
    lane.answered(clock.monotonicMs() - startedMs);
  };

  /** Its identity, overwritten by the next; and the check as an override has it, by its name. */
  #identify(check: Check): Identity {
    const { counters, overrides, lane } = this.#parts;
    const id = counters.identify(check.namespace.state, check.identifier);
    if (overrides.govern(check, id)) {
      lane.count(COUNT.overridden);
      check.overrideId = overrides.governingId();
    }
    return id;
  }

  #decide(res: HttpResponse, check: Check, id: Identity, startedMs: number, asker: Asker): void {
    const { decider, clock, lane } = this.#parts;
    const decision = decider.decide(check, id, startedMs, res, asker);
    if (decision === undefined) return;
    asker.answer(res, check, decision);
    lane.answered(clock.monotonicMs() - startedMs);
  }
}

function asker(replies: Replies, text: (...of: Parameters<typeof answerV1>) => string): Asker {
  return {
    answer: (res, check, decision) => replies.json(res, text(check, decision)),
    fail: (res, error) => replies.error(res, error),
  };
}
