/**
 * The shard worker's side of the queue from one acceptor. An entry is claimed, done, replied to if
 * it is a check, and only then released. So a worker that dies in between leaves exactly one
 * claimed entry. Its successor repeats that entry, which at worst counts twice. An entry over which
 * a second worker dies is dropped.
 */

import type { MessagePort } from 'node:worker_threads';
import { type CheckParameters, DEDUCTION_OUTCOME, newDecision } from '../../../core/decision.ts';
import { MemoryError } from '../../../core/errors.ts';
import { type Identity, newIdentity } from '../../../core/hash.ts';
import { isRule, NO_BURST, RULE } from '../../../core/window-rules.ts';
import type { Clock } from '../../../shared-memory/clock.ts';
import { WORKER_STAT, type WorkerStats } from '../../../shared-memory/stats.ts';
import {
  ENTRY,
  ENTRY_STATE,
  kindOf,
  NOTIFICATION_FLAG,
  REPLY,
  REPLY_ALLOWED,
  ruleOf,
} from '../../queue/layout.ts';
import {
  CHECK_QUEUE,
  type ChannelMemory,
  QueueConsumer,
  QueueProducer,
  REPLY_QUEUE,
} from '../../queue/queue.ts';
import { takeNotificationRequest } from '../../queue/wake-up.ts';
import { ENTRY_KIND } from '../entry-kinds.ts';
import type { CounterTable } from '../table.ts';

export class CheckQueueConsumer {
  readonly #memory: ChannelMemory;
  readonly #entries: QueueConsumer;
  readonly #replies: QueueProducer;
  readonly #tableOf: (id: Identity) => CounterTable;
  readonly #clock: Clock;
  readonly #stats: WorkerStats;
  readonly #notificationPort: MessagePort | undefined;
  readonly #id = newIdentity();
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

  /** Does at most `maxCount` entries, at one reading of the clock. @returns how many */
  processEntries(maxCount: number): number {
    if (this.#entries.isEmpty()) return 0;
    const { words } = this.#memory;
    this.#nowMs = this.#clock.nowMs();
    const firstReply = this.#replies.nextNumber;
    let done = 0;
    for (; done < maxCount && !this.#entries.isEmpty(); done++) {
      const at = this.#entries.firstItem();
      if (words[at + ENTRY.number] !== this.#entries.nextNumber) {
        throw this.#entryError(`the number ${words[at + ENTRY.number]}`);
      }
      if (this.#claim(at)) this.#processEntry(at);
      this.#entries.releaseFirst();
    }
    if (
      this.#replies.nextNumber !== firstReply &&
      takeNotificationRequest(words, NOTIFICATION_FLAG)
    ) {
      this.#notificationPort?.postMessage(null);
    }
    return done;
  }

  /** @returns false: the entry is withdrawn or dropped */
  #claim(at: number): boolean {
    const { words } = this.#memory;
    const state = at + ENTRY.state;
    const before = Atomics.compareExchange(words, state, ENTRY_STATE.queued, ENTRY_STATE.claimed);
    switch (before) {
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
        throw this.#entryError(`the unknown state ${before}`);
    }
  }

  #processEntry(at: number): void {
    const { words, doubles } = this.#memory;
    const id = this.#id;
    id.h0 = words[at + ENTRY.hash];
    id.h1 = words[at + ENTRY.hash + 1];
    id.h2 = words[at + ENTRY.hash + 2];
    id.h3 = words[at + ENTRY.hash + 3];
    const parameters = this.#parameters;
    parameters.limit = doubles[at / 2 + ENTRY.limit];
    parameters.durationMs = doubles[at / 2 + ENTRY.durationMs];
    parameters.cost = doubles[at / 2 + ENTRY.cost];
    const kind = kindOf(words[at + ENTRY.kind]);
    const rule = ruleOf(words[at + ENTRY.kind]);
    if (!isRule(rule)) throw this.#entryError(`the unknown window rule ${rule}`);
    parameters.rule = rule;
    if (kind === ENTRY_KIND.deduction) this.#deduct(at);
    else if (kind === ENTRY_KIND.check) this.#decide(at);
    else throw this.#entryError(`the unknown kind ${kind}`);
  }

  #entryError(what: string): MemoryError {
    const number = this.#entries.nextNumber;
    return new MemoryError(`${this.#memory.name}: check ${number} in the queue has ${what}`);
  }

  #deduct(at: number): void {
    const { words, doubles } = this.#memory;
    const { cost } = this.#parameters;
    const tag = words[at + ENTRY.namespaceTag];
    const window = doubles[at / 2 + ENTRY.burstOrWindow];
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
    this.#parameters.burst = doubles[at / 2 + ENTRY.burstOrWindow];
    const tag = words[at + ENTRY.namespaceTag];
    const table = this.#tableOf(this.#id);
    table.decide(this.#id, tag, this.#nowMs, this.#parameters, true, decision);
    this.#stats.add(WORKER_STAT.decisions, 1);
    // The reply queue has room for all pending checks; `constants.ts` asserts it. Without a reply
    // the acceptor would fail the check at its deadline.
    if (!this.#replies.hasRoom()) return;
    const reply = this.#replies.nextItem();
    doubles[reply / 2 + REPLY.remaining] = decision.remaining;
    doubles[reply / 2 + REPLY.reset] = decision.reset;
    doubles[reply / 2 + REPLY.passesAt] = decision.passesAt;
    words[reply + REPLY.number] = words[at + ENTRY.number];
    words[reply + REPLY.result] = decision.outcome | (decision.allowed ? REPLY_ALLOWED : 0);
    this.#replies.publish();
  }
}
