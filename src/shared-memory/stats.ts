/**
 * The lanes of the control words: what each thread shows of itself. A lane has one writer, so what
 * it counts are plain stores: another thread reads a value that was true a moment ago, never a
 * mixture (aligned 64-bit stores). No check is decided by them: they are for metrics, the log, and
 * as signs of life. Written by others are only the bell of a worker and its word to stop.
 *
 *   acceptor    line 0     int32: heartbeat, wraps | connections open now
 *               then       float64: counts, one for each name in COUNT
 *               then       float64: errors answered, one for each code in ERRORS
 *               then       float64: checks by duration, one for each of LATENCY_US and one beyond;
 *                          the sum of all durations in ms
 *               then       float64: namespaces, a row of TALLY each; the last row is of all others
 *
 *   worker      line 0     int32: heartbeat, wraps | incarnation | thread | at the disk
 *               line 1     int32: bell, of `bell.ts` | stop
 *               then       float64: counts, one for each name in WORK
 *
 * Every section begins on a line of its own.
 */

import { CACHE_LINE_BYTES, METRIC_NAMESPACES_MAX } from '../core/constants.ts';
import { ERRORS, type ErrorCode } from '../core/errors.ts';

const LINE_DOUBLES = CACHE_LINE_BYTES / 8;

/** What an acceptor counts, each named exactly once. */
export const ACCEPTOR_STAT = {
  /** Live counters that made room for a newcomer; newcomers for whom nobody did. */
  liveEvictions: 0,
  fullTableDecisions: 1,
  /** Deductions put into rings, and their tokens; checks put into rings. */
  deductions: 2,
  deductedTokens: 3,
  queuedChecks: 4,
  /** Decided in place because a ring was full, or its worker late. */
  queueFull: 5,
  /** Checks taken back from a worker that did not begin them in time. */
  withdrawnChecks: 6,
  /** Checks whose client was gone before the answer came back. */
  undeliveredResponses: 7,
  /** Checks that an override governed. */
  overriddenChecks: 8,
  /** Refunds, the tokens that they gave back, and counters that resets have removed. */
  refunds: 9,
  refundedTokens: 10,
  countersReset: 11,
  /** Not served, for a bound: connections, bodies, operations, clients that do not read. */
  shedConnections: 12,
  shedBodies: 13,
  shedOperations: 14,
  shedUnreadResponses: 15,
  /** Checks of gateways in which weir failed, by what their policy has them answered. */
  failuresAllowed: 16,
  failuresDenied: 17,
} as const;

/** What a shard worker counts. */
export const WORKER_STAT = {
  /** Deductions made, too late for their window, without room for their counter. */
  deductionsApplied: 0,
  deductionsWindowEnded: 1,
  deductionsFull: 2,
  /** The tokens of each. */
  deductionTokensApplied: 3,
  deductionTokensWindowEnded: 4,
  deductionTokensFull: 5,
  /** Live counters that made room for a deduction. */
  liveEvictions: 6,
  /** Checks decided. */
  decisions: 7,
  /** Entries that a dead worker had in hand: taken up again; given up, where a second one died. */
  entriesRepeated: 8,
  entriesLost: 9,
  /** Expired counters removed; live ones seen in the last round, which is no running count. */
  expiredCountersRemoved: 10,
  liveCounters: 11,
  /** Files of checkpoints written; those that could not be, and the system's error, 0 for none. */
  checkpoints: 12,
  checkpointFailures: 13,
  checkpointErrno: 14,
  /** What was decided before, in weir's time in ms, is in a file; 0 when nothing is yet. */
  checkpointedUntilMs: 15,
} as const;

/** Upper bounds of the histogram of durations, in us. */
export const LATENCY_BOUNDS_US = [
  5, 10, 15, 25, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000,
  250_000, 500_000, 1_000_000,
] as const;

