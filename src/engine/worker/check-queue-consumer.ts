/**
 * Taking work out of the ring from one acceptor: a shard worker's side of a link. An entry is
 * claimed, done, answered if it is a check, and only then given back, so that a worker that dies
 * anywhere in between leaves exactly one entry behind that its successor finds claimed. It does
 * that one again: at worst it counts twice. An entry over which a second worker dies is given up.
 */

import type { MessagePort } from 'node:worker_threads';
import { type CheckParameters, DEDUCTION_OUTCOME, newDecision } from '../../core/decision.ts';
import { MemoryError } from '../../core/errors.ts';
import type { Identity, MutableIdentity } from '../../core/hash.ts';
import { isRule, NO_BURST, RULE } from '../../core/window-rules.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import type { CounterTable } from '../memory/table.ts';
import { ENTRY, ENTRY_KIND, ENTRY_STATE, NOTIFICATION_FLAG, REPLY } from './layout.ts';
import {
  CHECK_QUEUE,
  type ChannelMemory,
  QueueConsumer,
  QueueProducer,
  REPLY_QUEUE,
} from './queue.ts';
import { takeNotificationRequest } from './wake-up.ts';

export class CheckQueueConsumer {
  readonly #memory: ChannelMemory;
  readonly #entries: QueueConsumer;
  readonly #replies: QueueProducer;
  readonly #tableOf: (id: Identity) => CounterTable;
  readonly #clock: Clock;
  readonly #stats: WorkerStats;
  readonly #notificationPort: MessagePort | undefined;
  readonly #id: MutableIdentity = { h0: 0, h1: 0, h2: 0, h3: 0 };
  readonly #parameters: CheckParameters = {
    limit: 0,
    durationMs: 0,
    cost: 0,
    rule: RULE.fixed,
    burst: NO_BURST,
  };
  readonly #decision = newDecision();
  #nowMs = 0;

  /** @param notificationPort gets a message when replies are in the queue; undefined: no replies */
  constructor(
    memory: ChannelMemory,
    tableOf: (id: Identity) => CounterTable,
    clock: Clock,
    stats: WorkerStats,
    notificationPort: MessagePort | undefined,
  ) {
    this.#memory = memory;
    this.#entries = new QueueConsumer(memory, CHECK_QUEUE);
    this.#replies = new QueueProducer(memory, REPLY_QUEUE);
    this.#tableOf = tableOf;
    this.#clock = clock;
    this.#stats = stats;
    this.#notificationPort = notificationPort;
  }

  isEmpty(): boolean {
    return this.#entries.isEmpty();
  }

  /** Does at most so many entries, all at one reading of the clock. @returns how many it did */
  processEntries(maxCount: number): number {
    if (this.#entries.isEmpty()) return 0;
    const { words } = this.#memory;
    this.#nowMs = this.#clock.nowMs();
    const answered = this.#replies.nextNumber;
    let served = 0;
    for (; served < maxCount && !this.#entries.isEmpty(); served++) {
      const at = this.#entries.firstItem();
      if (words[at + ENTRY.number] !== this.#entries.nextNumber) {
        throw new MemoryError(
          `entry ${this.#entries.nextNumber} of a ring says it is ${words[at + ENTRY.number]}`,
        );
      }
      if (this.#claim(at)) this.#processEntry(at);
      this.#entries.releaseFirst();
    }
    if (this.#replies.nextNumber !== answered && takeNotificationRequest(words, NOTIFICATION_FLAG))
      this.#notificationPort?.postMessage(null);
    return served;
  }

  /** @returns whether the entry is to be done */
  #claim(at: number): boolean {
    const { words } = this.#memory;
    const state = at + ENTRY.state;
    const was = Atomics.compareExchange(words, state, ENTRY_STATE.queued, ENTRY_STATE.claimed);
    switch (was) {
      case ENTRY_STATE.queued:
        return true;
      case ENTRY_STATE.withdrawn:
        return false;
      case ENTRY_STATE.claimed:
        Atomics.store(words, state, ENTRY_STATE.repeated);
        this.#stats.add(WORKER_STAT.entriesRepeated, 1);
        return true;
      case ENTRY_STATE.repeated:
        this.#stats.add(WORKER_STAT.entriesLost, 1);
        return false;
      default:
        throw new MemoryError(`an entry of a ring is in state ${was}`);
    }
  }

  #processEntry(at: number): void {
    const { words, doubles } = this.#memory;
    const id = this.#id;
    id.h0 = words[at + ENTRY.hash];
    id.h1 = words[at + ENTRY.hash + 1];
    id.h2 = words[at + ENTRY.hash + 2];
    id.h3 = words[at + ENTRY.hash + 3];
    const terms = this.#parameters;
    terms.limit = doubles[at / 2 + ENTRY.limit];
    terms.durationMs = doubles[at / 2 + ENTRY.durationMs];
    terms.cost = doubles[at / 2 + ENTRY.cost];
    const kindAndRule = words[at + ENTRY.kind];
    const kind = kindAndRule & 0xff;
    const rule = kindAndRule >>> 8;
    if (!isRule(rule)) throw new MemoryError(`a queue entry has the window rule ${rule}`);
    terms.rule = rule;
    if (kind === ENTRY_KIND.deduction) this.#deduct(at);
    else if (kind === ENTRY_KIND.check) this.#decide(at);
    else throw new MemoryError(`an entry of a ring is of kind ${kind}`);
  }

  #deduct(at: number): void {
    const { words, doubles } = this.#memory;
    const { cost } = this.#parameters;
    const tag = words[at + ENTRY.namespaceTag];
    const window = doubles[at / 2 + ENTRY.window];
    const table = this.#tableOf(this.#id);
    const outcome = table.deduct(this.#id, tag, this.#nowMs, window, this.#parameters);
    if (outcome === DEDUCTION_OUTCOME.windowEnded) {
      this.#stats.add(WORKER_STAT.deductionsWindowEnded, 1);
      this.#stats.add(WORKER_STAT.deductionTokensWindowEnded, cost);
    } else if (outcome === DEDUCTION_OUTCOME.full) {
      this.#stats.add(WORKER_STAT.deductionsFull, 1);
      this.#stats.add(WORKER_STAT.deductionTokensFull, cost);
    } else {
      this.#stats.add(WORKER_STAT.deductionsApplied, 1);
      this.#stats.add(WORKER_STAT.deductionTokensApplied, cost);
      if (outcome === DEDUCTION_OUTCOME.evicted) this.#stats.add(WORKER_STAT.liveEvictions, 1);
    }
  }

  #decide(at: number): void {
    const { words, doubles } = this.#memory;
    const decision = this.#decision;
    const tag = words[at + ENTRY.namespaceTag];
    const table = this.#tableOf(this.#id);
    table.decide(this.#id, tag, this.#nowMs, this.#parameters, true, decision);
    this.#stats.add(WORKER_STAT.decisions, 1);
    // It always has, for there are more places than checks asked at once. Without an answer the
    // acceptor gives one itself, when its deadline has come.
    if (!this.#replies.hasRoom()) return;
    const reply = this.#replies.nextItem();
    doubles[reply / 2 + REPLY.remaining] = decision.remaining;
    doubles[reply / 2 + REPLY.reset] = decision.reset;
    words[reply + REPLY.number] = words[at + ENTRY.number];
    words[reply + REPLY.allowed] = decision.allowed ? 1 : 0;
    words[reply + REPLY.outcome] = decision.outcome;
    this.#replies.publish();
  }
}
