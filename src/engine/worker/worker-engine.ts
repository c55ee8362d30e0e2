/**
 * Passes every single check to the worker of its shard, and completes it when the decision comes
 * back. Batches and all else are done in place, as `MemoryEngine` does them. A worker is woken once
 * for all checks of a turn of the loop, and decisions come back in batches.
 *
 * Events that can end a check before its decision, or delay the decision:
 *
 *   the queue is full            the check is decided in place
 *   the worker is late           a check that it has not begun after WITHDRAW_AFTER_MS is withdrawn
 *                                and decided in place, like all that come until the worker moves on
 *   the worker dies              the same; the check that it had begun is decided by its successor,
 *                                or fails after CHECK_DEADLINE_MS, and may have been counted
 *   a notification is lost       the next poll finds the decisions
 *
 * So a check is counted once, except one that a worker had begun when it died.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../../core/check.ts';
import { CHECK_DEADLINE_MS, WITHDRAW_AFTER_MS } from '../../core/constants.ts';
import type { Decision } from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import type { Completion } from '../engine.ts';
import type { Counters } from '../memory/counters.ts';
import { MemoryEngine } from '../memory/memory-engine.ts';
import { NOTIFICATION_FLAG, REPLY } from './layout.ts';
import { requestNotification } from './wake-up.ts';
import type { WorkQueues } from './work-queues.ts';
import { type PendingCheck, WorkerChannel } from './worker-channel.ts';

const POLL_INTERVAL_MS = WITHDRAW_AFTER_MS / 2;

export class WorkerEngine extends MemoryEngine {
  readonly #queues: WorkQueues;
  readonly #channels: readonly WorkerChannel[];
  #wakeUpTimer: NodeJS.Immediate | undefined;
  /** Runs while checks are pending, and once more. */
  #pollTimer: NodeJS.Timeout | undefined;

  constructor(counters: Counters, queues: WorkQueues, clock: Clock, stats: AcceptorStats) {
    super(counters, queues, clock, stats);
    this.#queues = queues;
    this.#channels = queues.producers.map((producer) => new WorkerChannel(producer));
  }

  override connectWorker(worker: number, port: MessagePort): void {
    const channel = this.#channels[worker];
    channel.notificationPort?.close();
    channel.notificationPort = port;
    port.on('message', () => this.#drainReplies(channel));
    this.#drainReplies(channel);
  }

  override decide<C>(
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): Decision | undefined {
    const { identity, namespace } = check;
    const channel = this.#channels[this.#queues.workerFor(identity)];
    if (!channel.canEnqueue()) {
      this.stats.increment(ACCEPTOR_STAT.queueFull);
      return this.decideInPlace(check, this.clock.wallMs(startedMs));
    }
    channel.addPending(check, startedMs, context, completion as Completion<unknown>);
    channel.producer.enqueueCheck(identity, namespace.hashState[0], check);
    this.stats.increment(ACCEPTOR_STAT.queuedChecks);
    channel.isWakeUpDue = true;
    this.#wakeUpTimer ??= setImmediate(() => this.#wakeWorkers());
    this.#pollTimer ??= setInterval(() => this.#pollAll(), POLL_INTERVAL_MS);
    return undefined;
  }

  #wakeWorkers(): void {
    this.#wakeUpTimer = undefined;
    for (const channel of this.#channels) {
      if (!channel.isWakeUpDue) continue;
      channel.isWakeUpDue = false;
      channel.producer.wakeWorker();
    }
  }

  /** Completes all checks whose decisions are in the queue. */
  #drainReplies(channel: WorkerChannel): void {
    const { words, doubles } = channel.producer.memory;
    requestNotification(words, NOTIFICATION_FLAG);
    for (const { replies, decision } = channel; !replies.isEmpty(); replies.releaseFirst()) {
      const at = replies.firstItem();
      this.countOutcome(words[at + REPLY.outcome]);
      const pending = channel.pendingAt(words[at + REPLY.number]);
      // It has failed before: its deadline had passed.
      if (pending === undefined) continue;
      decision.remaining = doubles[at / 2 + REPLY.remaining];
      decision.reset = doubles[at / 2 + REPLY.reset];
      decision.allowed = words[at + REPLY.allowed] === 1;
      complete(channel, pending, decision);
    }
  }

  #pollAll(): void {
    const isIdle = this.#channels.every((channel) => channel.isIdle());
    for (const channel of this.#channels) this.#poll(channel);
    if (!isIdle) return;
    clearInterval(this.#pollTimer);
    this.#pollTimer = undefined;
  }

  /** Finds decisions that no notification announced, and ends checks that take too long. */
  #poll(channel: WorkerChannel): void {
    this.#drainReplies(channel);
    const nowMs = this.clock.monotonicMs();
    for (const pending of channel.allPending()) {
      const waitedMs = nowMs - pending.startedMs;
      if (waitedMs < WITHDRAW_AFTER_MS) break;
      if (channel.producer.withdraw(pending.number)) {
        this.stats.increment(ACCEPTOR_STAT.withdrawnChecks);
        channel.lastWithdrawn = pending.number;
        let decision: Decision;
        try {
          decision = this.decideInPlace(pending.check, this.clock.nowMs());
        } catch (error) {
          fail(channel, pending, error);
          continue;
        }
        complete(channel, pending, decision);
      } else if (waitedMs >= CHECK_DEADLINE_MS) {
        const message =
          `a shard worker did not finish this check within ${CHECK_DEADLINE_MS} ms;` +
          ' the check may have been counted';
        fail(channel, pending, new ApiError('SERVICE_UNAVAILABLE', message));
      }
    }
  }
}

function complete(channel: WorkerChannel, pending: PendingCheck, decision: Decision): void {
  const { check, startedMs, context, completion } = pending;
  channel.removePending(pending);
  completion.complete(context, startedMs, check, decision);
}

function fail(channel: WorkerChannel, pending: PendingCheck, error: unknown): void {
  const { context, completion } = pending;
  channel.removePending(pending);
  completion.fail(context, error);
}
