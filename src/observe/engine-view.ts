/**
 * What metrics and the admin port read of the engine beside the statistics in shared memory: its
 * shard workers and its queues. This is the only file in `observe` that imports from the engine.
 * Every read is right as of a moment ago.
 */

import { CHECK_QUEUE, queueDepth } from '../engine/worker/queue.ts';

export interface WorkersView {
  readonly workerCount: number;
  /** Shard workers that run and are responsive. */
  readonly runningCount: number;
  /** Runs that failed, or failed to start, and were followed by another. */
  readonly replacementCount: number;
}

export interface EngineView {
  readonly workers: WorkersView;
  /** Entries that wait for a shard worker, in the queues of all acceptors. */
  queueDepth(worker: number): number;
}

/** @param channels by acceptor and shard worker */
export function viewOf(
  workers: WorkersView,
  channels: readonly (readonly SharedArrayBuffer[])[],
): EngineView {
  const words = channels.map((row) => row.map((channel) => new Int32Array(channel)));
  return {
    workers,
    queueDepth: (worker) =>
      words.reduce((sum, row) => sum + queueDepth(row[worker], CHECK_QUEUE), 0),
  };
}
