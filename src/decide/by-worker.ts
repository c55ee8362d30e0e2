/**
 * Hands every check over to the worker of its shard and answers when the decision comes back: all
 * of a loop's turn are rung for once, and answers come in batches.
 *
 * Everything that may end a request before its answer, or keep the answer away:
 *
 *   the client goes away       the check is counted, its answer is dropped
 *   the ring is full           decided in place
 *   the worker is late         what it has not begun after TAKE_BACK_MS is taken back and decided
 *                              in place, and so is what comes until it moves again
 *   the worker dies            the same; what it had begun is answered by its successor, or with a
 *                              503 after CHECK_DEADLINE_MS, which says that it may have counted
 *   its message does not come  the answers are found by the next look
 *
 * A check is thus counted once, but for one that was in the hand of a worker when it died.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Counters } from '../counters/counters.ts';
import { newDecision, type TableDecision } from '../counters/decision.ts';
import type { Identity } from '../counters/hash.ts';
import { ApiError } from '../errors.ts';
import type { HttpResponse } from '../http/uws.ts';
import { type AcceptorLane, COUNT } from '../lanes.ts';
import { CHECK_DEADLINE_MS, RING_ENTRIES, TAKE_BACK_MS } from '../limits.ts';
import { openDoor } from '../shards/bell.ts';
import type { Handoff } from '../shards/handoff.ts';
import { DOOR, ENTRY, KIND, REPLY, TAIL } from '../shards/layout.ts';
import { Consumer, ENTRIES, itemAt, REPLIES } from '../shards/ring.ts';
import { shardOf, workerOf } from '../shards/shard.ts';
import type { Clock } from '../time.ts';
import { type Asker, type Check, type Decider, tally, tallyOutcome } from './decider.ts';

const LOOK_MS = TAKE_BACK_MS / 2;

/** A check that has not been answered. */
interface Pending {
  number: number;
  /** Undefined when its client has gone. */
  res: HttpResponse | undefined;
  check: Check;
  startedMs: number;
  asker: Asker;
}

export class ByWorker implements Decider {
  readonly #links: Link[];
  readonly #counters: Counters;
  readonly #clock: Clock;
  readonly #lane: AcceptorLane;
  #ringing: NodeJS.Immediate | undefined;
  /** Runs while checks wait for their answers, and a turn longer. */
  #looking: NodeJS.Timeout | undefined;

  constructor(counters: Counters, handoffs: readonly Handoff[], clock: Clock, lane: AcceptorLane) {
    this.#counters = counters;
    this.#clock = clock;
    this.#lane = lane;
    this.#links = handoffs.map((handoff) => new Link(handoff));
  }

  /** A run of a worker begins: its messages say that answers lie in the ring. */
  door(worker: number, port: MessagePort): void {
    const link = this.#links[worker];
    link.door?.close();
    link.door = port;
    port.on('message', () => this.#drain(link));
    this.#drain(link);
  }

  decide(
    check: Check,
    id: Identity,
    startedMs: number,
    res: HttpResponse,
    asker: Asker,
  ): TableDecision | undefined {
    const tag = check.namespace.state[0];
    const link = this.#links[workerOf(shardOf(id), this.#links.length)];
    if (!link.takes()) {
      this.#lane.count(COUNT.ringFull);
      const nowMs = this.#clock.wallMs(startedMs);
      const decision = this.#counters.decide(id, tag, nowMs, check);
      tally(this.#lane, check.namespace, check.cost, decision.admitted, decision.outcome);
      return decision;
    }
    const pending = link.await(res, check, startedMs, asker);
    res.onAborted(() => {
      if (pending.res === res) pending.res = undefined;
    });
    const kind = check.isSliding ? KIND.slidingCheck : KIND.fixedCheck;
    link.handoff.put(kind, id, tag, 0, check);
    this.#lane.count(COUNT.handedOver);
    link.toRing = true;
    this.#ringing ??= setImmediate(() => this.#ring());
    this.#looking ??= setInterval(() => this.#lookAtAll(), LOOK_MS);
    return undefined;
  }

  #ring(): void {
    this.#ringing = undefined;
    for (const link of this.#links) {
      if (!link.toRing) continue;
      link.toRing = false;
      link.handoff.ring();
    }
  }

  /** Answers all checks whose decisions lie in the ring. */
  #drain(link: Link): void {
    const { words, doubles } = link.handoff.memory;
    openDoor(words, DOOR);
    for (const { replies, decision } = link; !replies.isEmpty(); replies.done()) {
      const at = replies.item();
      const pending = link.pending(words[at + REPLY.number]);
      if (pending === undefined) {
        tallyOutcome(this.#lane, words[at + REPLY.outcome]);
        continue;
      }
      decision.remaining = doubles[at / 2 + REPLY.remaining];
      decision.reset = doubles[at / 2 + REPLY.reset];
      decision.admitted = words[at + REPLY.admitted] === 1;
      decision.outcome = words[at + REPLY.outcome];
      this.#answer(link, pending, decision);
    }
  }

  #answer(link: Link, pending: Pending, decision: TableDecision): void {
    const { res, check, startedMs, asker } = pending;
    link.settle(pending);
    tally(this.#lane, check.namespace, check.cost, decision.admitted, decision.outcome);
    if (res === undefined) {
      this.#lane.count(COUNT.unheard);
      this.#lane.beat();
      return;
    }
    res.cork(() => asker.answer(res, check, decision));
    this.#lane.answered(this.#clock.monotonicMs() - startedMs);
  }

  #lookAtAll(): void {
    const idle = this.#links.every((link) => link.isIdle());
    for (const link of this.#links) this.#look(link);
    if (!idle) return;
    clearInterval(this.#looking);
    this.#looking = undefined;
  }

  /** Finds what a message did not tell of, and sees to what takes too long. */
  #look(link: Link): void {
    this.#drain(link);
    const nowMs = this.#clock.monotonicMs();
    for (const pending of link.waiting()) {
      const waitedMs = nowMs - pending.startedMs;
      if (waitedMs < TAKE_BACK_MS) break;
      if (link.handoff.withdraw(pending.number)) {
        this.#lane.count(COUNT.takenBack);
        link.lateEntry = pending.number;
        try {
          this.#answer(link, pending, this.#decideEntry(link, pending));
        } catch (error) {
          this.#fail(link, pending, error);
        }
      } else if (waitedMs >= CHECK_DEADLINE_MS) {
        const message = 'the thread that had this check in hand ended; it may have been counted';
        this.#fail(link, pending, new ApiError('SERVICE_UNAVAILABLE', message));
      }
    }
  }

  #fail(link: Link, pending: Pending, error: unknown): void {
    const { res, asker } = pending;
    link.settle(pending);
    if (res === undefined) this.#lane.count(COUNT.unheard);
    else res.cork(() => asker.fail(res, error));
  }

