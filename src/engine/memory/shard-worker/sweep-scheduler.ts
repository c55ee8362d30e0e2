/** Sweeps all shards of a worker in turn, a step at a time, with a pause between two rounds. */

import { SWEEP_INTERVAL_MS } from '../../../core/constants.ts';
import { WORKER_STAT, type WorkerStats } from '../../../shared-memory/stats.ts';
import type { TableMemory } from '../../table/table-memory.ts';
import { Sweeper } from '../sweep.ts';

export class SweepScheduler {
  readonly #sweepers: readonly Sweeper[];
  readonly #stats: WorkerStats;
  #current = 0;
  #nextMs = 0;

  /** @param owner of the locks that the calling thread takes: see `lock.ts` */
  constructor(tables: readonly TableMemory[], owner: number, stats: WorkerStats) {
    this.#sweepers = tables.map((table) => new Sweeper(table, owner));
    this.#stats = stats;
  }

  /** @returns the ms until the next round, 0 within a round */
  step(nowMs: number): number {
    if (nowMs < this.#nextMs) return this.#nextMs - nowMs;
    const sweeper = this.#sweepers[this.#current];
    const before = sweeper.removedCount;
    if (sweeper.step(nowMs)) this.#current++;
    this.#stats.add(WORKER_STAT.expiredCountersRemoved, sweeper.removedCount - before);
    if (this.#current < this.#sweepers.length) return 0;
    this.#current = 0;
    this.#nextMs = nowMs + SWEEP_INTERVAL_MS;
    this.#stats.set(
      WORKER_STAT.liveCounters,
      this.#sweepers.reduce((sum, { liveCount }) => sum + liveCount, 0),
    );
    return SWEEP_INTERVAL_MS;
  }
}
