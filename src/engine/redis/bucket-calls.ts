/**
 * The calls of one member about one bucket: what each call begins with, and what the worker learns
 * from each answer about the clock, the members and the memory of Redis.
 *
 *   joining         nothing was done, until all live members know this one; heartbeats repeat.
 *                   Only where a recovery is exact
 *   needs members   Redis is empty, or wants to know who may hold tokens: `open` presents them
 *   a new epoch     Redis may have lost its memory. All counters of the bucket are reported; only
 *                   then calls name the epoch. Meanwhile Redis requests reports of those in use
 */

import type { Identity } from '../../core/hash.ts';
import { RedisError } from '../../redis/errors.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import type { EngineState } from './engine-state.ts';
import type { Predecessor } from './hand-over.ts';
import type { MemberScripts } from './member-scripts.ts';
import type { GcraCallAnswer } from './scripts/gcra.ts';
import type {
  BeginHold,
  EndHold,
  EndHolds,
  HoldAnswer,
  HoldsAnswer,
  ReportHold,
} from './scripts/holds.ts';
import type { InspectAnswer } from './scripts/inspect.ts';
import type { MemberList } from './scripts/members.ts';
import {
  CALL_STATUS,
  type CallAnswer,
  type CallHeader,
  type CounterMessage,
  type GcraMessage,
  type GcraReport,
} from './scripts/protocol.ts';
import { CLOCK_DRIFT, REPORT_PAUSE_MS } from './scripts/protocol-constants.ts';
import type { ResetSelector } from './scripts/reset.ts';

/** The part of an answer that is not about counters. */
type AnswerHeader = Omit<CallAnswer, 'counters'>;

export type CallResult<Answer extends AnswerHeader = CallAnswer> =
  | { kind: 'answer'; answer: Answer; sentMs: number }
  /** Nothing was done. */
  | { kind: 'refused' }
  /** It may have been done, or not. */
  | { kind: 'unknown' };

/** Says whether calls make sense: `redis/breaker.ts`. */
export interface CallBreaker {
  readonly isOpen: boolean;
  /** A call for which this is true is followed by `succeeded` or `failed`. */
  allows(nowMs: number): boolean;
  succeeded(): void;
  failed(nowMs: number): void;
  lost(nowMs: number): void;
  /** Undefined if it is closed, or probes. */
  msUntilProbe(nowMs: number): number | undefined;
}

export interface BucketCallsOptions {
  bucket: number;
  member: string;
  scripts: MemberScripts;
  breaker: CallBreaker;
  state: EngineState;
  stats: WorkerStats;
  nowMs: () => number;
  /** How many reservations and leases may be live. */
  holdsPerBucket: number;
  /** Whether this member has counters that another run of its thread may have used. */
  hasCounters: (bucket: number) => boolean;
  /**
   * Reports all counters of the bucket to Redis.
   * @returns whether every one has arrived
   */
  reportCounters: (bucket: number) => Promise<boolean>;
  /** The process before this one, which has handed over what it knew. */
  predecessor: Predecessor | undefined;
  /** Called when the breaker, `hasJoined` or `isRecovering` may have changed. */
  onChange: () => void;
}

export class BucketCalls {
  readonly #options: BucketCallsOptions;
  readonly #header: CallHeader;
  #members: readonly string[] = [];
  #lastAnswerMs = Number.NEGATIVE_INFINITY;
  #clock: { offsetMs: number; aboveMs: number; atMs: number } | undefined;
  #openedUs = 0;
  #isFetchingMembers = false;
  #isReporting = false;
  #isClosed = false;
  /** When counters may be reported again, after Redis did not get all, monotonic ms. */
  #reportFromMs = 0;
  /** Undefined after Redis has forgotten it. */
  #predecessor: Predecessor | undefined;
  /** Whether Redis has accepted the member. */
  hasJoined = false;
  isRecovering = false;
  /** Whether members were missing at the end of the last recovery. */
  isIncomplete = false;
  /** How far the clock of the bucket was ahead of that of its server in the last answer, ms. */
  clockLagMs = 0;

  constructor(options: BucketCallsOptions) {
    this.#options = options;
    const { member, bucket, predecessor } = options;
    // What it handed over is as if this process had reported it in that epoch.
    const reportedEpoch = predecessor?.epochs[bucket] ?? '';
    this.#header = { member, reportedEpoch, membersVersion: 0, clockUs: 0 };
    this.#predecessor = predecessor?.isComplete ? predecessor : undefined;
    this.#members = predecessor?.members[bucket] ?? [];
  }