  /** Decides in place what was taken back, of whom its entry says. */
  #decideEntry({ handoff }: Link, { number, check }: Pending): TableDecision {
    const { words } = handoff.memory;
    const at = itemAt(ENTRIES, number);
    const id: Identity = {
      h0: words[at + ENTRY.hash],
      h1: words[at + ENTRY.hash + 1],
      h2: words[at + ENTRY.hash + 2],
      h3: words[at + ENTRY.hash + 3],
    };
    return this.#counters.decide(id, words[at + ENTRY.namespaceTag], this.#clock.nowMs(), check);
  }
}

/** What an acceptor keeps of one worker: its rings, and the checks that it waits for, in order. */
class Link {
  readonly handoff: Handoff;
  readonly replies: Consumer;
  readonly decision = newDecision();
  /** Where the messages of the worker's present run come in. */
  door: MessagePort | undefined;
  toRing = false;
  /** The last entry that had to be taken back, until the worker has passed it. */
  lateEntry: number | undefined;
  /** By number modulo their count. An entry's place is free when `#oldest` has passed it. */
  readonly #pending: (Pending | undefined)[] = new Array(RING_ENTRIES).fill(undefined);
  #oldest: number;

  constructor(handoff: Handoff) {
    this.handoff = handoff;
    this.replies = new Consumer(handoff.memory, REPLIES);
    this.#oldest = handoff.next;
  }

  /** Whether one more check may be handed over. */
  takes(): boolean {
    if (this.lateEntry !== undefined) {
      const tail = Atomics.load(this.handoff.memory.words, TAIL);
      if (((tail - this.lateEntry) | 0) <= 0) return false;
      this.lateEntry = undefined;
    }
    if (((this.handoff.next - this.#oldest) | 0) >= RING_ENTRIES) return false;
    return this.handoff.hasRoom();
  }

  /** Whether it waits for no check. */
  isIdle(): boolean {
    return this.#oldest === this.handoff.next;
  }

  /** Notes a check that is handed over next. */
  await(res: HttpResponse, check: Check, startedMs: number, asker: Asker): Pending {
    const number = this.handoff.next;
    const { namespace, limit, durationMs, cost, isSliding, isAsync, overrideId } = check;
    const kept = { namespace, limit, durationMs, cost, isSliding, isAsync, overrideId };
    const pending = { number, res, check: kept, startedMs, asker };
    this.#pending[number & (RING_ENTRIES - 1)] = pending;
    return pending;
  }

  /** The check of a number; undefined when it has been answered. */
  pending(number: number): Pending | undefined {
    const pending = this.#pending[number & (RING_ENTRIES - 1)];
    return pending?.number === number ? pending : undefined;
  }

  /** A check is answered, or will never be. */
  settle({ number }: Pending): void {
    this.#pending[number & (RING_ENTRIES - 1)] = undefined;
    while (
      this.#oldest !== this.handoff.next &&
      this.#pending[this.#oldest & (RING_ENTRIES - 1)] === undefined
    ) {
      this.#oldest = (this.#oldest + 1) | 0;
    }
  }

  /** The checks that are waited for, oldest first. */
  waiting(): Pending[] {
    const waiting: Pending[] = [];
    for (let n = this.#oldest; n !== this.handoff.next; n = (n + 1) | 0) {
      const pending = this.pending(n);
      if (pending !== undefined) waiting.push(pending);
    }
    return waiting;
  }
}
