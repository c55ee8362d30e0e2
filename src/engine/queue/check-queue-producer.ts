/**
 * The acceptor's side of the queue to one shard worker. It belongs to the acceptor's thread. The
 * caller of a method that enqueues calls `hasRoom` before, and `wakeWorker` after.
 */

import type { CheckParameters } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { WAKE_UP_FLAG, type WorkerStats } from '../../shared-memory/stats.ts';
import { ENTRY, ENTRY_STATE, kindWord } from './layout.ts';
import { CHECK_QUEUE, type ChannelMemory, itemAt, QueueProducer } from './queue.ts';
import { wakeUp } from './wake-up.ts';

export class CheckQueueProducer {
  readonly memory: ChannelMemory;
  readonly #producer: QueueProducer;
  readonly #workerStats: WorkerStats;

  constructor(memory: ChannelMemory, workerStats: WorkerStats) {
    this.memory = memory;
    this.#producer = new QueueProducer(memory, CHECK_QUEUE);
    this.#workerStats = workerStats;
  }

  hasRoom(): boolean {
    return this.#producer.hasRoom();
  }

  /** The number that the next entry will have. */
  get nextNumber(): number {
    return this.#producer.nextNumber;
  }

  /**
   * @param kind of the engine
   * @param burstOrWindow the burst of the check; of a deduction the window of its decision
   */
  enqueue(
    kind: number,
    id: Identity,
    namespaceTag: number,
    { limit, durationMs, cost, rule }: CheckParameters,
    burstOrWindow: number,
  ): void {
    const { words, doubles } = this.memory;
    const at = this.#producer.nextItem();
    doubles[at / 2 + ENTRY.limit] = limit;
    doubles[at / 2 + ENTRY.durationMs] = durationMs;
    doubles[at / 2 + ENTRY.cost] = cost;
    doubles[at / 2 + ENTRY.burstOrWindow] = burstOrWindow;
    words[at + ENTRY.hash] = id.h0;
    words[at + ENTRY.hash + 1] = id.h1;
    words[at + ENTRY.hash + 2] = id.h2;
    words[at + ENTRY.hash + 3] = id.h3;
    words[at + ENTRY.namespaceTag] = namespaceTag;
    words[at + ENTRY.kind] = kindWord(kind, rule);
    words[at + ENTRY.state] = ENTRY_STATE.queued;
    words[at + ENTRY.number] = this.#producer.nextNumber;
    this.#producer.publish();
  }

  /** Wakes the worker if it sleeps. */
  wakeWorker(): void {
    wakeUp(this.#workerStats.words, WAKE_UP_FLAG);
  }

  /** Withdraws an entry. @returns false: the worker has claimed it, or is done with it */
  withdraw(number: number): boolean {
    const { words } = this.memory;
    const { queued, withdrawn } = ENTRY_STATE;
    const at = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    return Atomics.compareExchange(words, at, queued, withdrawn) === queued;
  }
}
