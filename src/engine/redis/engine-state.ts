/**
 * The state of the Redis engine, which its shard workers show to all threads: one block. Each
 * field has one number, so a reader sees it before or after a write, never in between.
 *
 *   line 0      header      int32: workers | buckets
 *   line 1      machines    float64: machines | ms from monotonic to Unix time, locally
 *   line 2...   workers     a line each, int32: breaker | recovering | joined
 *   then        buckets     float64: ms from monotonic to Redis time, a lower bound | uncertainty
 *
 * The difference of a bucket that no answer has come from is 0, and the local time is used.
 */

import { CACHE_LINE_BYTES } from '../../core/constants.ts';
import { MemoryError } from '../../core/errors.ts';
import type { Identity } from '../../core/hash.ts';
import { allocateMemory, attachMemory } from '../../shared-memory/block.ts';

const ENGINE_STATE_HEADER = { workers: 0, buckets: 1 } as const;

export const BREAKER = { closed: 0, open: 1 } as const;

const LINE_WORDS = CACHE_LINE_BYTES / 4;
const LINE_DOUBLES = CACHE_LINE_BYTES / 8;
const MACHINES_LINE = 1;
const WORKERS_LINE = 2;
/** Offsets in doubles in the line of the machines. */
const MACHINES = { count: 0, localOffset: 1 } as const;
/** Offsets in words in the line of a worker. */
const WORKER = { breaker: 0, recovering: 1, joined: 2 } as const;
const BUCKET_DOUBLES = 2;

function stateBytes(workers: number, buckets: number): number {
  return (WORKERS_LINE + workers) * CACHE_LINE_BYTES + buckets * BUCKET_DOUBLES * 8;
}

/** @param buckets 1, or 64 in a cluster; a power of two */
export function allocateEngineState(workers: number, buckets: number): SharedArrayBuffer {
  const header = { workers, buckets };
  return allocateMemory(stateBytes(workers, buckets), ENGINE_STATE_HEADER, header);
}

export class EngineState {
  readonly workerCount: number;
  readonly bucketCount: number;
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #bucketMask: number;
  readonly #firstBucket: number;

  /** @throws MemoryError when the size of the buffer does not fit its header */
  constructor(buffer: SharedArrayBuffer) {
    this.#words = attachMemory(buffer, 'the state of the Redis engine', ENGINE_STATE_HEADER, {});
    this.#doubles = new Float64Array(buffer);
    this.workerCount = this.#words[ENGINE_STATE_HEADER.workers];
    this.bucketCount = this.#words[ENGINE_STATE_HEADER.buckets];
    const isPowerOfTwo = this.bucketCount > 0 && (this.bucketCount & (this.bucketCount - 1)) === 0;
    if (!isPowerOfTwo || buffer.byteLength !== stateBytes(this.workerCount, this.bucketCount)) {
      throw new MemoryError(
        `the state of the Redis engine: ${buffer.byteLength} bytes for ${this.workerCount}` +
          ` workers and ${this.bucketCount} buckets`,
      );
    }
    this.#bucketMask = this.bucketCount - 1;
    this.#firstBucket = (WORKERS_LINE + this.workerCount) * LINE_DOUBLES;
  }

  #workerAt(worker: number): number {
    return (WORKERS_LINE + worker) * LINE_WORDS;
  }

  bucketOf(id: Identity): number {
    return id.h3 & this.#bucketMask;
  }

  /** Whether a worker sends no token requests at present. */
  isDown(worker: number): boolean {
    return this.#words[this.#workerAt(worker) + WORKER.breaker] !== BREAKER.closed;
  }

  /** @param breaker one of BREAKER */
  setBreaker(worker: number, breaker: number): void {
    Atomics.store(this.#words, this.#workerAt(worker) + WORKER.breaker, breaker);
  }

  /** Whether Redis waits for reports of counters that a worker has. */
  isRecovering(worker: number): boolean {
    return this.#words[this.#workerAt(worker) + WORKER.recovering] !== 0;
  }

  setRecovering(worker: number, isRecovering: boolean): void {
    Atomics.store(this.#words, this.#workerAt(worker) + WORKER.recovering, isRecovering ? 1 : 0);
  }

  /** Whether all live members know the member of a worker, in all buckets that it has used. */
  hasJoined(worker: number): boolean {
    return this.#words[this.#workerAt(worker) + WORKER.joined] !== 0;
  }

  setJoined(worker: number, hasJoined: boolean): void {
    Atomics.store(this.#words, this.#workerAt(worker) + WORKER.joined, hasJoined ? 1 : 0);
  }

  /** The last known number of machines; at least 1. */
  get machineCount(): number {
    return Math.max(1, this.#doubles[MACHINES_LINE * LINE_DOUBLES + MACHINES.count]);
  }

  setMachineCount(machines: number): void {
    this.#doubles[MACHINES_LINE * LINE_DOUBLES + MACHINES.count] = machines;
  }

  /** Sets the time that stands for Redis' time in buckets that have not answered yet. */
  setLocalClock(unixMs: number, monotonicMs: number): void {
    const at = MACHINES_LINE * LINE_DOUBLES + MACHINES.localOffset;
    this.#doubles[at] = unixMs - monotonicMs;
  }

  /**
   * @param offsetMs Redis' Unix time less the monotonic time: at least that much
   * @param uncertaintyMs how much more it may be
   */
  setClock(bucket: number, offsetMs: number, uncertaintyMs: number): void {
    const at = this.#firstBucket + bucket * BUCKET_DOUBLES;
    this.#doubles[at + 1] = uncertaintyMs;
    this.#doubles[at] = offsetMs;
  }

  /** Whether an answer of a bucket has come. */
  knowsClock(bucket: number): boolean {
    return this.#doubles[this.#firstBucket + bucket * BUCKET_DOUBLES] !== 0;
  }

  /** Redis' Unix time in ms, at least. @param tag hash 3 of an identity */
  redisMs(tag: number, monotonicMs: number): number {
    return Math.floor(monotonicMs + this.#offsetMs(tag));
  }

  /** The same in µs. */
  redisUs(tag: number, monotonicMs: number): number {
    return Math.floor((monotonicMs + this.#offsetMs(tag)) * 1_000);
  }

  #offsetMs(tag: number): number {
    const offset = this.#doubles[this.#firstBucket + (tag & this.#bucketMask) * BUCKET_DOUBLES];
    const local = this.#doubles[MACHINES_LINE * LINE_DOUBLES + MACHINES.localOffset];
    return offset === 0 ? local : offset;
  }

  /** Redis' Unix time in ms, at most. @param tag hash 3 of an identity */
  redisMsAtMost(tag: number, monotonicMs: number): number {
    const at = this.#firstBucket + (tag & this.#bucketMask) * BUCKET_DOUBLES;
    const uncertainty = this.#doubles[at + 1];
    return this.redisMs(tag, monotonicMs) + Math.ceil(uncertainty) + 1;
  }
}