  /** The members of other machines, as far as known. */
  get otherMembers(): string[] {
    const machine = machineOf(this.#options.member);
    return this.#members.filter((member) => machineOf(member) !== machine);
  }

  /** The epoch in which all counters were reported; '' for none. */
  get reportedEpoch(): string {
    return this.#header.reportedEpoch;
  }

  /** When the last answer came, monotonic ms. */
  get lastAnswerMs(): number {
    return this.#lastAnswerMs;
  }

  /** Sends messages about counters; without any it is a heartbeat. */
  exchange(messages: CounterMessage[]): Promise<CallResult> {
    const { scripts, bucket, stats } = this.#options;
    stats.add(WORKER_STAT.tokenRequests, messages.length);
    return this.#send(() => scripts.exchange(bucket, this.#header, messages));
  }

  /** Sends GCRA checks, refunds and reports. */
  gcra(messages: (GcraMessage | GcraReport)[]): Promise<CallResult<GcraCallAnswer>> {
    const { scripts, bucket, stats } = this.#options;
    stats.add(WORKER_STAT.tokenRequests, messages.length);
    return this.#send(() => scripts.gcra(bucket, this.#header, messages));
  }

  /** Records a hold, or reports one. */
  beginHold(hold: BeginHold | ReportHold): Promise<CallResult<HoldAnswer>> {
    const { scripts, holdsPerBucket } = this.#options;
    return this.#send(() => scripts.beginHold(this.#header, hold, holdsPerBucket));
  }

  endHold(hold: EndHold): Promise<CallResult<HoldAnswer>> {
    const { scripts, holdsPerBucket } = this.#options;
    return this.#send(() => scripts.endHold(this.#header, hold, holdsPerBucket));
  }

  endHolds(holds: EndHolds): Promise<CallResult<HoldsAnswer>> {
    const { scripts, holdsPerBucket } = this.#options;
    return this.#send(() => scripts.endHolds(this.#header, holds, holdsPerBucket));
  }

  /** @throws when there is no valid answer */
  inspect(identity: Identity): Promise<InspectAnswer> {
    return this.#withinTimeout(this.#options.scripts.inspect(this.#header, identity)).then(
      required,
    );
  }

