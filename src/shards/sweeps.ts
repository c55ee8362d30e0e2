/** Sweeping all shards of a worker in turn, a step at a time, with a rest between two rounds. */

import type { Table } from '../counters/buffer.ts';
import { Sweeper } from '../counters/sweep.ts';
import { WORK, type WorkerLane } from '../lanes.ts';
import { SWEEP_MS } from '../limits.ts';

export class Sweeps {
  readonly #sweepers: readonly Sweeper[];
  readonly #lane: WorkerLane;
  #at = 0;
  #nextMs = 0;

  /** @param owner the incarnation of the calling thread, which its locks carry */
  constructor(tables: readonly Table[], owner: number, lane: WorkerLane) {
    this.#sweepers = tables.map((table) => new Sweeper(table, owner));
    this.#lane = lane;
  }

  /** @returns how long there is nothing to sweep, 0 in the middle of a round */
  step(nowMs: number): number {
    if (nowMs < this.#nextMs) return this.#nextMs - nowMs;
    const sweeper = this.#sweepers[this.#at];
    const before = sweeper.removed;
    if (sweeper.step(nowMs)) this.#at++;
    this.#lane.add(WORK.swept, sweeper.removed - before);
    if (this.#at < this.#sweepers.length) return 0;
    this.#at = 0;
    this.#nextMs = nowMs + SWEEP_MS;
    this.#lane.set(
      WORK.live,
      this.#sweepers.reduce((sum, { live }) => sum + live, 0),
    );
    return SWEEP_MS;
  }
}
