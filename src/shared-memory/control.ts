/**
 * The control words: one small shared buffer with what all threads must know of each other. The
 * main thread allocates it; every thread attaches. A test pins the numbers.
 *
 *   line 0      header      int32: magic | version | acceptors | workers
 *   line 1      clock       int32: sequence, of the anchor in force (at sequence & 1)
 *   line 2, 3   anchors     float64: monotonic ms | wall ms | rate; written by the main thread only
 *   line 4...   lanes       one per acceptor, then one per shard worker: drawn in `lanes.ts`
 */

import { CACHE_LINE_BYTES } from '../core/constants.ts';
import { MemoryError } from '../core/errors.ts';
import { allocateMemory, attachMemory } from './block.ts';
import { ACCEPTOR_STATS_BYTES, AcceptorStats, WORKER_STATS_BYTES, WorkerStats } from './stats.ts';

export const CONTROL_MAGIC = 0x57656363; // "Wecc"
export const CONTROL_VERSION = 4;

export const CONTROL = {
  magic: 0,
  version: 1,
  acceptors: 2,
  workers: 3,
  clockSequence: 16,
} as const;

const HEADER = { magic: CONTROL_MAGIC, version: CONTROL_VERSION };

/** Offsets in doubles from an anchor's line. */
export const ANCHOR = { monotonicMs: 0, wallMs: 1, rate: 2 } as const;

const ANCHORS_FIRST_LINE = 2;
const STATS_OFFSET = 4 * CACHE_LINE_BYTES;

function controlBytes(acceptors: number, workers: number): number {
  return STATS_OFFSET + acceptors * ACCEPTOR_STATS_BYTES + workers * WORKER_STATS_BYTES;
}

export function allocateControl(acceptors: number, workers: number): SharedArrayBuffer {
  const values = { ...HEADER, acceptors, workers };
  return allocateMemory(controlBytes(acceptors, workers), CONTROL, values);
}

/** @throws MemoryError when the buffer is not a set of control words of this version */
export class Control {
  readonly acceptorCount: number;
  readonly workerCount: number;
  readonly words: Int32Array;
  readonly #buffer: SharedArrayBuffer;

  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, 'the control words', CONTROL, HEADER);
    this.acceptorCount = words[CONTROL.acceptors];
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

  /** The lane of an acceptor, counted from 0. */
  acceptorStats(index: number): AcceptorStats {
    if (!(index >= 0 && index < this.acceptorCount))
      throw new Error(`there is no acceptor ${index}`);
    return new AcceptorStats(this.#buffer, STATS_OFFSET + index * ACCEPTOR_STATS_BYTES);
  }

  allAcceptorStats(): AcceptorStats[] {
    return Array.from({ length: this.acceptorCount }, (_, index) => this.acceptorStats(index));
  }

  /** The lane of a shard worker, counted from 0. */
  workerStats(index: number): WorkerStats {
    if (!(index >= 0 && index < this.workerCount)) throw new Error(`there is no worker ${index}`);
    const workers = STATS_OFFSET + this.acceptorCount * ACCEPTOR_STATS_BYTES;
    return new WorkerStats(this.#buffer, workers + index * WORKER_STATS_BYTES);
  }

  allWorkerStats(): WorkerStats[] {
    return Array.from({ length: this.workerCount }, (_, index) => this.workerStats(index));
  }
}
