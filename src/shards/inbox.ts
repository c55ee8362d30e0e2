/**
 * Taking work out of the ring from one acceptor: a shard worker's side of a link. An entry is
 * claimed, done, answered if it is a check, and only then given back, so that a worker that dies
 * anywhere in between leaves exactly one entry behind that its successor finds claimed. It does
 * that one again: at worst it counts twice. An entry over which a second worker dies is given up.
 */

import type { MessagePort } from 'node:worker_threads';
import { DEDUCTION, newDecision } from '../counters/decision.ts';
import type { Identity, MutableIdentity } from '../counters/hash.ts';
import type { CounterTable } from '../counters/table.ts';
import type { Terms } from '../counters/window.ts';
import { MemoryError } from '../errors.ts';
import { WORK, type WorkerLane } from '../lanes.ts';
import type { Clock } from '../time.ts';
import { shutDoor } from './bell.ts';
import { DOOR, ENTRY, KIND, REPLY, STATE } from './layout.ts';
import { Consumer, ENTRIES, type LinkMemory, Producer, REPLIES } from './ring.ts';

export class Inbox {
  readonly #memory: LinkMemory;
  readonly #entries: Consumer;
  readonly #replies: Producer;
  readonly #tableOf: (id: Identity) => CounterTable;
  readonly #clock: Clock;
  readonly #lane: WorkerLane;
  readonly #door: MessagePort | undefined;
  readonly #id: MutableIdentity = { h0: 0, h1: 0, h2: 0, h3: 0 };
  readonly #terms: Terms = { limit: 0, durationMs: 0, cost: 0, isSliding: false };
  readonly #decision = newDecision();
  #nowMs = 0;

  /** @param door where to send a message when answers lie in the ring; none where none are given */
  constructor(
    memory: LinkMemory,
    tableOf: (id: Identity) => CounterTable,
    clock: Clock,
    lane: WorkerLane,
    door: MessagePort | undefined,
  ) {
    this.#memory = memory;
    this.#entries = new Consumer(memory, ENTRIES);
    this.#replies = new Producer(memory, REPLIES);
    this.#tableOf = tableOf;
    this.#clock = clock;
    this.#lane = lane;
    this.#door = door;
  }

  isEmpty(): boolean {
    return this.#entries.isEmpty();
  }

  /** Does at most so many entries, all at one reading of the clock. @returns how many it did */
  serve(most: number): number {
    if (this.#entries.isEmpty()) return 0;
    const { words } = this.#memory;
    this.#nowMs = this.#clock.nowMs();
    const answered = this.#replies.next;
    let served = 0;
    for (; served < most && !this.#entries.isEmpty(); served++) {
      const at = this.#entries.item();
      if (words[at + ENTRY.number] !== this.#entries.next) {
        throw new MemoryError(
          `entry ${this.#entries.next} of a ring says it is ${words[at + ENTRY.number]}`,
        );
      }
      if (this.#claim(at)) this.#do(at);
      this.#entries.done();
    }
    if (this.#replies.next !== answered && shutDoor(words, DOOR)) this.#door?.postMessage(null);
    return served;
  }

  /** @returns whether the entry is to be done */
  #claim(at: number): boolean {
    const { words } = this.#memory;
    const state = at + ENTRY.state;
    const was = Atomics.compareExchange(words, state, STATE.queued, STATE.claimed);
    switch (was) {
      case STATE.queued:
        return true;
      case STATE.withdrawn:
        return false;
      case STATE.claimed:
        Atomics.store(words, state, STATE.repeated);
        this.#lane.add(WORK.repeated, 1);
        return true;
      case STATE.repeated:
        this.#lane.add(WORK.lost, 1);
        return false;
      default:
        throw new MemoryError(`an entry of a ring is in state ${was}`);
    }
  }

  #do(at: number): void {
    const { words, doubles } = this.#memory;
    const id = this.#id;
    id.h0 = words[at + ENTRY.hash];
    id.h1 = words[at + ENTRY.hash + 1];
    id.h2 = words[at + ENTRY.hash + 2];
    id.h3 = words[at + ENTRY.hash + 3];
    const terms = this.#terms;
    terms.limit = doubles[at / 2 + ENTRY.limit];
    terms.durationMs = doubles[at / 2 + ENTRY.durationMs];
    terms.cost = doubles[at / 2 + ENTRY.cost];
    const kind = words[at + ENTRY.kind];
    terms.isSliding = kind === KIND.slidingCheck;
    if (kind === KIND.deduction) this.#deduct(at);
    else if (kind === KIND.fixedCheck || kind === KIND.slidingCheck) this.#decide(at);
    else throw new MemoryError(`an entry of a ring is of kind ${kind}`);
  }

  #deduct(at: number): void {
    const { words, doubles } = this.#memory;
    const { cost } = this.#terms;
    const tag = words[at + ENTRY.namespaceTag];
    const window = doubles[at / 2 + ENTRY.window];
    const table = this.#tableOf(this.#id);
    const outcome = table.deduct(this.#id, tag, this.#nowMs, window, this.#terms);
    if (outcome === DEDUCTION.past) {
      this.#lane.add(WORK.past, 1);
      this.#lane.add(WORK.pastTokens, cost);
    } else if (outcome === DEDUCTION.noRoom) {
      this.#lane.add(WORK.noRoom, 1);
      this.#lane.add(WORK.noRoomTokens, cost);
    } else {
      this.#lane.add(WORK.applied, 1);
      this.#lane.add(WORK.appliedTokens, cost);
      if (outcome === DEDUCTION.evicted) this.#lane.add(WORK.liveEvictions, 1);
    }
  }

  #decide(at: number): void {
    const { words, doubles } = this.#memory;
    const decision = this.#decision;
    const tag = words[at + ENTRY.namespaceTag];
    const table = this.#tableOf(this.#id);
    table.decide(this.#id, tag, this.#nowMs, this.#terms, true, decision);
    this.#lane.add(WORK.decided, 1);
    // It always has, for there are more places than checks asked at once. Without an answer the
    // acceptor gives one itself, when its deadline has come.
    if (!this.#replies.hasRoom()) return;
    const reply = this.#replies.slot();
    doubles[reply / 2 + REPLY.remaining] = decision.remaining;
    doubles[reply / 2 + REPLY.reset] = decision.reset;
    words[reply + REPLY.number] = words[at + ENTRY.number];
    words[reply + REPLY.admitted] = decision.admitted ? 1 : 0;
    words[reply + REPLY.outcome] = decision.outcome;
    this.#replies.publish();
  }
}
