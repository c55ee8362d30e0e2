/**
 * Writes the checkpoints of all shards of a worker, one after the other, in parts with pauses
 * between them: acceptors lose a core for a fraction of a millisecond at a time. A shard without
 * decisions since its last checkpoint is skipped.
 *
 * When the disk fails, the shard is written again in the next round. The failure is counted, and
 * the stats block has its errno until a round is complete; checks continue.
 */

import { WORKER_STAT, type WorkerStats } from '../../../shared-memory/stats.ts';
import type { HoldTable } from '../../holds/hold-table.ts';
import type { HashKeyFingerprint } from '../checkpoint/format.ts';
import { CheckpointBuffer, CheckpointWriter } from '../checkpoint/writer.ts';
import type { CounterTable } from '../table.ts';

/** The settings of checkpoints. */
export interface CheckpointPlan {
  directory: string;
  intervalMs: number;
  keyFingerprint: HashKeyFingerprint;
}

/** What the files of a shard have. */
export interface CheckpointedShard {
  table: CounterTable;
  holds: HoldTable;
}

/** Between two parts of a checkpoint. */
const PART_PAUSE_MS = 1;

export class CheckpointScheduler {
  readonly #writers: readonly CheckpointWriter[];
  readonly #intervalMs: number;
  readonly #stats: WorkerStats;
  /** The index of the shard being written; the number of shards between two rounds. */
  #current: number;
  #hasBegunShard = false;
  #hasNoFailure = true;
  #roundStartedMs = 0;
  #nextMs = 0;

  /** @param owner of the locks that the calling thread takes: see `lock.ts` */
  constructor(
    shards: readonly CheckpointedShard[],
    owner: number,
    { directory, intervalMs, keyFingerprint }: CheckpointPlan,
    stats: WorkerStats,
  ) {
    const buffer = new CheckpointBuffer();
    this.#writers = shards.map(({ table, holds }) => {
      return new CheckpointWriter(table, holds, owner, directory, keyFingerprint, buffer, stats);
    });
    this.#intervalMs = intervalMs;
    this.#stats = stats;
    this.#current = this.#writers.length;
  }

  /** Writes a part if it is due. @returns the ms until the next part */
  step(nowMs: number): number {
    if (nowMs < this.#nextMs) return this.#nextMs - nowMs;
    if (!this.#isRoundActive()) this.#beginRound(nowMs);
    this.#writeNextPart(nowMs);
    this.#nextMs = this.#isRoundActive()
      ? nowMs + PART_PAUSE_MS
      : this.#roundStartedMs + this.#intervalMs;
    return Math.max(0, this.#nextMs - nowMs);
  }

  /** Writes a whole round without pauses. */
  writeFinalRound(nowMs: number): void {
    this.#beginRound(nowMs);
    while (this.#isRoundActive()) {
      this.#writeNextPart(nowMs);
      this.#stats.heartbeat();
    }
  }

  /** Closes all files. */
  close(): void {
    for (const writer of this.#writers) writer.abandon();
  }

  #isRoundActive(): boolean {
    return this.#current < this.#writers.length;
  }

  #beginRound(nowMs: number): void {
    this.#current = 0;
    this.#hasBegunShard = false;
    this.#hasNoFailure = true;
    this.#roundStartedMs = nowMs;
  }

  /** Writes a part of the current shard, or the first part of the next shard with changes. */
  #writeNextPart(nowMs: number): void {
    while (
      !this.#hasBegunShard &&
      this.#isRoundActive() &&
      !this.#writers[this.#current].hasChanges()
    ) {
      this.#current++;
    }
    if (this.#isRoundActive() && this.#writePart(this.#writers[this.#current], nowMs)) {
      this.#hasBegunShard = false;
      this.#current++;
    }
    if (!this.#isRoundActive() && this.#hasNoFailure) {
      this.#stats.set(WORKER_STAT.checkpointedUntilMs, this.#roundStartedMs);
      this.#stats.set(WORKER_STAT.checkpointErrno, 0);
    }
  }

  /** @returns whether the shard is finished, or has failed */
  #writePart(writer: CheckpointWriter, nowMs: number): boolean {
    try {
      if (!this.#hasBegunShard) writer.begin(nowMs);
      this.#hasBegunShard = true;
      if (!writer.writePart(nowMs)) return false;
      this.#stats.add(WORKER_STAT.checkpoints, 1);
    } catch (error) {
      const { errno } = error as NodeJS.ErrnoException;
      if (errno === undefined) throw error;
      writer.abandon();
      this.#hasNoFailure = false;
      this.#stats.add(WORKER_STAT.checkpointFailures, 1);
      this.#stats.set(WORKER_STAT.checkpointErrno, errno);
    }
    return true;
  }
}
