/**
 * A shard worker of the redis engine, apart from its thread: it reads the queues of all acceptors,
 * gets tokens from Redis for their checks, follows recalls, reports usage, and keeps the members of
 * its buckets informed. Timers and answers run it; the thread wakes it when entries are queued.
 *
 * Each bucket has a breaker, because nodes of a cluster fail apart. While it is open nothing but a
 * probe is sent there; while all are open, acceptors decide by themselves at once.
 */

import { newDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { hasWindows, RULE } from '../../core/window-rules.ts';
import type { RedisSettings } from '../../redis/settings.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import {
  type CheckQueueConsumer,
  copyEntry,
  type QueueEntry,
} from '../queue/check-queue-consumer.ts';
import { NO_SLOT } from '../table/layout.ts';
import { shardOf, workerOf } from '../table/shard.ts';
import { counterKey, isGcraKey } from '../windows/registry.ts';
import { BucketCalls, type CallBreaker } from './bucket-calls.ts';
import { Corrections } from './corrections.ts';
import { BREAKER, type EngineState } from './engine-state.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import { GcraClient } from './gcra-client.ts';
import { type Predecessor, writeHandOver } from './hand-over.ts';
import { HoldClient } from './hold-client.ts';
import { LeaseClient } from './lease-client.ts';
import { type LeaseTable, VERDICT } from './lease-table.ts';
import type { MemberScripts } from './member-scripts.ts';
import {
  answerRequest,
  Unchanged,
  type WorkerAction,
  type WorkerRequest,
  type WorkerResponse,
  type WorkerResult,
} from './port-messages.ts';
import type { MemberMessage } from './scripts/protocol.ts';
import {
  DRAIN_MAX_MS,
  HEARTBEAT_MS,
  PARK_MS,
  RECOVERY_PARK_SHARE,
  REPORT_DELAY_MS,
  SUSPENDED_MS,
  UNKNOWN_MS,
} from './scripts/protocol-constants.ts';
import { UsageSync } from './usage-sync.ts';

/** The most entries of one queue before the next queue is read. */
const ENTRIES_PER_TURN_MAX = 128;
/** Entries that acceptors have withdrawn are released this often. */
const RELEASE_MS = 5;
/** How often live counters and held leases are counted, for a metric and `weir cluster`. */
const COUNT_INTERVAL_MS = 10_000;

export interface ShardWorkerParts {
  index: number;
  member: string;
  /** By shard; undefined for those of other workers. */
  tables: readonly (LeaseTable | undefined)[];
  /** By acceptor. */
  consumers: readonly CheckQueueConsumer[];
  state: EngineState;
  scripts: MemberScripts;
  /** Called once for each bucket. */
  newBreaker: () => CallBreaker;
  settings: Pick<RedisSettings, 'leases' | 'syncMs' | 'redisTimeoutMs'>;
  /** How many reservations and leases of all machines may be live. */
  holds: number;
  /** The process before this one, which has handed over what it knew. */
  predecessor?: Predecessor | undefined;
  stats: WorkerStats;
  /** A monotonic clock, and the clock of the system. */
  nowMs: () => number;
  systemMs: () => number;
}

export class RedisShardWorker {
  readonly client: LeaseClient;
  readonly gcra: GcraClient;
  readonly #corrections: Corrections;
  readonly #parts: ShardWorkerParts;
  readonly #tables: readonly LeaseTable[];
  readonly #buckets: readonly BucketCalls[];
  readonly #breakers: readonly CallBreaker[];
  readonly #sync: UsageSync;
  readonly #holds: HoldClient;
  readonly #decision = newDecision();
  #tickTimer: NodeJS.Timeout | undefined;
  #heartbeatTimer: NodeJS.Timeout | undefined;
  #countTimer: NodeJS.Timeout | undefined;
  #releaseTimer: NodeJS.Timeout | undefined;
  #reportTimer: NodeJS.Timeout | undefined;
  readonly #reports: QueueEntry[] = [];
  #probeTimer: NodeJS.Timeout | undefined;
  /** The system's clock less the monotonic one at the last tick. */
  #wallOffsetMs: number;
  #lastOpenCount = 0;
  #isRecovering = false;
  /** When Redis has last waited for reports of a counter, monotonic ms. */
  #unknownMs = Number.NEGATIVE_INFINITY;
  /** The buckets that had counters when this run began. */
  #adopted: ReadonlySet<number> = new Set();
  #isReturningAll = false;

