/**
 * The checks, as an acceptor answers them: the hot path of the service from a whole body to its
 * answer. One check goes to the decider; many at once are decided here, in place, in whatever mode:
 * they may belong to the shards of several workers, and are all or nothing.
 */

import { AnswerWriter } from '../api/answer.ts';
import type { AskedCheck } from '../api/asked.ts';
import type { ByVersion } from '../api/faces.ts';
import type { NamespaceFinder } from '../api/finder.ts';
import type { RequestIds } from '../api/request-ids.ts';
import { Scan } from '../api/scan.ts';
import { answerV1, ReaderV1 } from '../api/v1/limit.ts';
import { answerMany, answerV2, ReaderV2 } from '../api/v2/limit.ts';
import type { Key, Keyring } from '../auth/keyring.ts';
import type { Counters } from '../counters/counters.ts';
import type { Identity } from '../counters/hash.ts';
import type { Decision } from '../counters/window.ts';
import { type Asker, type Check, type Decider, tally } from '../decide/decider.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import { ANSWER_MAX_BYTES } from '../limits.ts';
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
  readonly #reader1: ReaderV1;
  readonly #reader2: ReaderV2;
  readonly #writer = new AnswerWriter(ANSWER_MAX_BYTES);
  readonly #v1: Asker;
  readonly #v2: Asker;

  constructor(parts: CheckParts) {
    const { ids, namespaces, replies } = parts;
    const writer = this.#writer;
    const scan = new Scan();
    this.#parts = parts;
    this.#reader1 = new ReaderV1(scan, namespaces);
    this.#reader2 = new ReaderV2(scan, namespaces);
    this.#v1 = asker(replies.v1, answerV1);
    this.#v2 = asker(replies.v2, (check, decision) => answerV2(writer, ids, check, decision));
  }

  readonly v1: OnBody<Key> = (res, key, bytes) => {
    const { keyring, clock } = this.#parts;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = this.#reader1.read(key, bytes);
    this.#decide(res, check, this.#identify(check), startedMs, this.#v1);
  };

  readonly v2: OnBody<Key> = (res, key, bytes) => {
    const { keyring, overrides, clock } = this.#parts;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const check = this.#reader2.read(key, bytes);
    const id = this.#identify(check);
    check.overrideId = overrides.governingId();
    this.#decide(res, check, id, startedMs, this.#v2);
  };

  readonly many: OnBody<Key> = (res, key, bytes) => {
    const { keyring, counters, overrides, clock, lane, ids, replies } = this.#parts;
    const startedMs = clock.monotonicMs();
    keyring.requireValid(key);
    const checks = this.#reader2.readMany(key, bytes);
    const { together } = counters;
    together.begin();
    checks.forEach((check, number) => {
      // Patterns made for it keep each check busy for some 20 ms: the thread does not hang.
      if (number % 8 === 0) lane.beat();
      const id = this.#identify(check);
      check.overrideId = overrides.governingId();
      together.add(id, check.namespace.state[0], check);
    });
    const passed = together.decide(clock.wallMs(startedMs));
    const decision = (number: number) => together.decision(number);
    checks.forEach(({ namespace, cost }, number) => {
      tally(lane, namespace, cost, passed, decision(number).outcome);
    });
    replies.v2.json(res, answerMany(this.#writer, ids, checks, passed, decision));
    lane.answered(clock.monotonicMs() - startedMs);
  };

  /** Its identity, overwritten by the next; and the check as an override has it. */
  #identify(check: AskedCheck): Identity {
    const { counters, overrides, lane } = this.#parts;
    const { namespace, memory, from, to } = check;
    const id = counters.identifyBytes(namespace.state, memory, from, to);
    if (overrides.govern(check, id)) lane.count(COUNT.overridden);
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

function asker(replies: Replies, text: (check: Check, decision: Decision) => Uint8Array): Asker {
  return {
    answer: (res, check, decision) => replies.json(res, text(check, decision)),
    fail: (res, error) => replies.error(res, error),
  };
}
