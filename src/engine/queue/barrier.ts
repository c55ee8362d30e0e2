/**
 * Waits for the entries that are in the queues of all acceptors to one shard worker: until each
 * tail reaches the head that was read when the wait began. An acceptor reads heads and tails of the
 * queues of other acceptors, never their entries. An entry is published before its check is
 * answered, so a request that follows the response, on any thread, sees its head. A tail may be
 * read late, which only prolongs the wait.
 *
 * A worker that is unresponsive or dies is replaced, and its successor continues with its queues. A
 * wait that takes longer than CHECK_DEADLINE_MS ends without success.
 */

import { CHECK_DEADLINE_MS } from '../../core/constants.ts';
import { HEAD, TAIL } from './layout.ts';
import type { ChannelMemory } from './queue.ts';

const POLL_INTERVAL_MS = 1;

interface Waiter {
  worker: number;
  /** The head of each acceptor's queue when the wait began. */
  heads: number[];
  deadlineMs: number;
  resolve: (isDone: boolean) => void;
}

export class QueueBarrier {
  readonly #channels: readonly (readonly ChannelMemory[])[];
  readonly #nowMs: () => number;
  #waiters: Waiter[] = [];
  /** Runs while there are waiters. */
  #pollTimer: NodeJS.Timeout | undefined;

  /**
   * @param channels by acceptor and worker
   * @param nowMs a monotonic clock
   */
  constructor(channels: readonly (readonly ChannelMemory[])[], nowMs: () => number) {
    this.#channels = channels;
    this.#nowMs = nowMs;
  }

  /**
   * @returns undefined where the queues to a worker are empty; else a promise that is resolved in
   *   a later turn: true when their entries are done, false after CHECK_DEADLINE_MS
   */
  wait(worker: number): Promise<boolean> | undefined {
    const heads = this.#channels.map((row) => Atomics.load(row[worker].words, HEAD));
    if (this.#isDrained(worker, heads)) return undefined;
    const deadlineMs = this.#nowMs() + CHECK_DEADLINE_MS;
    this.#pollTimer ??= setInterval(() => this.#poll(), POLL_INTERVAL_MS);
    return new Promise((resolve) => {
      this.#waiters.push({ worker, heads, deadlineMs, resolve });
    });
  }

  #poll(): void {
    const nowMs = this.#nowMs();
    this.#waiters = this.#waiters.filter(({ worker, heads, deadlineMs, resolve }) => {
      const isDone = this.#isDrained(worker, heads);
      if (!isDone && nowMs < deadlineMs) return true;
      resolve(isDone);
      return false;
    });
    if (this.#waiters.length > 0) return;
    clearInterval(this.#pollTimer);
    this.#pollTimer = undefined;
  }

  #isDrained(worker: number, heads: readonly number[]): boolean {
    return heads.every((head, acceptor) => {
      const tail = Atomics.load(this.#channels[acceptor][worker].words, TAIL);
      return ((tail - head) | 0) >= 0;
    });
  }
}