/** A row of a namespace. Costs are summed as doubles: exact up to 2^53-1. */
export const NAMESPACE_STAT = {
  allowed: 0,
  denied: 1,
  tokensAllowed: 2,
  tokensDenied: 3,
  /** Refused, and let through all the same by a policy that only tries. */
  shadowDenials: 4,
  /** Of callers whom their policy could not tell from others. */
  unidentifiedChecks: 5,
} as const;
const NAMESPACE_STAT_COUNT = Object.keys(NAMESPACE_STAT).length;
/** The row of all namespaces that have none of their own. */
export const OTHER_NAMESPACES_ROW = METRIC_NAMESPACES_MAX;

const CODES = Object.keys(ERRORS) as ErrorCode[];

const doublesOfWholeLines = (doubles: number) => Math.ceil(doubles / LINE_DOUBLES) * LINE_DOUBLES;
const COUNTS_AT = LINE_DOUBLES;
const ERRORS_AT = COUNTS_AT + doublesOfWholeLines(Object.keys(ACCEPTOR_STAT).length);
const LATENCY_AT = ERRORS_AT + doublesOfWholeLines(CODES.length);
const ROWS_AT = LATENCY_AT + doublesOfWholeLines(LATENCY_BOUNDS_US.length + 2);
export const ACCEPTOR_STATS_BYTES =
  8 * (ROWS_AT + doublesOfWholeLines((OTHER_NAMESPACES_ROW + 1) * NAMESPACE_STAT_COUNT));

const WORKER_STATS_AT = 2 * LINE_DOUBLES;
export const WORKER_STATS_BYTES =
  8 * (WORKER_STATS_AT + doublesOfWholeLines(Object.keys(WORKER_STAT).length));

const HEARTBEAT = 0;
const CONNECTIONS = 1;

const INCARNATION = 1;
const THREAD_ID = 2;
const WAITING_FOR_DISK = 3;
/** Offsets in words. */
export const WAKE_UP_FLAG = CACHE_LINE_BYTES / 4;
const STOP_FLAG = WAKE_UP_FLAG + 1;

const LATENCY_BOUNDS_MS = Float64Array.from(LATENCY_BOUNDS_US, (us) => us / 1_000);

export class AcceptorStats {
  readonly #words: Int32Array;
  readonly #counts: Float64Array;
  readonly #errors: Float64Array;
  readonly #latency: Float64Array;
  readonly #rows: Float64Array[];

