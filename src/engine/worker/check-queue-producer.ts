/**
 * Putting work into the ring to one shard worker: an acceptor's side of a link. It belongs to the
 * acceptor's thread. Whoever puts an entry has asked `hasRoom` before, and rings afterwards.
 */

import type { CheckParameters } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { WAKE_UP_FLAG, type WorkerStats } from '../../shared-memory/stats.ts';
import { ENTRY, ENTRY_STATE } from './layout.ts';
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
   * Puts one entry and publishes it.
   * @param kind one of KIND
   * @param window of a deduction: the number of the window in which the check was admitted
   */
  enqueue(
    kind: number,
    id: Identity,
    namespaceTag: number,
    window: number,
    { limit, durationMs, cost, rule }: CheckParameters,
  ): void {
    const { words, doubles } = this.memory;
    const at = this.#producer.nextItem();
    doubles[at / 2 + ENTRY.limit] = limit;
    doubles[at / 2 + ENTRY.durationMs] = durationMs;
    doubles[at / 2 + ENTRY.cost] = cost;
    doubles[at / 2 + ENTRY.window] = window;
    words[at + ENTRY.hash] = id.h0;
    words[at + ENTRY.hash + 1] = id.h1;
    words[at + ENTRY.hash + 2] = id.h2;
    words[at + ENTRY.hash + 3] = id.h3;
    words[at + ENTRY.namespaceTag] = namespaceTag;
    words[at + ENTRY.kind] = kind | (rule << 8);
    words[at + ENTRY.state] = ENTRY_STATE.queued;
    words[at + ENTRY.number] = this.#producer.nextNumber;
    this.#producer.publish();
  }

  /** Wakes the worker, should it sleep. */
  wakeWorker(): void {
    wakeUp(this.#workerStats.words, WAKE_UP_FLAG);
  }

  /** Takes an entry back. @returns false when the worker has begun it, or is done with it */
  withdraw(number: number): boolean {
    const state = itemAt(CHECK_QUEUE, number) + ENTRY.state;
    const was = Atomics.compareExchange(
      this.memory.words,
      state,
      ENTRY_STATE.queued,
      ENTRY_STATE.withdrawn,
    );
    return was === ENTRY_STATE.queued;
  }
}
