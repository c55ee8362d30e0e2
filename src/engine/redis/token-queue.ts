/**
 * The checks of an acceptor that need tokens from Redis, and what decides them without Redis: when
 * they have waited for `deadlineMs`, and at once when their worker's circuit breaker is open
 * or its queue is full.
 */

import type { Check } from '../../core/check.ts';
import { type Decision, newDecision, OUTCOME, type TableDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type { Completion } from '../engine.ts';
import { shardOf } from '../memory/shard.ts';
import { PendingChecks } from '../worker/pending-checks.ts';
import type { WorkQueues } from '../worker/work-queues.ts';
import type { PendingCheck, WorkerChannel } from '../worker/worker-channel.ts';
import { BatchItem } from './check-batch.ts';
import type { EngineState } from './engine-state.ts';
import type { LeaseTable } from './lease-table.ts';
import type { DecisionsWithoutRedis } from './without-redis.ts';

/** How often deadlines are tested: a quarter of the default. */
const POLL_INTERVAL_MS = 5;

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

  constructor(parts: TokenQueueParts) {
    const { queues, state, clock, stats, deadlineMs } = parts;
    this.#parts = parts;
    this.pending = new PendingChecks(queues.producers, clock, {
      pollIntervalMs: POLL_INTERVAL_MS,
      withdrawAfterMs: (worker) => (state.isDown(worker) ? 0 : deadlineMs),
      countOutcome: (outcome) => {
        if (outcome === OUTCOME.evicted) stats.increment(ACCEPTOR_STAT.liveEvictions);
        else if (outcome === OUTCOME.full) stats.increment(ACCEPTOR_STAT.fullTableDecisions);
      },
      decideWithdrawn: (pending) => this.#decideWithdrawn(pending),
    });
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

  #channelFor(id: Identity): WorkerChannel | undefined {
    const { queues, state, stats } = this.#parts;
    const worker = queues.workerFor(id);
    if (state.isDown(worker)) return undefined;
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
    if (isExact && state.isRecovering(worker) && !state.isDown(worker)) {
      withoutRedis.deny(check, nowMs, decision);
    } else isCounted = this.decideWithoutRedis(check, nowMs, decision);
    if (context instanceof BatchItem) context.setWithoutRedis(isCounted);
    return decision;
  }
}
