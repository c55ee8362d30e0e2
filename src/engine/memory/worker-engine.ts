/**
 * Passes every single check to the worker of its shard, and completes it when the decision comes
 * back. Batches and all else are done in place, as `MemoryEngine` does them. A check is decided in
 * place too where the queue is full, and where it was withdrawn from a late worker, as are all that
 * come until the worker moves on. `pending-checks.ts` says what ends a check that waits.
 *
 * So a check is counted once, except one that a worker had begun when it died.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../../core/check.ts';
import { WITHDRAW_AFTER_MS } from '../../core/constants.ts';
import type { Decision } from '../../core/decision.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type { Completion } from '../engine.ts';
import { PendingChecks } from '../queue/pending-checks.ts';
import type { WorkQueues } from '../queue/work-queues.ts';
import type { RequestTable } from '../requests/request-table.ts';
import type { Counters } from './counters.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import { MemoryEngine } from './memory-engine.ts';
import type { MemoryHolds } from './memory-holds.ts';

const POLL_INTERVAL_MS = WITHDRAW_AFTER_MS / 2;

export class WorkerEngine extends MemoryEngine {
  readonly #queues: WorkQueues;
  readonly #pending: PendingChecks;

  constructor(
    counters: Counters,
    holds: MemoryHolds,
    requests: readonly RequestTable[],
    queues: WorkQueues,
    clock: Clock,
    stats: AcceptorStats,
  ) {
    super(counters, holds, requests, queues, clock, stats);
    this.#queues = queues;
    this.#pending = new PendingChecks(queues.producers, clock, {
      pollIntervalMs: POLL_INTERVAL_MS,
      withdrawAfterMs: () => WITHDRAW_AFTER_MS,
      countOutcome: (outcome) => this.countOutcome(outcome),
      decideWithdrawn: ({ number, check }, channel) => {
        stats.increment(ACCEPTOR_STAT.withdrawnChecks);
        channel.lastWithdrawn = number;
        return this.decideInPlace(check, clock.nowMs());
      },
    });
  }

  override connectWorker(worker: number, port: MessagePort): void {
    this.#pending.connectWorker(worker, port);
  }

  override decide<C>(
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): Decision | undefined {
    const channel = this.#pending.channels[this.#queues.workerFor(check.identity)];
    if (!channel.canEnqueue()) {
      this.stats.increment(ACCEPTOR_STAT.queueFull);
      return this.decideInPlace(check, this.clock.wallMs(startedMs));
    }
    this.#pending.enqueue(channel, ENTRY_KIND.check, check, startedMs, context, completion);
    this.stats.increment(ACCEPTOR_STAT.queuedChecks);
    return undefined;
  }
}
