/**
 * The checkpoints of all shards of a worker, one after the other, in parts with pauses between
 * them: a core that acceptors want is taken from them for a fraction of a millisecond at a time. A
 * shard in which nothing was decided since its last one is left as it is.
 *
 * Where the disk fails, the shard's turn comes again in the next round. It is counted, and the
 * lane has the number of the error until a round is whole again; checks go on.
 */

import type { KeyWords } from '../counters/checkpoint.ts';
import { Checkpointer, Part } from '../counters/checkpointer.ts';
import type { CounterTable } from '../counters/table.ts';
import { WORK, type WorkerLane } from '../lanes.ts';

/** What a worker has to know of checkpoints. */
export interface CheckpointPlan {
  directory: string;
  everyMs: number;
  key: KeyWords;
}

/** Between two parts of a checkpoint. */
const PAUSE_MS = 1;

export class Checkpoints {
  readonly #checkpointers: readonly Checkpointer[];
  readonly #everyMs: number;
  readonly #lane: WorkerLane;
  /** The shard in hand; none between two rounds. */
  #at: number;
  #isBegun = false;
  #isWhole = true;
  #startedMs = 0;
  #nextMs = 0;

  /** @param owner the incarnation of the calling thread, which its locks carry */
  constructor(
    tables: readonly CounterTable[],
    owner: number,
    { directory, everyMs, key }: CheckpointPlan,
    lane: WorkerLane,
  ) {
    const part = new Part();
    this.#checkpointers = tables.map((table) => {
      return new Checkpointer(table, owner, directory, key, part, lane);
    });
    this.#everyMs = everyMs;
    this.#lane = lane;
    this.#at = this.#checkpointers.length;
  }

  /** Writes a part, if it is time. @returns how long there is nothing to write */
  step(nowMs: number): number {
    if (nowMs < this.#nextMs) return this.#nextMs - nowMs;
    if (!this.#isAmidst()) this.#begin(nowMs);
    this.#write(nowMs);
    this.#nextMs = this.#isAmidst() ? nowMs + PAUSE_MS : this.#startedMs + this.#everyMs;
    return Math.max(0, this.#nextMs - nowMs);
  }

  /** Writes a whole round without pauses. */
  writeLast(nowMs: number): void {
    this.#begin(nowMs);
    while (this.#isAmidst()) {
      this.#write(nowMs);
      this.#lane.beat();
    }
  }

  /** Leaves no file open. */
  close(): void {
    for (const checkpointer of this.#checkpointers) checkpointer.abandon();
  }

  #isAmidst(): boolean {
    return this.#at < this.#checkpointers.length;
  }

  #begin(nowMs: number): void {
    this.#at = 0;
    this.#isBegun = false;
    this.#isWhole = true;
    this.#startedMs = nowMs;
  }

  /** Writes a part of the shard in hand, or the first of the next one that needs it. */
  #write(nowMs: number): void {
    while (!this.#isBegun && this.#isAmidst() && !this.#checkpointers[this.#at].isBehind()) {
      this.#at++;
    }
    if (this.#isAmidst() && this.#writePart(this.#checkpointers[this.#at], nowMs)) {
      this.#isBegun = false;
      this.#at++;
    }
    if (!this.#isAmidst() && this.#isWhole) {
      this.#lane.set(WORK.checkpointedMs, this.#startedMs);
      this.#lane.set(WORK.checkpointError, 0);
    }
  }

  /** @returns whether the shard has had its turn */
  #writePart(checkpointer: Checkpointer, nowMs: number): boolean {
    try {
      if (!this.#isBegun) checkpointer.begin(nowMs);
      this.#isBegun = true;
      if (!checkpointer.step(nowMs)) return false;
      this.#lane.add(WORK.checkpoints, 1);
    } catch (error) {
      const { errno } = error as NodeJS.ErrnoException;
      if (errno === undefined) throw error;
      checkpointer.abandon();
      this.#isWhole = false;
      this.#lane.add(WORK.checkpointFailures, 1);
      this.#lane.set(WORK.checkpointError, errno);
    }
    return true;
  }
}