  constructor(buffer: SharedArrayBuffer, offset: number) {
    const doubles = (at: number, length: number) => {
      return new Float64Array(buffer, offset + at * 8, length);
    };
    this.#words = new Int32Array(buffer, offset, CACHE_LINE_BYTES / 4);
    this.#counts = doubles(COUNTS_AT, Object.keys(ACCEPTOR_STAT).length);
    this.#errors = doubles(ERRORS_AT, CODES.length);
    this.#latency = doubles(LATENCY_AT, LATENCY_BOUNDS_US.length + 2);
    this.#rows = Array.from({ length: OTHER_NAMESPACES_ROW + 1 }, (_, row) => {
      return doubles(ROWS_AT + row * NAMESPACE_STAT_COUNT, NAMESPACE_STAT_COUNT);
    });
  }

  heartbeat(): void {
    Atomics.add(this.#words, HEARTBEAT, 1);
  }

  /**
   * A number that moves as long as the thread does anything: its beats, and the checks and errors
   * that it answered. A loop that is busy with one long turn of requests comes late to its timers.
   */
  get heartbeats(): number {
    let signs = Atomics.load(this.#words, HEARTBEAT);
    for (const count of this.#latency) signs += count;
    for (const count of this.#errors) signs += count;
    return signs;
  }

  /** @param change 1 for a connection opened, -1 for one closed */
  addConnections(change: number): void {
    Atomics.add(this.#words, CONNECTIONS, change);
  }

  get connections(): number {
    return Atomics.load(this.#words, CONNECTIONS);
  }

  /** @param index one of COUNT */
  increment(index: number): void {
    this.#counts[index]++;
  }

  /** @param index one of COUNT */
  add(index: number, amount: number): void {
    this.#counts[index] += amount;
  }

  get(index: number): number {
    return this.#counts[index];
  }

  incrementErrors(code: ErrorCode): void {
    this.#errors[CODES.indexOf(code)]++;
  }

  errorCount(code: ErrorCode): number {
    return this.#errors[CODES.indexOf(code)];
  }

  /** A request of checks, one or many, answered after so long. */
  recordLatency(durationMs: number): void {
    const latency = this.#latency;
    let bucket = 0;
    while (bucket < LATENCY_BOUNDS_MS.length && durationMs > LATENCY_BOUNDS_MS[bucket]) bucket++;
    latency[bucket]++;
    latency[LATENCY_BOUNDS_MS.length + 1] += durationMs;
  }

  /** How many checks took at most each of LATENCY_US, and how many longer. */
  get latencyCounts(): Float64Array {
    return this.#latency.slice(0, -1);
  }

  get latencySumMs(): number {
    return this.#latency[LATENCY_BOUNDS_US.length + 1];
  }

  /** The row of a namespace, for its writer to count in. */
  namespaceRow(index: number): Float64Array {
    return this.#rows[index];
  }
}

/** What all lanes of a kind have counted together. @param index one of COUNT, or of WORK */
export function totalOf(
  allStats: readonly { get(index: number): number }[],
  index: number,
): number {
  return allStats.reduce((sum, lane) => sum + lane.get(index), 0);
}

/** A row for a namespace that has none in the lane yet. */
export function newNamespaceRow(): Float64Array {
  return new Float64Array(NAMESPACE_STAT_COUNT);
}

export class WorkerStats {
  /** The lane as words, for its bell. */
  readonly words: Int32Array;
  readonly #counts: Float64Array;

  constructor(buffer: SharedArrayBuffer, offset: number) {
    this.words = new Int32Array(buffer, offset, (2 * CACHE_LINE_BYTES) / 4);
    this.#counts = new Float64Array(
      buffer,
      offset + WORKER_STATS_AT * 8,
      Object.keys(WORKER_STAT).length,
    );
  }

  heartbeat(): void {
    Atomics.add(this.words, HEARTBEAT, 1);
  }

  get heartbeats(): number {
    return Atomics.load(this.words, HEARTBEAT);
  }

  /** A run of this incarnation may begin from now on, and no other; `thread` is 0 until it does. */
  expectRun(incarnation: number): void {
    Atomics.store(this.words, THREAD_ID, 0);
    this.setWaitingForDisk(false);
    Atomics.store(this.words, INCARNATION, incarnation);
  }

  /** A run begins on a thread. @returns false when another one is expected by now */
  startRun(incarnation: number, threadId: number): boolean {
    if (Atomics.load(this.words, INCARNATION) !== incarnation) return false;
    Atomics.store(this.words, THREAD_ID, threadId);
    return true;
  }

  get threadId(): number {
    return Atomics.load(this.words, THREAD_ID);
  }

  /** What it does from now on may wait for the disk, without a sign of life. */
  setWaitingForDisk(isWaiting: boolean): void {
    Atomics.store(this.words, WAITING_FOR_DISK, isWaiting ? 1 : 0);
  }

  get isWaitingForDisk(): boolean {
    return Atomics.load(this.words, WAITING_FOR_DISK) === 1;
  }

  /** Tells the worker to end when its rings are empty. It has to be rung for behind it. */
  requestStop(): void {
    Atomics.store(this.words, STOP_FLAG, 1);
  }

  get isStopping(): boolean {
    return Atomics.load(this.words, STOP_FLAG) === 1;
  }

  /** @param index one of WORK */
  add(index: number, amount: number): void {
    this.#counts[index] += amount;
  }

  set(index: number, amount: number): void {
    this.#counts[index] = amount;
  }

  get(index: number): number {
    return this.#counts[index];
  }
}