  constructor(parts: ShardWorkerParts) {
    const { state, stats, nowMs, settings, member, scripts, newBreaker } = parts;
    this.#breakers = Array.from({ length: state.bucketCount }, newBreaker);
    this.#parts = parts;
    this.#tables = parts.tables.filter((table) => table !== undefined);
    this.#wallOffsetMs = parts.systemMs() - nowMs();
    const recoveryParkMs = Math.max(PARK_MS, settings.redisTimeoutMs * RECOVERY_PARK_SHARE);
    const tableOf = (identity: Identity) => this.#tableOf(identity);
    const bucketOf = (identity: Identity) => state.bucketOf(identity);
    const callsOf = (identity: Identity) => this.#buckets[bucketOf(identity)];
    const isDown = (identity: Identity) => this.#breakers[bucketOf(identity)].isOpen;
    const onReplies = () => this.#flushConsumers();
    const shared = { tableOf, bucketOf, onReplies, nowMs, stats, recoveryParkMs };
    this.client = new LeaseClient({
      ...shared,
      send: (bucket, messages) => this.#buckets[bucket].exchange(messages),
      redisMs: ({ h3 }, at) => state.redisMs(h3, at),
      onSlidingLease: (identity, deadlineMs) => this.#sync.returnAtEnd(identity, deadlineMs),
      leases: settings.leases === 'on',
      inheritsFrom: (identity) => {
        return 1 + workerOf(shardOf(identity), parts.predecessor?.workers ?? state.workerCount);
      },
      ownsShardOf: (identity) => parts.tables[shardOf(identity)] !== undefined,
      onUnknown: () => {
        this.#unknownMs = nowMs();
        if (!state.isRecovering(parts.index)) this.publishState();
      },
    });
    this.gcra = new GcraClient({
      ...shared,
      send: (bucket, messages) => this.#buckets[bucket].gcra(messages),
    });
    this.#corrections = new Corrections({
      tableOf,
      client: this.client,
      gcra: this.gcra,
      inspect: (identity) => callsOf(identity).inspect(identity),
      reset: (identity, selector) => callsOf(identity).reset(identity, selector),
      nowMs,
      isDown,
    });
    this.#sync = new UsageSync({
      tables: this.#tables,
      tableOf,
      client: this.client,
      state,
      stats,
      nowMs,
      syncGcra: (identity, key) => this.gcra.sync(identity, key),
      reportGcra: (identity, key) => this.gcra.report(identity, key),
      isUp: (identity) => !isDown(identity),
    });
    this.#buckets = Array.from({ length: state.bucketCount }, (_, bucket) => {
      return new BucketCalls({
        bucket,
        member,
        scripts,
        breaker: this.#breakers[bucket],
        state,
        stats,
        nowMs,
        holdsPerBucket: Math.ceil(parts.holds / state.bucketCount),
        hasCounters: (of) => this.#adopted.has(of),
        reportCounters: async (of) => {
          const reports = await Promise.all([this.#sync.report(of), this.#holds.report(of)]);
          return reports.every((isComplete) => isComplete);
        },
        predecessor: parts.predecessor,
        onChange: () => this.publishState(),
      });
    });
    this.#holds = new HoldClient({
      buckets: this.#buckets,
      stats,
      nowMs,
      redisMs: (bucket, at) => state.redisMs(bucket, at),
      isDown: (bucket) => this.#breakers[bucket].isOpen,
      onSettled: (identity, key) => {
        const table = this.#tableOf(identity);
        const isKnown = table.withLock(identity, () => table.find(identity, key) !== NO_SLOT);
        if (isKnown && !isGcraKey(key)) void this.client.sync(identity, key);
      },
      pollsOthers: parts.index === 0,
    });
    this.publishState();
  }

  /** Takes over the slots of an earlier run, and begins to call Redis. */
  start(): void {
    this.#adopted = this.#sync.adoptSlots();
    this.#tickTimer = setInterval(() => this.tick(), this.#parts.settings.syncMs);
    this.#heartbeatTimer = setInterval(() => this.#callIdleBuckets(), HEARTBEAT_MS);
    this.#countTimer = setInterval(() => void this.#countLive(), COUNT_INTERVAL_MS);
    this.#holds.start();
    this.probe();
  }

  /** Whether acceptors have queued something. */
  hasNewEntries(): boolean {
    return this.#parts.consumers.some((consumer) => consumer.hasNew());
  }

  /** Whether no entry of an acceptor waits for anything. */
  isIdle(): boolean {
    return this.#parts.consumers.every((consumer) => consumer.isEmpty());
  }

  /** Reads what acceptors have queued, and sends what it needs. @returns how many entries */
  processEntries(): number {
    let passed = 0;
    for (const consumer of this.#parts.consumers) {
      passed += consumer.readNew(ENTRIES_PER_TURN_MAX, (entry) => {
        this.#process(consumer, copyEntry(entry));
      });
    }
    if (passed > 0) {
      this.client.flush();
      this.gcra.flush();
    }
    this.#flushConsumers();
    return passed;
  }

  /** Does what an acceptor has requested. */
  answer(request: WorkerRequest, respond: (response: WorkerResponse) => void): Promise<void> {
    return answerRequest(request, (action) => this.#act(action), respond);
  }

  async #act(action: WorkerAction): Promise<WorkerResult> {
    switch (action.kind) {
      case 'beginHold':
      case 'endHold':
      case 'endHolds':
        return this.#holds.act(action);
      case 'request': {
        const { state, scripts } = this.#parts;
        const isDown = this.#breakers[state.bucketOf(action.call.request.key)].isOpen;
        if (isDown) throw new Unchanged('Redis is not reachable');
        return { kind: action.kind, answer: await scripts.request(action.call) };
      }
      default:
        return this.#corrections.act(action);
    }
  }

  /** Calls the buckets that have not joined, or whose breaker allows a probe. */
  probe(): void {
    for (const [number, bucket] of this.#buckets.entries()) {
      if (!bucket.hasJoined || this.#breakers[number].isOpen) void bucket.exchange([]);
    }
  }

  /** A connection is lost. In a cluster the calls show which buckets had their node there. */
  onConnectionLost(): void {
    const [breaker] = this.#breakers;
    if (this.#breakers.length === 1) breaker.lost(this.#parts.nowMs());
    this.publishState();
  }

  /** Follows a message that Redis has published to this member. */
  receive(bucket: number, message: MemberMessage): void {
    if (message.kind === 'epoch') void this.#buckets[bucket].exchange([]);
    else if (message.kind !== 'bucket') this.client.receive(message);
    // All workers get it, of which one may have the bucket.
    else if (this.#parts.tables[shardOf(message.identity)] !== undefined) {
      void this.gcra.report(message.identity, counterKey(RULE.gcra, message.durationMs));
      this.gcra.flush();
    }
  }

  /** Called when recalls may have been missed: before it, nobody listened. */
  onSubscribed(): void {
    void this.#returnAll();
  }

  /** Returns all leases, once for calls in quick succession. */
  async #returnAll(): Promise<void> {
    if (this.#isReturningAll) return;
    this.#isReturningAll = true;
    await new Promise((resolve) => setImmediate(resolve));
    this.#isReturningAll = false;
    await this.#sync.takeAllLeases();
    await this.#sync.run();
  }

  /** What happens every `syncMs`. */
  tick(): void {
    const { nowMs, systemMs, state } = this.#parts;
    const now = nowMs();
    const wallOffsetMs = systemMs() - now;
    if (Math.abs(wallOffsetMs - this.#wallOffsetMs) > SUSPENDED_MS) void this.#returnAll();
    this.#wallOffsetMs = wallOffsetMs;
    this.#publishClocks(now);
    if (state.isRecovering(this.#parts.index)) this.publishState();
    this.#flushConsumers();
    this.#callIdleBuckets();
    if (this.#openCount() < this.#breakers.length) void this.#sync.run();
  }

  /** Heartbeats. They have a timer of their own, because `syncMs` may be longer. */
  #callIdleBuckets(): void {
    const { nowMs, state, settings } = this.#parts;
    const intervalMs =
      state.bucketCount === 1 ? Math.min(settings.syncMs, HEARTBEAT_MS) : HEARTBEAT_MS;
    for (const bucket of this.#buckets) {
      if (!bucket.hasJoined || nowMs() - bucket.lastAnswerMs >= intervalMs)
        void bucket.exchange([]);
    }
  }

  /**
   * Returns all leases and reports all usage, within DRAIN_MAX_MS, and leaves.
   * @returns the number of counters of which Redis did not get everything
   */
  async drain(): Promise<number> {
    const { nowMs } = this.#parts;
    const endMs = nowMs() + DRAIN_MAX_MS;
    while (nowMs() < endMs) {
      // The answer to a message that is under way may bring a lease.
      const { isIdle } = this.client;
      await this.#sync.takeAllLeases();
      if ((await this.#sync.run()) && isIdle) {
        // A call after it would count as a return.
        clearInterval(this.#tickTimer);
        clearInterval(this.#heartbeatTimer);
        this.#holds.close();
        const usageEndMs = await this.#sync.usageEndMs();
        await Promise.all(this.#buckets.map((bucket) => bucket.leave(usageEndMs)));
        return 0;
      }
      await new Promise((resolve) => setTimeout(resolve, RELEASE_MS));
    }
    return this.#sync.countUnreported();
  }

  /** Writes what the next process with this data directory shall know. After `drain`. */
  handOver(directory: string): Promise<void> {
    const { index, member } = this.#parts;
    const epochs = this.#buckets.map(({ reportedEpoch }) => reportedEpoch);
    const processId = member.slice(0, member.indexOf('.'));
    const workers = this.#parts.state.workerCount;
    const members = this.#buckets.map(({ otherMembers }) => otherMembers);
    return writeHandOver(directory, index, { processId, workers, epochs, members }, this.#tables);
  }

  /** Ends all timers and calls, also those under way. */
  close(): void {
    for (const bucket of this.#buckets) bucket.close();
    clearInterval(this.#tickTimer);
    clearInterval(this.#heartbeatTimer);
    clearInterval(this.#countTimer);
    clearTimeout(this.#releaseTimer);
    clearTimeout(this.#reportTimer);
    clearTimeout(this.#probeTimer);
    this.#holds.close();
    this.client.close();
    this.gcra.close();
  }

  #tableOf(identity: Identity): LeaseTable {
    const table = this.#parts.tables[shardOf(identity)];
    if (table === undefined) throw new Error(`shard ${shardOf(identity)} has another worker`);
    return table;
  }

  #process(consumer: CheckQueueConsumer, entry: QueueEntry): void {
    switch (entry.kind) {
      case ENTRY_KIND.prefetch:
        consumer.finish(entry.number);
        this.client.addPrefetch(entry);
        break;
      case ENTRY_KIND.report:
        consumer.finish(entry.number);
        this.#report(entry);
        break;
      case ENTRY_KIND.asyncNew:
        this.#decideAsync(consumer, entry);
        break;
      default:
        if (!hasWindows(entry.parameters.rule)) this.gcra.addCheck(consumer, entry);
        else this.client.addCheck(consumer, entry);
    }
  }

  /** Decides an asynchronous check of a new counter. */
  #decideAsync(consumer: CheckQueueConsumer, entry: QueueEntry): void {
    const { identity, namespaceTag, parameters, number } = entry;
    const { rule, durationMs } = parameters;
    if (!consumer.claim(number)) return;
    const decision = this.#decision;
    const table = this.#tableOf(identity);
    const nowMs = this.#parts.nowMs();
    const key = counterKey(rule, durationMs);
    table.withLock(identity, () => {
      if (table.find(identity, key) === NO_SLOT) table.insert(identity, namespaceTag, key, nowMs);
    });
    const verdict = table.decideAsync(identity, nowMs, parameters, decision);
    // The table is full, or an acceptor has used the new slot for another counter.
    if (verdict === VERDICT.needsTokens) {
      consumer.unclaim(number);
      this.client.addCheck(consumer, entry);
      return;
    }
    if (verdict === VERDICT.decidedReport) this.#report(entry);
    else if (verdict === VERDICT.decidedPrefetch) this.client.addPrefetch(entry);
    consumer.reply(number, decision);
    this.#parts.stats.add(WORKER_STAT.decisions, 1);
  }

  /** Reports usage before the next tick, together with that of other counters. */
  #report(entry: QueueEntry): void {
    this.#reports.push(entry);
    this.#reportTimer ??= setTimeout(() => {
      this.#reportTimer = undefined;
      for (const { identity, parameters } of this.#reports.splice(0)) {
        void this.client.sync(identity, counterKey(parameters.rule, parameters.durationMs));
      }
    }, REPORT_DELAY_MS);
  }

  /** Releases what is over, soon again if something is not. */
  #flushConsumers(): void {
    for (const consumer of this.#parts.consumers) consumer.flush();
    if (this.#releaseTimer !== undefined || this.isIdle()) return;
    this.#releaseTimer = setTimeout(() => {
      this.#releaseTimer = undefined;
      this.#flushConsumers();
    }, RELEASE_MS);
  }

  /** Shows acceptors, /readyz and the metrics how Redis is. */
  publishState(): void {
    const { index, state, stats } = this.#parts;
    const openCount = this.#openCount();
    if (openCount > this.#lastOpenCount) {
      stats.add(WORKER_STAT.breakerOpenings, openCount - this.#lastOpenCount);
    }
    this.#lastOpenCount = openCount;
    const isDown = openCount === this.#breakers.length;
    this.#scheduleProbe();
    state.setBreaker(index, isDown ? BREAKER.open : BREAKER.closed);
    state.setJoined(
      index,
      this.#buckets.every(({ hasJoined }) => hasJoined),
    );
    const isRecovering = this.#buckets.some((bucket) => bucket.isRecovering);
    const isUnknown = this.#parts.nowMs() - this.#unknownMs < UNKNOWN_MS;
    state.setRecovering(index, isRecovering || isUnknown);
    if (this.#isRecovering && !isRecovering) this.#countRecovery();
    this.#isRecovering = isRecovering;
  }

  /** Counts one recovery for all buckets. */
  #countRecovery(): void {
    const isIncomplete = this.#buckets.some((bucket) => bucket.isIncomplete);
    for (const bucket of this.#buckets) bucket.isIncomplete = false;
    const { recoveriesComplete, recoveriesIncomplete } = WORKER_STAT;
    this.#parts.stats.add(isIncomplete ? recoveriesIncomplete : recoveriesComplete, 1);
  }

  /** Shows the largest differences between the clocks of buckets, servers and this machine. */
  #publishClocks(nowMs: number): void {
    const { state, stats, systemMs } = this.#parts;
    const unixMs = systemMs();
    let lagMs = 0;
    let offsetMs = 0;
    for (const [bucket, { clockLagMs }] of this.#buckets.entries()) {
      lagMs = Math.max(lagMs, clockLagMs);
      if (!state.knowsClock(bucket)) continue;
      const aheadMs = state.redisMs(bucket, nowMs) - unixMs;
      if (Math.abs(aheadMs) > Math.abs(offsetMs)) offsetMs = aheadMs;
    }
    stats.set(WORKER_STAT.clockLagMs, lagMs);
    stats.set(WORKER_STAT.clockOffsetMs, offsetMs);
  }

  async #countLive(): Promise<void> {
    const { stats } = this.#parts;
    const { counters, leases, tokens } = await this.#sync.countLive();
    stats.set(WORKER_STAT.liveCounters, counters);
    stats.set(WORKER_STAT.heldLeases, leases);
    stats.set(WORKER_STAT.heldTokens, tokens);
  }

  #openCount(): number {
    return this.#breakers.filter(({ isOpen }) => isOpen).length;
  }

  /** While a breaker is open, calls again when it allows a probe. */
  #scheduleProbe(): void {
    if (this.#probeTimer !== undefined) return;
    const now = this.#parts.nowMs();
    const waits = this.#breakers.map((breaker) => breaker.msUntilProbe(now));
    const waitMs = Math.min(...waits.map((ms) => ms ?? Number.POSITIVE_INFINITY));
    if (waitMs === Number.POSITIVE_INFINITY) return;
    this.#probeTimer = setTimeout(() => {
      this.#probeTimer = undefined;
      this.probe();
      this.#scheduleProbe();
    }, waitMs + 1);
  }
}
