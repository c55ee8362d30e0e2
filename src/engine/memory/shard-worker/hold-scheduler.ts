/** Ends the expired holds of all shards of a worker, some at a time. */

import { WORKER_STAT, type WorkerStats } from '../../../shared-memory/stats.ts';
import type { ShardHolds } from '../shard-holds.ts';

/** The longest pause. A new hold lives longer. */
const PAUSE_MAX_MS = 50;
/** The shortest pause. Holds that expire one after the other are ended together. */
const PAUSE_MIN_MS = 10;
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
    let pauseMs = PAUSE_MAX_MS;
    for (const shard of this.#shards) {
      const ended = shard.expire(nowMs, STEP_HOLDS);
      this.#stats.add(WORKER_STAT.holdsExpired, ended);
      if (ended === STEP_HOLDS) isDone = false;
      pauseMs = Math.min(pauseMs, shard.nextExpiryMs - nowMs);
    }
    if (!isDone) return 0;
    pauseMs = Math.max(PAUSE_MIN_MS, pauseMs);
    this.#nextMs = nowMs + pauseMs;
    return pauseMs;
  }
}
