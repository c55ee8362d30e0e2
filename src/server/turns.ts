/**
 * Gives every connection of an acceptor its turn. uWebSockets.js hands over all requests that one
 * read of a connection has brought, up to 512 KiB, before it looks at another connection. Nothing
 * else runs until it has done so with every connection that has data: no message of the main
 * thread, no timer.
 *
 * So one turn of the loop has a bounded number of requests. Further requests of the turn wait, and
 * run in order in later turns. uWebSockets.js closes a connection on which another request follows
 * one that waits: the client must repeat both. A client that awaits its responses sees nothing.
 *
 * Long requests go on in later turns, in slices of time. A turn has two slices: one for requests
 * that have had a whole slice already, and one for the others, which so wait for no long one.
 */

import {
  LONG_REQUESTS_MAX,
  TURN_CONNECTIONS_MAX,
  TURN_REQUESTS,
  TURN_REQUESTS_PER_CONNECTION,
} from '../core/constants.ts';
import { ApiError } from '../core/errors.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../shared-memory/stats.ts';
import type { HttpResponse } from './uws.ts';

/** Up to so many requests, turns are not told apart, which would cost each turn a callback. */
const UNCOUNTED_REQUESTS = TURN_REQUESTS / 2;

/** A long request pauses after this time, or after the second where others have paused. */
const SLICE_MS = 2;
const SLICE_MIN_MS = 0.5;

/** What takes as long as a request, 10 us: checks of a list, steps of a search for overrides. */
const CHECKS_PER_REQUEST = 8;
const STEPS_PER_REQUEST = 2_048;

/**
 * More than uWebSockets.js keeps back to send it with later responses of a packet. After so many
 * bytes all of it is sent.
 */
const SPACES = ' '.repeat(16_384);

interface WaitingRequest {
  run(): void;
  /** Called instead of `run` if the connection is closed. */
  drop(): void;
}

interface LongRequest {
  /** Goes on until `endMs` of the monotonic clock. It must not throw. @returns whether it ended */
  proceed(endMs: number): boolean;
}

export class Turns {
  /** Whether more requests have come in this turn than connections are open. */
  isPipelined = false;
  /** Whether requests must wait for a later turn. */
  isFull = false;
  /** Since turns were last told apart. What takes longer counts as several. */
  requests = 0;
  readonly #clock: Clock;
  readonly #stats: AcceptorStats;
  #number = 0;
  /** What long requests that have paused took in this turn. */
  #pausedMs = 0;
  /** Whether the request that runs is the last one of its turn. */
  #isLast = false;
  #isScheduled = false;
  readonly #waiting = new Set<WaitingRequest>();
  /** Those without a whole slice yet, and the others. */
  readonly #newRequests = new Set<LongRequest>();
  readonly #longRequests = new Set<LongRequest>();

  constructor(clock: Clock, stats: AcceptorStats) {
    this.#clock = clock;
    this.#stats = stats;
  }

  /** Called for the head of each request, and again for a body that arrives later. */
  begin(): void {
    if (++this.requests > UNCOUNTED_REQUESTS) this.#beginCounted();
  }

