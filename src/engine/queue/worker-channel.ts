/**
 * An acceptor's side of the channel to one shard worker: its queues, and the checks in them that
 * have no decision yet, in their order.
 */

import type { MessagePort } from 'node:worker_threads';
import { type Check, copyCheck } from '../../core/check.ts';
import { CHECK_QUEUE_ENTRIES } from '../../core/constants.ts';
import { newDecision } from '../../core/decision.ts';
import type { Completion } from '../engine.ts';
import type { CheckQueueProducer } from './check-queue-producer.ts';
import { TAIL } from './layout.ts';
import { QueueConsumer, REPLY_QUEUE } from './queue.ts';

/** A check that waits for its decision. */
export interface PendingCheck {
  /** That of its queue entry. */
  number: number;
  check: Check;
  startedMs: number;
  context: unknown;
  completion: Completion<unknown>;
}

export class WorkerChannel {
  readonly producer: CheckQueueProducer;
  readonly replies: QueueConsumer;
  readonly decision = newDecision();
  /** Receives the messages of the worker's current run. */
  notificationPort: MessagePort | undefined;
  isWakeUpDue = false;
  /** The last entry that was withdrawn, until the worker has passed it. */
  lastWithdrawn: number | undefined;
  /** By entry number modulo CHECK_QUEUE_ENTRIES. `#oldestPending` bounds the indexes in use. */
  readonly #pending: (PendingCheck | undefined)[] = new Array(CHECK_QUEUE_ENTRIES).fill(undefined);
  #oldestPending: number;

  constructor(producer: CheckQueueProducer) {
    this.producer = producer;
    this.replies = new QueueConsumer(producer.memory, REPLY_QUEUE);
    this.#oldestPending = producer.nextNumber;
  }

  /** Whether the worker can be given one more check: it is not late, and there is room. */
  canEnqueue(): boolean {
    if (this.lastWithdrawn !== undefined) {
      const tail = Atomics.load(this.producer.memory.words, TAIL);
      if (((tail - this.lastWithdrawn) | 0) <= 0) return false;
      this.lastWithdrawn = undefined;
    }
    if (((this.producer.nextNumber - this.#oldestPending) | 0) >= CHECK_QUEUE_ENTRIES) return false;
    return this.producer.hasRoom();
  }

  /** Whether no check is pending. */
  isIdle(): boolean {
    return this.#oldestPending === this.producer.nextNumber;
  }

  /** Adds the check that is enqueued next. */
  addPending(
    check: Check,
    startedMs: number,
    context: unknown,
    completion: Completion<unknown>,
  ): void {
    const number = this.producer.nextNumber;
    const pending = { number, check: copyCheck(check), startedMs, context, completion };
    this.#pending[number & (CHECK_QUEUE_ENTRIES - 1)] = pending;
  }

  /** The pending check of a number, if there is one. */
  pendingAt(number: number): PendingCheck | undefined {
    const pending = this.#pending[number & (CHECK_QUEUE_ENTRIES - 1)];
    return pending?.number === number ? pending : undefined;
  }

  /** Removes a check that is decided, or has failed. */
  removePending({ number }: PendingCheck): void {
    this.#pending[number & (CHECK_QUEUE_ENTRIES - 1)] = undefined;
    this.skipAnswered();
  }

  /** Moves on to the oldest entry that waits for a reply, or past the last entry. */
  skipAnswered(): void {
    while (
      this.#oldestPending !== this.producer.nextNumber &&
      this.#pending[this.#oldestPending & (CHECK_QUEUE_ENTRIES - 1)] === undefined
    ) {
      this.#oldestPending = (this.#oldestPending + 1) | 0;
    }
  }

  /** The pending checks, oldest first. */
  allPending(): PendingCheck[] {
    const checks: PendingCheck[] = [];
    for (let n = this.#oldestPending; n !== this.producer.nextNumber; n = (n + 1) | 0) {
      const pending = this.pendingAt(n);
      if (pending !== undefined) checks.push(pending);
    }
    return checks;
  }
}
