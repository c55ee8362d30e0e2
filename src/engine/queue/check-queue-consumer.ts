/**
 * The shard worker's side of the queue from one acceptor. Entries may end in any order. An entry is
 * claimed only when it is decided: until then the acceptor may withdraw it. It is claimed, done,
 * replied to if it has a reply, and marked as done; the tail moves over entries that are over.
 *
 * A worker that dies leaves the entries that it had claimed. Its successor repeats them, which at
 * worst counts them twice, and drops those over which a second worker died.
 */

import type { MessagePort } from 'node:worker_threads';
import type { CheckParameters, TableDecision } from '../../core/decision.ts';
import { MemoryError } from '../../core/errors.ts';
import { type Identity, newIdentity } from '../../core/hash.ts';
import { isRule, NO_BURST, RULE } from '../../core/window-rules.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import {
  ENTRY,
  ENTRY_STATE,
  kindOf,
  NOTIFICATION_FLAG,
  REPLY,
  REPLY_ALLOWED,
  ruleOf,
} from './layout.ts';
import {
  CHECK_QUEUE,
  type ChannelMemory,
  itemAt,
  QueueProducer,
  REPLY_QUEUE,
  readHead,
} from './queue.ts';
import { takeNotificationRequest } from './wake-up.ts';

/** An entry as `readNew` shows it. */
export interface QueueEntry {
  readonly number: number;
  /** Of the engine. */
  readonly kind: number;
  readonly identity: Identity;
  readonly namespaceTag: number;
  /** The burst of a deduction is the window of its decision. */
  readonly parameters: Readonly<CheckParameters>;
}

export function copyEntry(entry: QueueEntry): QueueEntry {
  return { ...entry, identity: { ...entry.identity }, parameters: { ...entry.parameters } };
}

/** A decision as a reply has it. */
export type ReplyDecision = Omit<TableDecision, 'window'>;

export class CheckQueueConsumer {
  readonly #memory: ChannelMemory;
  readonly #replies: QueueProducer;
  readonly #stats: WorkerStats;
  readonly #notificationPort: MessagePort | undefined;
  /** The first entry that is not over, and the first that was not read. */
  #tail: number;
  #next: number;
  #hasReplied = false;
  /** Scratch of one visit. */
  readonly #entry = newEntry();

  /** @param notificationPort gets a message when replies are in the queue; undefined: no replies */
  constructor(
    memory: ChannelMemory,
    stats: WorkerStats,
    notificationPort: MessagePort | undefined,
  ) {
    this.#memory = memory;
    this.#replies = new QueueProducer(memory, REPLY_QUEUE);
    this.#stats = stats;
    this.#notificationPort = notificationPort;
    this.#tail = Atomics.load(memory.words, CHECK_QUEUE.tail);
    this.#next = this.#tail;
  }

