/**
 * The checks of an acceptor that need tokens from Redis, and what decides them without Redis: when
 * they have waited for `deadlineMs`, and at once when their worker's circuit breaker is open
 * or its queue is full.
 *
 * A process that has just started knows no usage. So its first checks wait longer: until Redis has
 * accepted their worker, for START_HOLD_MS after the first of them at most; and each for up to
 * START_HOLD_MS during the second after it, because code that runs for the first time is slow.
 */

import type { Check } from '../../core/check.ts';
import { type Decision, newDecision, OUTCOME, type TableDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type { Completion } from '../engine.ts';
import { PendingChecks } from '../queue/pending-checks.ts';
import type { WorkQueues } from '../queue/work-queues.ts';
import type { PendingCheck, WorkerChannel } from '../queue/worker-channel.ts';
import { shardOf } from '../table/shard.ts';
import { BatchItem } from './check-batch.ts';
import type { EngineState } from './engine-state.ts';
import type { LeaseTable } from './lease-table.ts';
import type { DecisionsWithoutRedis } from './without-redis.ts';

/** How often deadlines are tested. */
const POLL_INTERVAL_MS = 5;
/** How long the first checks of a process wait for Redis. */
const START_HOLD_MS = 1_000;

export interface TokenQueueParts {
  /** By shard. */
  tables: readonly LeaseTable[];
  state: EngineState;
  queues: WorkQueues;
  withoutRedis: DecisionsWithoutRedis;
  clock: Clock;
  stats: AcceptorStats;
  /** After which a check is decided without Redis. */
  deadlineMs: number;
  /** Whether nothing is allowed while usage may be missing that Redis has lost. */
  isExact: boolean;
}

export class TokenQueue {
  readonly pending: PendingChecks;
  readonly #parts: TokenQueueParts;
  readonly #withdrawnDecision = newDecision();
  /** By worker, monotonic ms; 0 for never: its first check, and when Redis has accepted it. */
  readonly #firstMs: number[];
  readonly #acceptedMs: number[];

  constructor(parts: TokenQueueParts) {
    const { queues, state, clock, deadlineMs } = parts;
    this.#parts = parts;
    this.#firstMs = queues.producers.map(() => 0);
    this.#acceptedMs = queues.producers.map(() => 0);
    this.pending = new PendingChecks(queues.producers, clock, {
      pollIntervalMs: POLL_INTERVAL_MS,
      withdrawAfterMs: (worker) => {
        if (this.#isStarting(worker)) return Math.max(START_HOLD_MS, deadlineMs);
        return state.isDown(worker) ? 0 : deadlineMs;
      },
      countOutcome: (outcome) => this.countOutcome(outcome),
      decideWithdrawn: (pending) => this.#decideWithdrawn(pending),
    });
  }

  /** @param outcome of a decision, one of OUTCOME */
  countOutcome(outcome: number): void {
    const { stats } = this.#parts;
    if (outcome === OUTCOME.evicted) stats.increment(ACCEPTOR_STAT.liveEvictions);
    else if (outcome === OUTCOME.full) stats.increment(ACCEPTOR_STAT.fullTableDecisions);
    else if (outcome === OUTCOME.doubted) stats.increment(ACCEPTOR_STAT.doubtedDenials);
    else if (outcome === OUTCOME.shared) stats.increment(ACCEPTOR_STAT.sharedDenials);
  }

  tableOf(id: Identity): LeaseTable {
    return this.#parts.tables[shardOf(id)];
  }

  /**
   * Passes a check to the worker of its shard.
   * @param kind one of ENTRY_KIND
   * @returns false: it cannot wait for Redis
   */
  enqueue<C>(
    kind: number,
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): boolean {
    const channel = this.#channelFor(check.identity);
    if (channel === undefined) return false;
    this.pending.enqueue(channel, kind, check, startedMs, context, completion);
    this.#parts.stats.increment(ACCEPTOR_STAT.queuedChecks);
    return true;
  }

  /**
   * Requests tokens for later checks, or a report of usage, if the worker can take the request.
   * @param kind one of ENTRY_KIND without a reply
   */
  request(kind: number, check: Check): void {
    const channel = this.#channelFor(check.identity);
    if (channel !== undefined) this.pending.enqueueWithoutReply(channel, kind, check);
  }

  /**
   * @param nowMs by the monotonic clock
   * @returns whether the cost was counted in the table
   */
  decideWithoutRedis(check: Check, nowMs: number, decision: TableDecision): boolean {
    const table = this.tableOf(check.identity);
    return this.#parts.withoutRedis.decide(table, check, nowMs, decision);
  }

  /** Takes back what `decideWithoutRedis` has counted. */
  refundWithoutRedis(check: Check, decision: Pick<TableDecision, 'window'>): void {
    this.#parts.withoutRedis.refund(this.tableOf(check.identity), check, decision);
  }

  /** Whether checks of a worker wait longer, because it has just started. */
  #isStarting(worker: number): boolean {
    const { state, clock } = this.#parts;
    const acceptedMs = this.#acceptedMs[worker];
    // After the second: without a call of the clock.
    if (acceptedMs === Number.POSITIVE_INFINITY) return false;
    const nowMs = clock.monotonicMs();
    if (acceptedMs === 0) {
      this.#firstMs[worker] ||= nowMs;
      if (!state.hasJoined(worker)) return nowMs - this.#firstMs[worker] < START_HOLD_MS;
      this.#acceptedMs[worker] = nowMs;
    } else if (nowMs - acceptedMs >= START_HOLD_MS) {
      this.#acceptedMs[worker] = Number.POSITIVE_INFINITY;
    }
    return !state.isDown(worker);
  }

  #channelFor(id: Identity): WorkerChannel | undefined {
    const { queues, state, stats } = this.#parts;
    const worker = queues.workerFor(id);
    if (state.isDown(worker) && !this.#isStarting(worker)) return undefined;
    const channel = this.pending.channels[worker];
    if (channel.canEnqueue()) return channel;
    stats.increment(ACCEPTOR_STAT.queueFull);
    return undefined;
  }

  #decideWithdrawn({ check, context }: PendingCheck): Decision {
    const { queues, state, withoutRedis, clock, stats, isExact } = this.#parts;
    const decision = this.#withdrawnDecision;
    stats.increment(ACCEPTOR_STAT.withdrawnChecks);
    const nowMs = clock.monotonicMs();
    const worker = queues.workerFor(check.identity);
    let isCounted = false;
    // Redis denies while it recovers: that its answer is late must not allow what it denies.
    const mayBeMissing = state.isRecovering(worker) || !state.hasJoined(worker);
    if (isExact && mayBeMissing && !state.isDown(worker)) {
      withoutRedis.deny(check, nowMs, decision);
    } else isCounted = this.decideWithoutRedis(check, nowMs, decision);
    if (!decision.allowed && this.#acceptedMs[worker] === 0) {
      stats.increment(ACCEPTOR_STAT.joiningDenials);
    }
    if (context instanceof BatchItem) context.setWithoutRedis(isCounted);
    return decision;
  }
}
