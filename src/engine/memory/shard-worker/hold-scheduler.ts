/** Ends the expired holds of all shards of a worker, some at a time. */

import { WORKER_STAT, type WorkerStats } from '../../../shared-memory/stats.ts';
import type { ShardHolds } from '../shard-holds.ts';

/** The pause between two looks at the expiry of the first hold. */
const INTERVAL_MS = 50;
/** Holds of a shard that a step ends: less than a millisecond. */
const STEP_HOLDS = 256;

export class HoldScheduler {
  readonly #shards: readonly ShardHolds[];
  readonly #stats: WorkerStats;
  #nextMs = 0;

  constructor(shards: readonly ShardHolds[], stats: WorkerStats) {
    this.#shards = shards;
    this.#stats = stats;
  }

  /** @returns the ms until the next step, 0 while holds have expired */
  step(nowMs: number): number {
    if (nowMs < this.#nextMs) return this.#nextMs - nowMs;
    let isDone = true;
    for (const shard of this.#shards) {
      const ended = shard.expire(nowMs, STEP_HOLDS);
      this.#stats.add(WORKER_STAT.holdsExpired, ended);
      if (ended === STEP_HOLDS) isDone = false;
    }
    if (!isDone) return 0;
    this.#nextMs = nowMs + INTERVAL_MS;
    return INTERVAL_MS;
  }
}
