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

import { CHECK_DEADLINE_MS } from '../limits.ts';
import { HEAD, TAIL } from './layout.ts';
import type { LinkMemory } from './ring.ts';

const LOOK_MS = 1;

/** Somebody who waits for the rings to a worker. */
interface Waiting {
  worker: number;
  /** Of each acceptor's ring, the head at the moment in question. */
  heads: number[];
  deadlineMs: number;
  resolve: (isDone: boolean) => void;
}

export class RingsAhead {
  readonly #links: readonly (readonly LinkMemory[])[];
  readonly #nowMs: () => number;
  #waiting: Waiting[] = [];
  /** Runs while somebody waits. */
  #looking: NodeJS.Timeout | undefined;

  /**
   * @param links by acceptor and worker
   * @param nowMs a monotonic clock
   */
  constructor(links: readonly (readonly LinkMemory[])[], nowMs: () => number) {
    this.#links = links;
    this.#nowMs = nowMs;
  }

  /**
   * @returns undefined where nothing lies in the rings to a worker; else a promise, resolved in
   *   another turn: true when what lay there has been done, false when CHECK_DEADLINE_MS have
   *   passed before
   */
  wait(worker: number): Promise<boolean> | undefined {
    const heads = this.#links.map((row) => Atomics.load(row[worker].words, HEAD));
    if (this.#areDone(worker, heads)) return undefined;
    const deadlineMs = this.#nowMs() + CHECK_DEADLINE_MS;
    this.#looking ??= setInterval(() => this.#look(), LOOK_MS);
    return new Promise((resolve) => {
      this.#waiting.push({ worker, heads, deadlineMs, resolve });
    });
  }

  #look(): void {
    const nowMs = this.#nowMs();
    this.#waiting = this.#waiting.filter(({ worker, heads, deadlineMs, resolve }) => {
      const isDone = this.#areDone(worker, heads);
      if (!isDone && nowMs < deadlineMs) return true;
      resolve(isDone);
      return false;
    });
    if (this.#waiting.length > 0) return;
    clearInterval(this.#looking);
    this.#looking = undefined;
  }

  #areDone(worker: number, heads: readonly number[]): boolean {
    return heads.every((head, acceptor) => {
      const tail = Atomics.load(this.#links[acceptor][worker].words, TAIL);
      return ((tail - head) | 0) >= 0;
    });
  }
}