  /** Whether there are entries that were not read. */
  hasNew(): boolean {
    return Atomics.load(this.#memory.words, CHECK_QUEUE.head) !== this.#next;
  }

  /** Whether all entries are over. */
  isEmpty(): boolean {
    return !this.hasNew() && this.#tail === this.#next;
  }

  /**
   * Reads at most `maxCount` new entries.
   * @param visit gets the same object for each entry: `copyEntry` keeps one
   * @returns how many it has passed
   * @throws MemoryError when an entry or the head is impossible
   */
  readNew(maxCount: number, visit: (entry: QueueEntry) => void): number {
    const head = readHead(this.#memory, CHECK_QUEUE, this.#tail);
    let passed = 0;
    for (; this.#next !== head && passed < maxCount; passed++) {
      const at = itemAt(CHECK_QUEUE, this.#next);
      const isToDo = this.#isToDo(at);
      if (isToDo) this.#read(at);
      this.#next = (this.#next + 1) | 0;
      if (isToDo) visit(this.#entry);
    }
    return passed;
  }

  /** Claims an entry that is decided now. @returns false: the acceptor has withdrawn it */
  claim(number: number): boolean {
    if (!this.isOpen(number)) return false;
    const { queued, claimed, repeated } = ENTRY_STATE;
    const at = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    const before = Atomics.compareExchange(this.#memory.words, at, queued, claimed);
    return before === queued || before === repeated;
  }

  /** Gives back a claim: the entry could not be decided. */
  unclaim(number: number): void {
    const { queued, claimed } = ENTRY_STATE;
    const at = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    Atomics.compareExchange(this.#memory.words, at, claimed, queued);
  }

  /** Drops an entry that is repeated: its acceptor cannot withdraw it, and fails its check. */
  dropRepeated(number: number): void {
    const { repeated, done } = ENTRY_STATE;
    const at = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    Atomics.compareExchange(this.#memory.words, at, repeated, done);
  }

  /** Whether an entry can still be claimed, unless it is withdrawn in this moment. */
  isOpen(number: number): boolean {
    if (((number - this.#tail) | 0) < 0) return false;
    const at = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    const state = Atomics.load(this.#memory.words, at);
    return state === ENTRY_STATE.queued || state === ENTRY_STATE.repeated;
  }

  /** Sends the decision of a claimed entry. */
  reply(number: number, decision: ReplyDecision): void {
    const { words, doubles } = this.#memory;
    // The reply queue has room for all pending checks; `constants.ts` asserts it. Without a reply
    // the acceptor would fail the check at its deadline.
    if (this.#replies.hasRoom()) {
      const reply = this.#replies.nextItem();
      doubles[reply / 2 + REPLY.remaining] = decision.remaining;
      doubles[reply / 2 + REPLY.reset] = decision.reset;
      doubles[reply / 2 + REPLY.passesAt] = decision.passesAt;
      words[reply + REPLY.number] = number;
      words[reply + REPLY.result] = decision.outcome | (decision.allowed ? REPLY_ALLOWED : 0);
      this.#replies.publish();
      this.#hasReplied = true;
    }
    this.finish(number);
  }

  /** Ends an entry that gets no reply, or has got it. */
  finish(number: number): void {
    const at = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    Atomics.store(this.#memory.words, at, ENTRY_STATE.done);
  }

  /** Releases the entries that are over, and notifies the acceptor of replies. */
  flush(): void {
    const { words } = this.#memory;
    const before = this.#tail;
    while (this.#tail !== this.#next && this.#isOver(itemAt(CHECK_QUEUE, this.#tail))) {
      this.#tail = (this.#tail + 1) | 0;
    }
    if (this.#tail !== before) Atomics.store(words, CHECK_QUEUE.tail, this.#tail);
    if (!this.#hasReplied) return;
    this.#hasReplied = false;
    if (takeNotificationRequest(words, NOTIFICATION_FLAG)) {
      this.#notificationPort?.postMessage(null);
    }
  }

  #isOver(at: number): boolean {
    const state = Atomics.load(this.#memory.words, at + ENTRY.state);
    return state === ENTRY_STATE.done || state === ENTRY_STATE.withdrawn;
  }

  /** Whether an entry is to be decided by this worker. */
  #isToDo(at: number): boolean {
    const { words } = this.#memory;
    const state = at + ENTRY.state;
    switch (Atomics.load(words, state)) {
      case ENTRY_STATE.queued:
        return true;
      case ENTRY_STATE.withdrawn:
      case ENTRY_STATE.done:
        return false;
      case ENTRY_STATE.claimed:
        Atomics.store(words, state, ENTRY_STATE.repeated);
        this.#stats.add(WORKER_STAT.entriesRepeated, 1);
        return true;
      case ENTRY_STATE.repeated:
        Atomics.store(words, state, ENTRY_STATE.done);
        this.#stats.add(WORKER_STAT.entriesLost, 1);
        return false;
      default:
        throw this.entryError(this.#next, `the unknown state ${words[state]}`);
    }
  }

  #read(at: number): void {
    const { words, doubles } = this.#memory;
    if (words[at + ENTRY.number] !== this.#next) {
      throw this.entryError(this.#next, `the number ${words[at + ENTRY.number]}`);
    }
    const rule = ruleOf(words[at + ENTRY.kind]);
    if (!isRule(rule)) throw this.entryError(this.#next, `the unknown window rule ${rule}`);
    const entry = this.#entry;
    const { identity, parameters } = entry;
    entry.number = this.#next;
    entry.kind = kindOf(words[at + ENTRY.kind]);
    entry.namespaceTag = words[at + ENTRY.namespaceTag];
    identity.h0 = words[at + ENTRY.hash];
    identity.h1 = words[at + ENTRY.hash + 1];
    identity.h2 = words[at + ENTRY.hash + 2];
    identity.h3 = words[at + ENTRY.hash + 3];
    parameters.limit = doubles[at / 2 + ENTRY.limit];
    parameters.durationMs = doubles[at / 2 + ENTRY.durationMs];
    parameters.cost = doubles[at / 2 + ENTRY.cost];
    parameters.rule = rule;
    parameters.burst = doubles[at / 2 + ENTRY.burstOrWindow];
  }

  entryError(number: number, what: string): MemoryError {
    return new MemoryError(`${this.#memory.name}: check ${number} in the queue has ${what}`);
  }
}

function newEntry() {
  const parameters: CheckParameters = {
    limit: 0,
    durationMs: 0,
    cost: 0,
    rule: RULE.fixed,
    burst: NO_BURST,
  };
  return { number: 0, kind: 0, identity: newIdentity(), namespaceTag: 0, parameters };
}
