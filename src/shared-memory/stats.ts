/**
 * The stats blocks of the control words: what each thread counts about itself. A block has one
 * writer, which uses plain stores of aligned 64-bit values. Another thread reads a value that was
 * right a moment ago, never a torn one. Metrics, the log and heartbeats read the blocks; decisions
 * do not. Other threads write only words of a worker: acceptors and the main thread its wake-up
 * flag, the main thread its stop flag and, between two runs, the three words behind its heartbeat.
 *
 *   acceptor    line 0     int32: heartbeat, wraps | open connections | kernel thread id |
 *                          waiting for disk
 *               then       float64: one count for each name in ACCEPTOR_STAT
 *               then       float64: errors sent, one count for each code in ERRORS
 *               then       float64: check requests by latency, one count for each of
 *                          LATENCY_BOUNDS_US and one above; the sum of all latencies in ms
 *               then       float64: one row of NAMESPACE_STAT for each namespace; the last row is
 *                          for namespaces that could not be registered
 *               then       float64: the use of overrides, see `usage-counts.ts`
 *
 *   worker      line 0     int32: heartbeat, wraps | incarnation | thread id | waiting for disk |
 *                          kernel thread id
 *               line 1     int32: wake-up flag, see `wake-up.ts` | stop flag
 *               then       float64: one count for each name in WORKER_STAT
 *               then       float64: calls to Redis by latency, as the check requests above
 *               then       float64: failed calls to Redis, one count for each of REDIS_ERROR_KINDS
 *               then       float64: `openedWindowTokens` by namespace, see `namespace-tokens.ts`
 *
 * Every section begins on its own cache line.
 */

import { CACHE_LINE_BYTES, NAMESPACES_MAX, PENDING_CHANGES_MAX } from '../core/constants.ts';
import { ERRORS, type ErrorCode } from '../core/errors.ts';
import { type CountName, NAMESPACE_COUNTS } from '../core/figures.ts';
import { REDIS_ERROR_KINDS, type RedisErrorKind } from '../redis/errors.ts';
import { NAMESPACE_TOKENS_DOUBLES, NamespaceTokens } from './namespace-tokens.ts';
import { USAGE_DOUBLES, UsageCounts } from './usage-counts.ts';

const LINE_DOUBLES = CACHE_LINE_BYTES / 8;

/**
 * An index into the counts of one kind of thread. The property exists in the type only: it keeps a
 * worker's index from being used on an acceptor's block, and the other way round.
 */
type StatIndex<Thread extends string> = number & { readonly thread: Thread };
export type AcceptorStatIndex = StatIndex<'acceptor'>;
export type WorkerStatIndex = StatIndex<'worker'>;

const acceptorStats = {
  /** Live counters evicted to insert a new counter. */
  liveEvictions: 0,
  /** Checks decided by the full table policy: no slot for a new counter, and none to evict. */
  fullTableDecisions: 1,
  /** Deductions put into the queues, and their tokens. */
  deductions: 2,
  deductedTokens: 3,
  /** Checks put into the queues. */
  queuedChecks: 4,
  /** Checks decided in place because the queue was full or its worker was late. */
  queueFull: 5,
  /** Checks withdrawn from a worker that did not begin them in time. */
  withdrawnChecks: 6,
  /** Checks whose client disconnected before the response. */
  undeliveredResponses: 7,
  /** Checks whose limit came from an override. */
  overriddenChecks: 8,
  refunds: 9,
  refundedTokens: 10,
  /** Counters removed by resets. */
  countersReset: 11,
  /** Overload rejections by what had reached its bound. */
  shedConnections: 12,
  shedBodies: 13,
  shedOperations: 14,
  shedUnreadResponses: 15,
  /** Gateway checks in which weir failed, by the `onError` of their policy. */
  failuresAllowed: 16,
  failuresDenied: 17,
  /** Checks decided by WEIR_ON_ENGINE_DOWN, because Redis did not respond in time. */
  engineDownAllowed: 18,
  engineDownDenied: 19,
  /** Events of decisions that were dropped: too many were not written yet. */
  droppedEvents: 20,
  /** Requests of v1 with unknown fields, by operation. */
  unknownFieldsLimit: 21,
  unknownFieldsRefund: 22,
  unknownFieldsReset: 23,
  unknownFieldsInspect: 24,
  unknownFieldsExplain: 25,
  /** Overload rejections: requests after one that waited, and lists that could not wait. */
  shedPipelined: 26,
  shedLists: 27,
  /** Checks denied where tokens of leases that were written off count as used. */
  doubtedDenials: 28,
  /** Of `engineDownDenied`: before Redis had accepted this machine. */
  joiningDenials: 29,
  /** Checks denied while this machine pauses before it asks for more tokens of a sliding window. */
  sharedDenials: 30,
  /** Calls of the rate limit service by their result, and those for an unknown domain. */
  rlsOk: 31,
  rlsOverLimit: 32,
  rlsFaults: 33,
  rlsUnknownDomains: 34,
  /** Reservations and leases that were denied, or not recorded, because the table was full. */
  fullHoldDecisions: 35,
  /** Reservations that were recorded; commits, and those after the expiry; cancellations. */
  reservations: 36,
  commits: 37,
  lateCommits: 38,
  cancellations: 39,
  /** Concurrency leases released. */
  concurrencyLeasesReleased: 40,
  /** Requests of v1 with unknown fields, by operation on holds. */
  unknownFieldsReserve: 41,
  unknownFieldsCommit: 42,
  unknownFieldsCancel: 43,
  unknownFieldsAcquire: 44,
  unknownFieldsRenew: 45,
  unknownFieldsRelease: 46,
  unknownFieldsEndHold: 47,
  /** Requests with the `requestId` of an earlier one, which got its answer. */
  repeatedRequests: 48,
  /** Requests of v1 with unknown fields that look for an identifier. */
  unknownFieldsFindIdentifier: 49,
};
/** The counts of an acceptor. */
export const ACCEPTOR_STAT = acceptorStats as Readonly<
  Record<keyof typeof acceptorStats, AcceptorStatIndex>
