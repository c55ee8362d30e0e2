/**
 * The control words: one small shared buffer with what all threads must know of each other. The
 * main thread allocates it; every thread attaches. A test pins the numbers.
 *
 *   line 0      header      int32: magic | version | lanes
 *   line 1      clock       int32: sequence, of the anchor in force (at sequence & 1)
 *   line 2, 3   anchors     float64: monotonic ms | wall ms | rate; written by the main thread only
 *   line 4...   lanes       two lines per acceptor, written by that acceptor only
 *
 *   lane        int32  0    heartbeat      beats since its start; wraps
 *               int32  1    connections    open now
 *               float64 8+  counts         since its start, one for each name in COUNT
 *
 * A lane has one writer, so its counts are plain stores: another thread reads a value that was true
 * a moment ago, never a mixture (aligned 64-bit stores). No check is decided by them: they are for
 * the log, and a sign that the thread lives.
 */

export const CONTROL_MAGIC = 0x57656363; // "Wecc"
export const CONTROL_VERSION = 1;

export const CONTROL = { magic: 0, version: 1, lanes: 2, clockSequence: 16 } as const;

/** Offsets in doubles from an anchor's line. */
export const ANCHOR = { monotonicMs: 0, wallMs: 1, rate: 2 } as const;

const LINE_BYTES = 64;
const ANCHORS_LINE = 2;
const LANES_LINE = 4;
const LANE_LINES = 2;

const HEARTBEAT = 0;
const CONNECTIONS = 1;
const COUNTS_AT = 8;

/** What an acceptor counts, each named exactly once: offsets in doubles from its first count. */
export const COUNT = {
  admitted: 0,
  refused: 1,
  liveEvictions: 2,
  fullTable: 3,
  clientErrors: 4,
  serverErrors: 5,
} as const;
const COUNTS = Object.keys(COUNT).length;

export function allocateControl(lanes: number): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer((LANES_LINE + lanes * LANE_LINES) * LINE_BYTES);
  const words = new Int32Array(buffer);
  words[CONTROL.version] = CONTROL_VERSION;
  words[CONTROL.lanes] = lanes;
  Atomics.store(words, CONTROL.magic, CONTROL_MAGIC);
  return buffer;
}

/** @throws when the buffer is not a set of control words of this version */
export class Control {
  readonly lanes: number;
  readonly words: Int32Array;
  readonly #buffer: SharedArrayBuffer;

  constructor(buffer: SharedArrayBuffer) {
    const words = new Int32Array(buffer);
    if (words[CONTROL.magic] !== CONTROL_MAGIC || words[CONTROL.version] !== CONTROL_VERSION) {
      throw new Error('the control words have another magic number or version');
    }
    this.lanes = words[CONTROL.lanes];
    if (buffer.byteLength !== (LANES_LINE + this.lanes * LANE_LINES) * LINE_BYTES) {
      throw new Error(`${buffer.byteLength} bytes of control words for ${this.lanes} lanes`);
    }
    this.words = words;
    this.#buffer = buffer;
  }

  /** One of the two anchors of the clock. */
  anchor(index: 0 | 1): Float64Array {
    return new Float64Array(this.#buffer, (ANCHORS_LINE + index) * LINE_BYTES, 3);
  }

  /** The lane of an acceptor, counted from 0. */
  lane(index: number): Lane {
    if (!(index >= 0 && index < this.lanes)) throw new Error(`there is no lane ${index}`);
    return new Lane(this.#buffer, (LANES_LINE + index * LANE_LINES) * LINE_BYTES);
  }
}

export class Lane {
  readonly #words: Int32Array;
  readonly #counts: Float64Array;

  constructor(buffer: SharedArrayBuffer, offset: number) {
    this.#words = new Int32Array(buffer, offset, COUNTS_AT * 2);
    this.#counts = new Float64Array(buffer, offset + COUNTS_AT * 8, COUNTS);
  }

  beat(): void {
    Atomics.add(this.#words, HEARTBEAT, 1);
  }

  /**
   * A number that moves as long as the thread does anything: its beats, and all that it counted. A
   * loop that is busy with one long turn of requests comes late to its timers.
   */
  get signsOfLife(): number {
    let signs = Atomics.load(this.#words, HEARTBEAT);
    for (const count of this.#counts) signs += count;
    return signs;
  }

  /** @param change 1 for a connection opened, -1 for one closed */
  connection(change: number): void {
    Atomics.add(this.#words, CONNECTIONS, change);
  }

  get connections(): number {
    return Atomics.load(this.#words, CONNECTIONS);
  }

  /** @param index one of COUNT */
  count(index: number): void {
    this.#counts[index]++;
  }

  counted(index: number): number {
    return this.#counts[index];
  }
}
