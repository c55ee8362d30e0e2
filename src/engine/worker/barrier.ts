/**
 * Waiting for what lies in the rings to a shard worker, those of all acceptors, as they stand at a
 * moment: what is to act behind it acts when every tail has passed the head of that moment. An
 * acceptor only looks at the rings of the others. An entry is published before its check is
 * answered, so whoever asks behind an answer, from wherever, finds its head; tails are at most too
 * old, which only waits longer.
 *
 * A worker that hangs or dies is replaced, and its successor goes on with its rings; what waits
 * until then is told when it took too long, and has done nothing.
 */

import { CHECK_DEADLINE_MS } from '../../core/constants.ts';
import { HEAD, TAIL } from './layout.ts';
import type { ChannelMemory } from './queue.ts';

const POLL_INTERVAL_MS = 1;

/** Somebody who waits for the rings to a worker. */
interface Waiter {
  worker: number;
  /** Of each acceptor's ring, the head at the moment in question. */
  heads: number[];
  deadlineMs: number;
  resolve: (isDone: boolean) => void;
}

export class QueueBarrier {
  readonly #channels: readonly (readonly ChannelMemory[])[];
  readonly #nowMs: () => number;
  #waiters: Waiter[] = [];
  /** Runs while somebody waits. */
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
   * @returns undefined where nothing lies in the rings to a worker; else a promise, resolved in
   *   another turn: true when what lay there has been done, false when CHECK_DEADLINE_MS have
   *   passed before
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