>;

const workerStats = {
  /** Deductions applied; dropped because their window had ended; dropped by a full table. */
  deductionsApplied: 0,
  deductionsWindowEnded: 1,
  deductionsFull: 2,
  /** The tokens of these deductions. */
  deductionTokensApplied: 3,
  deductionTokensWindowEnded: 4,
  deductionTokensFull: 5,
  /** Live counters evicted to insert the counter of a deduction. */
  liveEvictions: 6,
  /** Checks decided. */
  decisions: 7,
  /** Queue entries claimed by a worker that died: processed again; dropped after a second death. */
  entriesRepeated: 8,
  entriesLost: 9,
  expiredCountersRemoved: 10,
  /** Live counters seen by the last sweep; not a running count. */
  liveCounters: 11,
  /** Checkpoint files written; failed attempts; the errno of the last attempt, 0 for none. */
  checkpoints: 12,
  checkpointFailures: 13,
  checkpointErrno: 14,
  /** Every decision before this time is in a file. Weir's time in ms; 0 before the first file. */
  checkpointedUntilMs: 15,
  /** Messages about one counter sent to Redis; the script calls that carried them or others. */
  tokenRequests: 16,
  redisCalls: 17,
  /** Calls that failed, timed out, or had an answer that is not valid. */
  redisCallFailures: 18,
  /** Times that the circuit breaker has opened. */
  breakerOpenings: 19,
  /** Leases granted by Redis, and their tokens. */
  leasesGranted: 20,
  leasedTokens: 21,
  /** Leases of which unspent tokens were returned, and these tokens. */
  leasesReturned: 22,
  returnedTokens: 23,
  /** Recalls that this worker has answered. They return leases too. */
  leasesRecalled: 24,
  /** Leases of other members that were written off for this worker: no answer to a recall. */
  leasesWrittenOff: 25,
  /** Checks denied while other members may have held unspent tokens. */
  unprovenDenials: 26,
  /** Checks denied because Redis has lost usage, and members had not reported theirs. */
  recoveryDenials: 27,
  /** Tokens granted where usage may be missing that Redis has lost. */
  openedWindowTokens: 28,
  /** Recoveries that this worker has seen the end of: with the reports of all, or not. */
  recoveriesComplete: 29,
  recoveriesIncomplete: 30,
  /** How far the clock of a bucket is ahead of its server's, the most of all; not running. */
  clockLagMs: 31,
  /** The clock of Redis less that of this machine, where they differ most; not running. */
  clockOffsetMs: 32,
  /** Leases with unspent tokens, and these tokens, when they were last counted; not running. */
  heldLeases: 33,
  heldTokens: 34,
  /** Counters whose usage or lease Redis did not get before the worker ended; not running. */
  unreportedCounters: 35,
  /** Why a worker could not write what it knew at its end: an errno; not running. */
  handOverErrno: 36,
  /** Reservations and leases that have ended by their expiry. */
  holdsExpired: 37,
};
/** The counts of a shard worker. */
export const WORKER_STAT = workerStats as Readonly<
  Record<keyof typeof workerStats, WorkerStatIndex>