  /**
   * @returns undefined: Redis recovers, and nothing was changed
   * @throws when there is no valid answer
   */
  async reset(identity: Identity, selector: ResetSelector): Promise<number | undefined> {
    const { scripts } = this.#options;
    const call = scripts.reset(this.#header, identity, selector);
    return required(await this.#withinTimeout(call.then((cleared) => ({ cleared })))).cleared;
  }

  /**
   * The last call, after all usage is reported: nobody waits for this member any more.
   * @param usageEndMs when its usage no longer counts, by the clock of Redis
   */
  async leave(usageEndMs: number): Promise<void> {
    if (!this.hasJoined) return;
    const { scripts, bucket } = this.#options;
    try {
      await this.#withinTimeout(scripts.leave(bucket, this.#header, usageEndMs));
    } catch {
      // Then others wait for it as for a dead member.
    }
  }

  /**
   * No call is sent any more, and nobody learns of an answer: another run of the thread may act on
   * the same counters.
   */
  close(): void {
    this.#isClosed = true;
  }

  /** @param send sends the call; it rejects when there is no valid answer */
  async #send<Answer extends AnswerHeader>(
    send: () => Promise<Answer>,
  ): Promise<CallResult<Answer>> {
    const result = await this.#call(send);
    if (result.kind !== 'answer') return result;
    const { status } = result.answer;
    if (status === CALL_STATUS.done) return result;
    if (status === CALL_STATUS.needsMembers) await this.#open();
    return { kind: 'refused' };
  }

  /** Presents the members that this one knows to a Redis that wants to know them. */
  async #open(): Promise<void> {
    const { scripts, bucket, member, hasCounters } = this.#options;
    const members = new Set(this.#members);
    if (this.#header.reportedEpoch !== '' || hasCounters(bucket)) members.add(member);
    await this.#call(() => scripts.presentMembers(bucket, this.#header, [...members]));
  }

  /** @param send sends the call; it rejects when there is no valid answer */
  async #call<Answer extends AnswerHeader>(
    send: () => Promise<Answer>,
  ): Promise<CallResult<Answer>> {
    const { breaker, stats, nowMs, onChange } = this.#options;
    const sentMs = nowMs();
    if (this.#isClosed) return new Promise(() => {});
    if (!breaker.allows(sentMs)) return { kind: 'refused' };
    stats.add(WORKER_STAT.redisCalls, 1);
    let answer: Answer | undefined;
    let mayHaveRun = true;
    try {
      answer = await this.#withinTimeout(send());
    } catch (error) {
      mayHaveRun = !(error instanceof RedisError) || error.mayHaveRun;
    }
    if (this.#isClosed) return new Promise(() => {});
    if (answer === undefined) {
      breaker.failed(nowMs());
      stats.add(WORKER_STAT.redisCallFailures, 1);
      onChange();
      return { kind: mayHaveRun ? 'unknown' : 'refused' };
    }
    const receivedMs = nowMs();
    const wasOpen = breaker.isOpen;
    breaker.succeeded();
    if (wasOpen) onChange();
    stats.recordCallLatency(receivedMs - sentMs);
    this.#onAnswer(answer, sentMs, receivedMs);
    return { kind: 'answer', answer, sentMs };
  }

  #onAnswer(answer: AnswerHeader, sentMs: number, receivedMs: number): void {
    const header = this.#header;
    this.#lastAnswerMs = receivedMs;
    header.clockUs = Math.max(header.clockUs, answer.clockUs);
    this.#learnClock(answer.clockUs / 1_000, sentMs, receivedMs);
    const hasJoined = answer.status === CALL_STATUS.done;
    const hasChanged = hasJoined !== this.hasJoined || answer.isRecovering !== this.isRecovering;
    this.clockLagMs = answer.aheadUs / 1_000;
    if (this.isRecovering && !answer.isRecovering) {
      this.isIncomplete = answer.openedUs !== this.#openedUs;
    }
    this.#openedUs = answer.openedUs;
    this.hasJoined = hasJoined;
    this.isRecovering = answer.isRecovering;
    if (hasJoined) this.#options.state.setMachineCount(answer.machineCount);
    if (hasChanged) this.#options.onChange();
    if (answer.membersVersion > header.membersVersion) void this.#fetchMembers();
    if (!hasJoined) return;
    if (answer.epoch === header.reportedEpoch) {
      this.#replacePredecessor(answer.isRecovering);
      return;
    }
    // A member that has never had an answer has nothing to report, unless its thread was replaced.
    if (header.reportedEpoch === '' && !this.#options.hasCounters(this.#options.bucket)) {
      header.reportedEpoch = answer.epoch;
    } else void this.#report(answer.epoch);
  }

  /** This member has reported what that of the process before it has known: nobody waits for it. */
  #replacePredecessor(isRecovering: boolean): void {
    const { scripts, bucket, member, state } = this.#options;
    const predecessor = this.#predecessor;
    if (predecessor === undefined) return;
    const isSameShards = predecessor.workers === state.workerCount;
    if (isRecovering && !isSameShards) return;
    this.#predecessor = undefined;
    const { processId } = predecessor;
    const name = isSameShards ? processId + member.slice(member.indexOf('.')) : processId;
    const call = this.#withinTimeout(scripts.forgetMembers(bucket, name));
    call.then(required).catch(() => {
      this.#predecessor = predecessor;
    });
  }

  async #report(epoch: string): Promise<void> {
    const { reportCounters, bucket, nowMs } = this.#options;
    if (this.#isReporting || nowMs() < this.#reportFromMs) return;
    this.#isReporting = true;
    const isComplete = await reportCounters(bucket);
    this.#isReporting = false;
    if (!isComplete) {
      this.#reportFromMs = nowMs() + REPORT_PAUSE_MS;
      return;
    }
    this.#header.reportedEpoch = epoch;
    void this.exchange([]);
  }

  /** Learns who the members are, and acknowledges the list with the next call. */
  async #fetchMembers(): Promise<void> {
    if (this.#isFetchingMembers) return;
    this.#isFetchingMembers = true;
    const { scripts, bucket } = this.#options;
    let list: MemberList | undefined;
    try {
      list = await this.#withinTimeout(scripts.listMembers(bucket));
    } catch {
      // The next answer shows the version again.
    }
    this.#isFetchingMembers = false;
    if (list === undefined) return;
    this.#members = list.members.map(({ member }) => member);
    this.#header.membersVersion = list.version;
    // A new member waits for this.
    void this.exchange([]);
  }

  /** Learns the difference between the clock of the bucket and that of this machine. */
  #learnClock(clockMs: number, sentMs: number, receivedMs: number): void {
    const offsetMs = clockMs - receivedMs;
    const aboveMs = clockMs - sentMs;
    const last = this.#clock;
    let clock = { offsetMs, aboveMs, atMs: receivedMs };
    if (last !== undefined) {
      const driftMs = (receivedMs - last.atMs) * CLOCK_DRIFT;
      const low = Math.max(offsetMs, last.offsetMs - driftMs);
      const high = Math.min(aboveMs, last.aboveMs + driftMs);
      // Otherwise one of the clocks was set.
      if (low <= high) clock = { offsetMs: low, aboveMs: high, atMs: receivedMs };
    }
    this.#clock = clock;
    const { state, bucket } = this.#options;
    state.setClock(bucket, clock.offsetMs, clock.aboveMs - clock.offsetMs);
  }

  /**
   * Counts a failure by its kind.
   * @returns undefined when it takes too long: the fate of the call is unknown
   */
  #withinTimeout<T>(call: Promise<T>): Promise<T | undefined> {
    const { scripts, stats } = this.#options;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        stats.countCallError('timeout');
        resolve(undefined);
      }, scripts.timeoutMs);
      const fail = (error: unknown) => {
        stats.countCallError(error instanceof RedisError ? error.kind : 'unexpectedReply');
        reject(error);
      };
      call.then(resolve, fail).finally(() => clearTimeout(timer));
    });
  }
}

function machineOf(member: string): string {
  return member.slice(0, member.indexOf('.'));
}

function required<T>(answer: T | undefined): T {
  if (answer === undefined) throw new Error('Redis did not answer in time');
  return answer;
}