  #beginCounted(): void {
    this.#schedule();
    const { connections } = this.#stats;
    // The first UNCOUNTED_REQUESTS may be of earlier turns. Most connections of many are idle.
    const awaited = Math.min(connections, UNCOUNTED_REQUESTS);
    this.isPipelined = this.requests > UNCOUNTED_REQUESTS + awaited;
    const more = TURN_REQUESTS_PER_CONNECTION * Math.min(connections, TURN_CONNECTIONS_MAX);
    if (this.requests <= TURN_REQUESTS + more) return;
    this.isFull = this.#isLast;
    this.#isLast = true;
  }

  /** Counts the checks of a list. */
  addChecks(count: number): void {
    this.#add(count / CHECKS_PER_REQUEST);
  }

  /** Counts the steps of a search for the override of a check, if they are many. */
  readonly addSteps = (count: number): void => {
    if (count >= STEPS_PER_REQUEST) this.#add(count / STEPS_PER_REQUEST);
  };

  #add(requests: number): void {
    this.requests += Math.floor(requests);
    if (this.requests > UNCOUNTED_REQUESTS) this.#schedule();
  }

  /**
   * When a request that may be long has to pause, if it begins now. The more time others that have
   * paused took in this turn, the sooner; those that are finished do not matter. It has enough time
   * for an ordinary list in any case.
   */
  sliceEndMs(nowMs: number): number {
    return nowMs + Math.max(SLICE_MIN_MS, SLICE_MS - this.#pausedMs / 2);
  }

  /**
   * Lengthens the last response of a turn. If the next request closes the connection, the
   * responses that uWebSockets.js keeps back would be lost, although their checks are counted.
   * @param json a body; whitespace after it has no meaning
   */
  lengthenLast(json: string | Uint8Array): string | Uint8Array {
    if (!this.#isLast || this.isFull) return json;
    const bytes = typeof json === 'string' ? Buffer.from(json) : json;
    return Buffer.concat([bytes, Buffer.from(SPACES)]);
  }

  /** Lets a request wait for a later turn. */
  wait(res: HttpResponse, request: WaitingRequest): void {
    const number = this.#number;
    this.#waiting.add(request);
    this.#schedule();
    res.onAborted(() => {
      if (!this.#waiting.delete(request)) return;
      // Within a turn a connection is closed only because of its next request.
      if (number === this.#number) this.#stats.increment(ACCEPTOR_STAT.shedPipelined);
      request.drop();
    });
  }

  /** Whether another long request can pause. @throws ApiError (503) */
  requireRoom(): void {
    if (this.#newRequests.size + this.#longRequests.size < LONG_REQUESTS_MAX) return;
    this.#stats.increment(ACCEPTOR_STAT.shedLists);
    const message = 'too many lists of checks are being decided; nothing was counted';
    throw new ApiError('SERVICE_UNAVAILABLE', message);
  }

  /**
   * Lets a long request go on in later turns.
   * @param tookMs how long it has run
   */
  pause(res: HttpResponse, request: LongRequest, tookMs: number): void {
    const number = this.#number;
    const countedMs = Math.min(tookMs, SLICE_MS);
    (countedMs < SLICE_MS ? this.#newRequests : this.#longRequests).add(request);
    this.#pausedMs += countedMs;
    this.#schedule();
    res.onAborted(() => {
      const isPaused = this.#newRequests.delete(request) || this.#longRequests.delete(request);
      if (isPaused && number === this.#number) this.#stats.increment(ACCEPTOR_STAT.shedPipelined);
    });
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#begin);
  }

  /** Begins a turn with what waits. */
  readonly #begin = (): void => {
    this.#isScheduled = false;
    this.#number++;
    this.requests = 0;
    this.#pausedMs = 0;
    this.isPipelined = false;
    this.isFull = false;
    this.#isLast = false;
    this.#stats.heartbeat();
    for (const request of this.#waiting) {
      if (this.requests >= TURN_REQUESTS) break;
      this.requests++;
      this.#waiting.delete(request);
      request.run();
    }
    this.#runSlice(this.#longRequests);
    // After the others: one that pauses now has had its slice.
    this.#runSlice(this.#newRequests);
    if (this.#waiting.size + this.#newRequests.size + this.#longRequests.size > 0) this.#schedule();
  };

  /** Requests that finish leave the rest of their slice to the next one. */
  #runSlice(requests: Set<LongRequest>): void {
    if (requests.size === 0) return;
    const beganMs = this.#clock.monotonicMs();
    const endMs = beganMs + SLICE_MS;
    for (const request of requests) {
      requests.delete(request);
      const isFinished = request.proceed(endMs);
      if (!isFinished) this.#longRequests.add(request);
      if (!isFinished || this.#clock.monotonicMs() >= endMs) break;
    }
    this.#pausedMs += Math.min(this.#clock.monotonicMs() - beganMs, SLICE_MS);
  }
}
