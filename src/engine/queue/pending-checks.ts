/**
 * The checks of an acceptor that wait for the reply of a shard worker. A worker is woken once for
 * all entries of a turn of the loop, and decisions come back in batches.
 *
 *   a notification is lost       the next poll finds the replies
 *   the worker is late           a check that it has not begun in time is withdrawn; the engine
 *                                decides it in another way
 *   the worker dies              the same; the check that it had begun is decided by its successor,
 *                                or fails after CHECK_DEADLINE_MS, and may have been counted
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../../core/check.ts';
import { CHECK_DEADLINE_MS } from '../../core/constants.ts';
import type { Decision } from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import type { Completion } from '../engine.ts';
import type { CheckQueueProducer } from './check-queue-producer.ts';
import { NOTIFICATION_FLAG, REPLY, REPLY_ALLOWED } from './layout.ts';
import { requestNotification } from './wake-up.ts';
import { type PendingCheck, WorkerChannel } from './worker-channel.ts';

export interface PendingChecksOptions {
  pollIntervalMs: number;
  /** After this time a check that the worker has not begun is withdrawn. */
  withdrawAfterMs: (worker: number) => number;
  /** Counts what a decision did to the table. @param outcome one of OUTCOME */
  countOutcome: (outcome: number) => void;
  /** Decides a check that was withdrawn. What it throws fails the check. */
  decideWithdrawn: (pending: PendingCheck, channel: WorkerChannel) => Decision;
}

export class PendingChecks {
  /** One for each worker. */
  readonly channels: readonly WorkerChannel[];
  readonly #clock: Clock;
  readonly #options: PendingChecksOptions;
  #wakeUpTimer: NodeJS.Immediate | undefined;
  /** Runs while checks are pending, and once more. */
  #pollTimer: NodeJS.Timeout | undefined;

  constructor(
    producers: readonly CheckQueueProducer[],
    clock: Clock,
    options: PendingChecksOptions,
  ) {
    this.channels = producers.map((producer) => new WorkerChannel(producer));
    this.#clock = clock;
    this.#options = options;
  }

  /** @param onMessage takes messages that announce no replies */
  connectWorker(worker: number, port: MessagePort, onMessage?: (message: unknown) => void): void {
    const channel = this.channels[worker];
    channel.notificationPort?.close();
    channel.notificationPort = port;
    port.on('message', (message) => {
      if (message === null) this.#drainReplies(channel);
      else onMessage?.(message);
    });
    this.#drainReplies(channel);
  }

  /** Enqueues a check on a channel that has room. @param kind one with a reply */
  enqueue<C>(
    channel: WorkerChannel,
    kind: number,
    check: Check,
    startedMs: number,
    context: C,
    completion: Completion<C>,
  ): void {
    channel.addPending(check, startedMs, context, completion as Completion<unknown>);
    this.#enqueue(channel, kind, check);
    this.#wakeLater(channel);
    this.#pollTimer ??= setInterval(() => this.#pollAll(), this.#options.pollIntervalMs);
  }

  /** Enqueues an entry without a reply on a channel that has room. */
  enqueueWithoutReply(channel: WorkerChannel, kind: number, check: Check): void {
    this.#enqueue(channel, kind, check);
    channel.skipAnswered();
    this.#wakeLater(channel);
  }

  #enqueue({ producer }: WorkerChannel, kind: number, check: Check): void {
    const { identity, namespace, burst } = check;
    producer.enqueue(kind, identity, namespace.hashState[0], check, burst);
  }

  #wakeLater(channel: WorkerChannel): void {
    channel.isWakeUpDue = true;
    this.#wakeUpTimer ??= setImmediate(() => this.#wakeWorkers());
  }

  #wakeWorkers(): void {
    this.#wakeUpTimer = undefined;
    for (const channel of this.channels) {
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
      const result = words[at + REPLY.result];
      const outcome = result & ~REPLY_ALLOWED;
      this.#options.countOutcome(outcome);
      const pending = channel.pendingAt(words[at + REPLY.number]);
      // It has failed before: its deadline had passed.
      if (pending === undefined) continue;
      decision.remaining = doubles[at / 2 + REPLY.remaining];
      decision.reset = doubles[at / 2 + REPLY.reset];
      decision.passesAt = doubles[at / 2 + REPLY.passesAt];
      decision.allowed = (result & REPLY_ALLOWED) !== 0;
      decision.outcome = outcome;
      complete(channel, pending, decision);
    }
  }

  #pollAll(): void {
    const isIdle = this.channels.every((channel) => channel.isIdle());
    for (const [worker, channel] of this.channels.entries()) this.#poll(worker, channel);
    if (!isIdle) return;
    clearInterval(this.#pollTimer);
    this.#pollTimer = undefined;
  }

  /** Finds decisions that no notification announced, and ends checks that take too long. */
  #poll(worker: number, channel: WorkerChannel): void {
    this.#drainReplies(channel);
    const nowMs = this.#clock.monotonicMs();
    const withdrawAfterMs = this.#options.withdrawAfterMs(worker);
    for (const pending of channel.allPending()) {
      const waitedMs = nowMs - pending.startedMs;
      if (waitedMs < withdrawAfterMs) break;
      if (channel.producer.withdraw(pending.number)) {
        this.#decideWithdrawn(pending, channel);
      } else if (waitedMs >= CHECK_DEADLINE_MS) {
        const message =
          `a shard worker did not finish this check within ${CHECK_DEADLINE_MS} ms;` +
          ' the check may have been counted';
        fail(channel, pending, new ApiError('SERVICE_UNAVAILABLE', message));
      }
    }
  }

  #decideWithdrawn(pending: PendingCheck, channel: WorkerChannel): void {
    let decision: Decision;
    try {
      decision = this.#options.decideWithdrawn(pending, channel);
    } catch (error) {
      fail(channel, pending, error);
      return;
    }
    complete(channel, pending, decision);
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