>;

/** Upper bounds of the latency histogram, in us. */
export const LATENCY_BOUNDS_US = [
  5, 10, 15, 25, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000,
  250_000, 500_000, 1_000_000,
] as const;

/** The indexes of the counts of a namespace. Costs are summed as doubles: exact up to 2^53-1. */
export const NAMESPACE_STAT = Object.fromEntries(
  NAMESPACE_COUNTS.map(({ name }, index) => [name, index]),
) as Readonly<Record<CountName, number>>;
/** All of them, in order. */
export const NAMESPACE_STATS: readonly number[] = Object.values(NAMESPACE_STAT);
const NAMESPACE_STAT_COUNT = NAMESPACE_STATS.length;

/**
 * Counts a decision.
 * @param row of its namespace
 * @param cost of the check, whether or not it was allowed
 */
export function countDecision(row: Float64Array, cost: number, isAllowed: boolean): void {
  row[isAllowed ? NAMESPACE_STAT.allowed : NAMESPACE_STAT.denied]++;
  row[isAllowed ? NAMESPACE_STAT.tokensAllowed : NAMESPACE_STAT.tokensDenied] += cost;
}

/** Counts the decision on a lease. @param row of its namespace */
export function countLease(row: Float64Array, isGranted: boolean): void {
  row[isGranted ? NAMESPACE_STAT.leasesGranted : NAMESPACE_STAT.leasesDenied]++;
}

/** Rows for namespaces that replace deleted ones, whose own rows are not free yet. */
const SPARE_ROWS = PENDING_CHANGES_MAX;
/** The row of checks in namespaces that could not be registered. */
export const OTHER_NAMESPACES_ROW = NAMESPACES_MAX + SPARE_ROWS;

const CODES = Object.keys(ERRORS) as ErrorCode[];

const doublesOfWholeLines = (doubles: number) => Math.ceil(doubles / LINE_DOUBLES) * LINE_DOUBLES;
const COUNTS_AT = LINE_DOUBLES;
const ERRORS_AT = COUNTS_AT + doublesOfWholeLines(Object.keys(ACCEPTOR_STAT).length);
const LATENCY_AT = ERRORS_AT + doublesOfWholeLines(CODES.length);
const ROWS_AT = LATENCY_AT + doublesOfWholeLines(LATENCY_BOUNDS_US.length + 2);
const USAGE_AT = ROWS_AT + doublesOfWholeLines((OTHER_NAMESPACES_ROW + 1) * NAMESPACE_STAT_COUNT);
export const ACCEPTOR_STATS_BYTES = 8 * (USAGE_AT + doublesOfWholeLines(USAGE_DOUBLES));

const WORKER_STATS_AT = 2 * LINE_DOUBLES;
const CALL_LATENCY_AT = WORKER_STATS_AT + doublesOfWholeLines(Object.keys(WORKER_STAT).length);
const CALL_ERRORS_AT = CALL_LATENCY_AT + doublesOfWholeLines(LATENCY_BOUNDS_US.length + 2);
const OPENED_AT = CALL_ERRORS_AT + doublesOfWholeLines(REDIS_ERROR_KINDS.length);
export const WORKER_STATS_BYTES = 8 * (OPENED_AT + doublesOfWholeLines(NAMESPACE_TOKENS_DOUBLES));

const HEARTBEAT = 0;
const CONNECTIONS = 1;
const ACCEPTOR_KERNEL_THREAD_ID = 2;

/** Of both kinds of threads. */
const WAITING_FOR_DISK = 3;

const INCARNATION = 1;
const THREAD_ID = 2;
const WORKER_KERNEL_THREAD_ID = 4;
/** Offsets in words from the start of the block. */
export const WAKE_UP_FLAG = CACHE_LINE_BYTES / 4;
const STOP_FLAG = WAKE_UP_FLAG + 1;

const LATENCY_BOUNDS_MS = Float64Array.from(LATENCY_BOUNDS_US, (us) => us / 1_000);

export class AcceptorStats {
  readonly #words: Int32Array;
  readonly #counts: Float64Array;
  readonly #errors: Float64Array;
  readonly #latency: Float64Array;
  /** Most rows are never written, and so use no memory. */
  readonly #rows: Float64Array;
  /** The use of overrides. */
  readonly usage: UsageCounts;

