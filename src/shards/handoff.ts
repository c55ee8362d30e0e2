/**
 * Putting work into the ring to one shard worker: an acceptor's side of a link. It belongs to the
 * acceptor's thread. Whoever puts an entry has asked `hasRoom` before, and rings afterwards.
 */

import type { Identity } from '../counters/hash.ts';
import type { Terms } from '../counters/window.ts';
import { BELL, type WorkerLane } from '../lanes.ts';
import { ring } from './bell.ts';
import { ENTRY, STATE } from './layout.ts';
import { ENTRIES, itemAt, type LinkMemory, Producer } from './ring.ts';

export class Handoff {
  readonly memory: LinkMemory;
  readonly #producer: Producer;
  readonly #worker: WorkerLane;

  constructor(memory: LinkMemory, worker: WorkerLane) {
    this.memory = memory;
    this.#producer = new Producer(memory, ENTRIES);
    this.#worker = worker;
  }

  hasRoom(): boolean {
    return this.#producer.hasRoom();
  }

  /** The number that the next entry will have. */
  get next(): number {
    return this.#producer.next;
  }

  /**
   * Puts one entry and publishes it.
   * @param kind one of KIND
   * @param window of a deduction: the number of the window in which the check was admitted
   */
  put(
    kind: number,
    id: Identity,
    namespaceTag: number,
    window: number,
    { limit, durationMs, cost }: Terms,
  ): void {
    const { words, doubles } = this.memory;
    const at = this.#producer.slot();
    doubles[at / 2 + ENTRY.limit] = limit;
    doubles[at / 2 + ENTRY.durationMs] = durationMs;
    doubles[at / 2 + ENTRY.cost] = cost;
    doubles[at / 2 + ENTRY.window] = window;
    words[at + ENTRY.hash] = id.h0;
    words[at + ENTRY.hash + 1] = id.h1;
    words[at + ENTRY.hash + 2] = id.h2;
    words[at + ENTRY.hash + 3] = id.h3;
    words[at + ENTRY.namespaceTag] = namespaceTag;
    words[at + ENTRY.kind] = kind;
    words[at + ENTRY.state] = STATE.queued;
    words[at + ENTRY.number] = this.#producer.next;
    this.#producer.publish();
  }

  /** Wakes the worker, should it sleep. */
  ring(): void {
    ring(this.#worker.words, BELL);
  }

  /** Takes an entry back. @returns false when the worker has begun it, or is done with it */
  withdraw(number: number): boolean {
    const state = itemAt(ENTRIES, number) + ENTRY.state;
    const was = Atomics.compareExchange(this.memory.words, state, STATE.queued, STATE.withdrawn);
    return was === STATE.queued;
  }
}
