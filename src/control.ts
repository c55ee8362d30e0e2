/**
 * The control words: one small shared buffer with what all threads must know of each other. The
 * main thread allocates it; every thread attaches. A test pins the numbers.
 *
 *   line 0      header      int32: magic | version | acceptors | workers
 *   line 1      clock       int32: sequence, of the anchor in force (at sequence & 1)
 *   line 2, 3   anchors     float64: monotonic ms | wall ms | rate; written by the main thread only
 *   line 4...   lanes       one per acceptor, then one per shard worker: drawn in `lanes.ts`
 */

import { MemoryError } from './errors.ts';
import { ACCEPTOR_LANE_BYTES, AcceptorLane, WORKER_LANE_BYTES, WorkerLane } from './lanes.ts';
import { LINE_BYTES } from './limits.ts';
import { allocateMemory, attachMemory } from './memory.ts';

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

const ANCHORS_LINE = 2;
const LANES_AT = 4 * LINE_BYTES;

function controlBytes(acceptors: number, workers: number): number {
  return LANES_AT + acceptors * ACCEPTOR_LANE_BYTES + workers * WORKER_LANE_BYTES;
}

export function allocateControl(acceptors: number, workers: number): SharedArrayBuffer {
  const values = { ...HEADER, acceptors, workers };
  return allocateMemory(controlBytes(acceptors, workers), CONTROL, values);
}

/** @throws MemoryError when the buffer is not a set of control words of this version */
export class Control {
  readonly acceptors: number;
  readonly workers: number;
  readonly words: Int32Array;
  readonly #buffer: SharedArrayBuffer;

  constructor(buffer: SharedArrayBuffer) {
    const words = attachMemory(buffer, 'the control words', CONTROL, HEADER);
    this.acceptors = words[CONTROL.acceptors];
    this.workers = words[CONTROL.workers];
    if (buffer.byteLength !== controlBytes(this.acceptors, this.workers)) {
      throw new MemoryError(
        `the control words: ${buffer.byteLength} bytes for ${this.acceptors} acceptors` +
          ` and ${this.workers} workers`,
      );
    }
    this.words = words;
    this.#buffer = buffer;
  }

  /** One of the two anchors of the clock. */
  anchor(index: 0 | 1): Float64Array {
    return new Float64Array(this.#buffer, (ANCHORS_LINE + index) * LINE_BYTES, 3);
  }

  /** The lane of an acceptor, counted from 0. */
  acceptorLane(index: number): AcceptorLane {
    if (!(index >= 0 && index < this.acceptors)) throw new Error(`there is no acceptor ${index}`);
    return new AcceptorLane(this.#buffer, LANES_AT + index * ACCEPTOR_LANE_BYTES);
  }

  acceptorLanes(): AcceptorLane[] {
    return Array.from({ length: this.acceptors }, (_, index) => this.acceptorLane(index));
  }

  /** The lane of a shard worker, counted from 0. */
  workerLane(index: number): WorkerLane {
    if (!(index >= 0 && index < this.workers)) throw new Error(`there is no worker ${index}`);
    const workers = LANES_AT + this.acceptors * ACCEPTOR_LANE_BYTES;
    return new WorkerLane(this.#buffer, workers + index * WORKER_LANE_BYTES);
  }

  workerLanes(): WorkerLane[] {
    return Array.from({ length: this.workers }, (_, index) => this.workerLane(index));
  }
}