  constructor(buffer: SharedArrayBuffer, offset: number) {
    const doubles = (at: number, length: number) => {
      return new Float64Array(buffer, offset + at * 8, length);
    };
    this.#words = new Int32Array(buffer, offset, CACHE_LINE_BYTES / 4);
    this.#counts = doubles(COUNTS_AT, Object.keys(ACCEPTOR_STAT).length);
    this.#errors = doubles(ERRORS_AT, CODES.length);
    this.#latency = doubles(LATENCY_AT, LATENCY_BOUNDS_US.length + 2);
    this.#rows = doubles(ROWS_AT, (OTHER_NAMESPACES_ROW + 1) * NAMESPACE_STAT_COUNT);
    this.usage = new UsageCounts(doubles(USAGE_AT, USAGE_DOUBLES));
  }

  heartbeat(): void {
    Atomics.add(this.#words, HEARTBEAT, 1);
  }

  /**
   * A number that changes while the thread makes progress: its heartbeats plus the requests that it
   * answered. An event loop that is busy with one long turn of requests reaches its timers late.
   */
  get heartbeats(): number {
    let progress = Atomics.load(this.#words, HEARTBEAT);
    for (const count of this.#latency) progress += count;
    for (const count of this.#errors) progress += count;
    return progress;
  }

  /** Announces the thread to the watcher of its heartbeats. */
  setKernelThreadId(id: number): void {
    Atomics.store(this.#words, ACCEPTOR_KERNEL_THREAD_ID, id);
  }

  get kernelThreadId(): number {
    return Atomics.load(this.#words, ACCEPTOR_KERNEL_THREAD_ID);
  }

  /** Announces that the thread may wait for the disk, and then misses heartbeats. */
  setWaitingForDisk(isWaiting: boolean): void {
    Atomics.store(this.#words, WAITING_FOR_DISK, isWaiting ? 1 : 0);
  }

  get isWaitingForDisk(): boolean {
    return Atomics.load(this.#words, WAITING_FOR_DISK) === 1;
  }

  /** @param change 1 for a connection opened, -1 for one closed */
  addConnections(change: number): void {
    Atomics.add(this.#words, CONNECTIONS, change);
  }

  get connections(): number {
    return Atomics.load(this.#words, CONNECTIONS);
  }

  increment(index: AcceptorStatIndex): void {
    this.#counts[index]++;
  }

  add(index: AcceptorStatIndex, amount: number): void {
    this.#counts[index] += amount;
  }

  get(index: AcceptorStatIndex): number {
    return this.#counts[index];
  }

  incrementErrors(code: ErrorCode): void {
    this.#errors[CODES.indexOf(code)]++;
  }

  errorCount(code: ErrorCode): number {
    return this.#errors[CODES.indexOf(code)];
  }

  /** Counts a request of one or more checks that was answered after `durationMs`. */
  recordLatency(durationMs: number): void {
    addLatency(this.#latency, durationMs);
  }

  /** Requests by latency bucket: one count for each of LATENCY_BOUNDS_US and one above. */
  get latencyCounts(): Float64Array {
    return this.#latency.slice(0, -1);
  }

  get latencySumMs(): number {
    return this.#latency[LATENCY_BOUNDS_US.length + 1];
  }

  /** The counts of a namespace, for the acceptor to increment. */
  namespaceRow(row: number): Float64Array {
    return this.#rows.subarray(row * NAMESPACE_STAT_COUNT, (row + 1) * NAMESPACE_STAT_COUNT);
  }

  /** @param stat one of NAMESPACE_STAT */
  namespaceStat(row: number, stat: number): number {
    return this.#rows[row * NAMESPACE_STAT_COUNT + stat];
  }
}

/** @param latency the counts of a histogram, and the sum of its values in ms */
function addLatency(latency: Float64Array, durationMs: number): void {
  let bucket = 0;
  while (bucket < LATENCY_BOUNDS_MS.length && durationMs > LATENCY_BOUNDS_MS[bucket]) bucket++;
  latency[bucket]++;
  latency[LATENCY_BOUNDS_MS.length + 1] += durationMs;
}

/** The sum of one count over all blocks of a kind. */
export function totalOf<Index extends AcceptorStatIndex | WorkerStatIndex>(
  allStats: readonly { get: (index: Index) => number }[],
  index: Index,
): number {
  return allStats.reduce((sum, stats) => sum + stats.get(index), 0);
}

/** Weir's time in ms up to which all decisions are in checkpoints; 0 before the first ones. */
export function checkpointedUntilMs(allStats: readonly WorkerStats[]): number {
  return Math.min(...allStats.map((stats) => stats.get(WORKER_STAT.checkpointedUntilMs)));
}

/** The counts of a namespace that has no row in the block yet. */
export function newNamespaceRow(): Float64Array {
  return new Float64Array(NAMESPACE_STAT_COUNT);
}

export class WorkerStats {
  /** The int32 words of the block, which the wake-up flag is waited on. */
  readonly words: Int32Array;
  readonly #counts: Float64Array;
  readonly #callLatency: Float64Array;
  readonly #callErrors: Float64Array;
  readonly #opened: NamespaceTokens;

  constructor(buffer: SharedArrayBuffer, offset: number) {
    const doubles = (at: number, length: number) => {
      return new Float64Array(buffer, offset + at * 8, length);
    };
    this.words = new Int32Array(buffer, offset, (2 * CACHE_LINE_BYTES) / 4);
    this.#counts = doubles(WORKER_STATS_AT, Object.keys(WORKER_STAT).length);
    this.#callLatency = doubles(CALL_LATENCY_AT, LATENCY_BOUNDS_US.length + 2);
    this.#callErrors = doubles(CALL_ERRORS_AT, REDIS_ERROR_KINDS.length);
    this.#opened = new NamespaceTokens(doubles(OPENED_AT, NAMESPACE_TOKENS_DOUBLES));
  }

  heartbeat(): void {
    Atomics.add(this.words, HEARTBEAT, 1);
  }

  get heartbeats(): number {
    return Atomics.load(this.words, HEARTBEAT);
  }

  /** Permits the run of this incarnation and no other; `threadId` is 0 until the run starts. */
  expectRun(incarnation: number): void {
    Atomics.store(this.words, THREAD_ID, 0);
    this.setWaitingForDisk(false);
    Atomics.store(this.words, INCARNATION, incarnation);
  }

  /**
   * Starts a run on a thread.
   * @param threadId of Node
   * @returns false when another incarnation is expected by now
   */
  startRun(incarnation: number, threadId: number, kernelThreadId: number): boolean {
    if (Atomics.load(this.words, INCARNATION) !== incarnation) return false;
    Atomics.store(this.words, WORKER_KERNEL_THREAD_ID, kernelThreadId);
    Atomics.store(this.words, THREAD_ID, threadId);
    return true;
  }

  get kernelThreadId(): number {
    return Atomics.load(this.words, WORKER_KERNEL_THREAD_ID);
  }

  get threadId(): number {
    return Atomics.load(this.words, THREAD_ID);
  }

  /** Announces that the worker may wait for the disk, and then misses heartbeats. */
  setWaitingForDisk(isWaiting: boolean): void {
    Atomics.store(this.words, WAITING_FOR_DISK, isWaiting ? 1 : 0);
  }

  get isWaitingForDisk(): boolean {
    return Atomics.load(this.words, WAITING_FOR_DISK) === 1;
  }

  /** Asks the worker to end when its queues are empty. The caller must wake it up afterwards. */
  requestStop(): void {
    Atomics.store(this.words, STOP_FLAG, 1);
  }

  get isStopping(): boolean {
    return Atomics.load(this.words, STOP_FLAG) === 1;
  }

  add(index: WorkerStatIndex, amount: number): void {
    this.#counts[index] += amount;
  }

  set(index: WorkerStatIndex, amount: number): void {
    this.#counts[index] = amount;
  }

  get(index: WorkerStatIndex): number {
    return this.#counts[index];
  }

  /**
   * Counts tokens that were granted where usage may be missing.
   * @param tag the first word of the hash state of the namespace; 0 if it is not known
   */
  addOpenedTokens(tag: number, tokens: number): void {
    if (tokens === 0) return;
    this.add(WORKER_STAT.openedWindowTokens, tokens);
    this.#opened.add(tag, tokens);
  }

  openedTokensOf(tag: number): number {
    return this.#opened.get(tag);
  }

  /** Counts a call to Redis that was answered after `durationMs`. */
  recordCallLatency(durationMs: number): void {
    addLatency(this.#callLatency, durationMs);
  }

  /** Calls to Redis by latency bucket: one count for each of LATENCY_BOUNDS_US and one above. */
  get callLatencyCounts(): Float64Array {
    return this.#callLatency.slice(0, -1);
  }

  /** Counts a call to Redis that failed. */
  countCallError(kind: RedisErrorKind): void {
    this.#callErrors[REDIS_ERROR_KINDS.indexOf(kind)]++;
  }

  callErrors(kind: RedisErrorKind): number {
    return this.#callErrors[REDIS_ERROR_KINDS.indexOf(kind)];
  }

  get callLatencySumMs(): number {
    return this.#callLatency[LATENCY_BOUNDS_US.length + 1];
  }
}
