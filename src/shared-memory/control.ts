/**
 * The control words: one small shared buffer with the clock and the statistics of all threads. The
 * main thread allocates it, and every thread attaches. A buffer of the wrong size is a MemoryError.
 *
 *   line 0      header      int32: acceptors | workers | RLS threads
 *   line 1      clock       int32: sequence; the active anchor is the one at `sequence & 1` |
 *                           hour of the analytics, since 1970; 0: off
 *   line 2, 3   anchors     float64: monotonic ms | wall ms | rate; the main thread is the writer
 *   line 4...   stats       a block for each thread that decides checks, first the acceptors and
 *                           then the RLS threads; then one for each shard worker; see `stats.ts`
 */

import { CACHE_LINE_BYTES } from '../core/constants.ts';
import { MemoryError } from '../core/errors.ts';
import { ACCEPTOR_STATS_BYTES, AcceptorStats, WORKER_STATS_BYTES, WorkerStats } from './stats.ts';

/** Offsets in words. */
export const CONTROL = {
  acceptors: 0,
  workers: 1,
  rlsThreads: 2,
  clockSequence: 16,
  analyticsHour: 17,
} as const;

/** Offsets in doubles from the start of an anchor. */
export const ANCHOR = { monotonicMs: 0, wallMs: 1, rate: 2 } as const;

const ANCHORS_FIRST_LINE = 2;
const STATS_OFFSET = 4 * CACHE_LINE_BYTES;

function controlBytes(acceptors: number, workers: number): number {
  return STATS_OFFSET + acceptors * ACCEPTOR_STATS_BYTES + workers * WORKER_STATS_BYTES;
}

/** @param rlsThreads threads of the rate limit service of Envoy */
export function allocateControl(
  acceptors: number,
  workers: number,
  rlsThreads = 0,
): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer(controlBytes(acceptors + rlsThreads, workers));
  const words = new Int32Array(buffer);
  words[CONTROL.acceptors] = acceptors;
  words[CONTROL.workers] = workers;
  words[CONTROL.rlsThreads] = rlsThreads;
  return buffer;
}

export class Control {
  /** The threads that decide checks: acceptors, and then RLS threads. */
  readonly acceptorCount: number;
  readonly #httpAcceptorCount: number;
  readonly workerCount: number;
  readonly words: Int32Array;
  readonly #buffer: SharedArrayBuffer;

  /** @throws MemoryError when the size of the buffer does not fit its header */
  constructor(buffer: SharedArrayBuffer) {
    const words = new Int32Array(buffer);
    this.#httpAcceptorCount = words[CONTROL.acceptors];
    this.acceptorCount = this.#httpAcceptorCount + words[CONTROL.rlsThreads];
    this.workerCount = words[CONTROL.workers];
    if (buffer.byteLength !== controlBytes(this.acceptorCount, this.workerCount)) {
      throw new MemoryError(
        `the control words: ${buffer.byteLength} bytes for ${this.acceptorCount} acceptors` +
          ` and ${this.workerCount} workers`,
      );
    }
    this.words = words;
    this.#buffer = buffer;
  }

  /** One of the two anchors of the clock. */
  anchor(index: 0 | 1): Float64Array {
    return new Float64Array(this.#buffer, (ANCHORS_FIRST_LINE + index) * CACHE_LINE_BYTES, 3);
  }

  /** @param index of the acceptor, from 0 */
  acceptorStats(index: number): AcceptorStats {
    if (!(index >= 0 && index < this.acceptorCount))
      throw new Error(`there is no acceptor ${index}`);
    return new AcceptorStats(this.#buffer, STATS_OFFSET + index * ACCEPTOR_STATS_BYTES);
  }

  allAcceptorStats(): AcceptorStats[] {
    return Array.from({ length: this.acceptorCount }, (_, index) => this.acceptorStats(index));
  }

  /** Of the acceptors, which serve HTTP. */
  httpStats(): AcceptorStats[] {
    return this.allAcceptorStats().slice(0, this.#httpAcceptorCount);
  }

  /** Of the RLS threads. */
  rlsStats(): AcceptorStats[] {
    return this.allAcceptorStats().slice(this.#httpAcceptorCount);
  }

  /** @param index of the shard worker, from 0 */
  workerStats(index: number): WorkerStats {
    if (!(index >= 0 && index < this.workerCount)) throw new Error(`there is no worker ${index}`);
    const workers = STATS_OFFSET + this.acceptorCount * ACCEPTOR_STATS_BYTES;
    return new WorkerStats(this.#buffer, workers + index * WORKER_STATS_BYTES);
  }

  allWorkerStats(): WorkerStats[] {
    return Array.from({ length: this.workerCount }, (_, index) => this.workerStats(index));
  }
}
