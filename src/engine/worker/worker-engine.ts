/**
 * Hands every check over to the worker of its shard and answers when the decision comes back: all
 * of a loop's turn are rung for once, and answers come in batches.
 *
 * Everything that may end a request before its answer, or keep the answer away:
 *
 *   the client goes away       the check is counted, its answer is dropped
 *   the ring is full           decided in place
 *   the worker is late         what it has not begun after TAKE_BACK_MS is taken back and decided
 *                              in place, and so is what comes until it moves again
 *   the worker dies            the same; what it had begun is answered by its successor, or with a
 *                              503 after CHECK_DEADLINE_MS, which says that it may have counted
 *   its message does not come  the answers are found by the next look
 *
 * A check is thus counted once, but for one that was in the hand of a worker when it died.
 */

import type { MessagePort } from 'node:worker_threads';
import type { Check } from '../../core/check.ts';
import { CHECK_DEADLINE_MS, CHECK_QUEUE_ENTRIES, WITHDRAW_AFTER_MS } from '../../core/constants.ts';
import { newDecision, type TableDecision } from '../../core/decision.ts';
import { ApiError } from '../../core/errors.ts';
import type { Identity } from '../../core/hash.ts';
import type { Clock } from '../../shared-memory/clock.ts';
import { ACCEPTOR_STAT, type AcceptorStats } from '../../shared-memory/stats.ts';
import { type Completion, countDecision, countOutcome, type Engine } from '../engine.ts';
import type { Counters } from '../memory/counters.ts';
import { shardOf, workerOf } from '../memory/shard.ts';
import type { CheckQueueProducer } from './check-queue-producer.ts';
import { ENTRY, ENTRY_KIND, NOTIFICATION_FLAG, REPLY, TAIL } from './layout.ts';
import { CHECK_QUEUE, itemAt, QueueConsumer, REPLY_QUEUE } from './queue.ts';
import { requestNotification } from './wake-up.ts';

const POLL_INTERVAL_MS = WITHDRAW_AFTER_MS / 2;

/** What a check is answered by, in a later turn of the loop. */
interface CheckResponse {
  onAborted(handler: () => void): unknown;
  cork(write: () => void): unknown;
}

/** A check that has not been answered. */
interface PendingCheck {
  number: number;
  /** Undefined when its client has gone. */
  res: CheckResponse | undefined;
  check: Check;
  startedMs: number;
  completion: Completion<CheckResponse>;
}

export class WorkerEngine implements Engine<CheckResponse> {
  readonly #channels: WorkerChannel[];
  readonly #counters: Counters;
  readonly #clock: Clock;
  readonly #stats: AcceptorStats;
  #wakeUpTimer: NodeJS.Immediate | undefined;
  /** Runs while checks wait for their answers, and a turn longer. */
  #pollTimer: NodeJS.Timeout | undefined;

  constructor(
    counters: Counters,
    producers: readonly CheckQueueProducer[],
    clock: Clock,
    stats: AcceptorStats,
  ) {
    this.#counters = counters;
    this.#clock = clock;
    this.#stats = stats;
    this.#channels = producers.map((handoff) => new WorkerChannel(handoff));
  }

  /** A run of a worker begins: its messages say that answers lie in the ring. */
  connectNotificationPort(worker: number, port: MessagePort): void {
    const link = this.#channels[worker];
    link.notificationPort?.close();
    link.notificationPort = port;
    port.on('message', () => this.#drainReplies(link));
    this.#drainReplies(link);
  }

  decide(
    check: Check,
    id: Identity,
    startedMs: number,
    res: CheckResponse,
    completion: Completion<CheckResponse>,
  ): TableDecision | undefined {
    const tag = check.namespace.hashState[0];
    const link = this.#channels[workerOf(shardOf(id), this.#channels.length)];
    if (!link.canEnqueue()) {
      this.#stats.increment(ACCEPTOR_STAT.queueFull);
      const nowMs = this.#clock.wallMs(startedMs);
      const decision = this.#counters.decide(id, tag, nowMs, check);
      countDecision(this.#stats, check.namespace, check.cost, decision.allowed, decision.outcome);
      return decision;
    }
    const pending = link.addPending(res, check, startedMs, completion);
    res.onAborted(() => {
      if (pending.res === res) pending.res = undefined;
    });
    link.producer.enqueue(ENTRY_KIND.check, id, tag, 0, check);
    this.#stats.increment(ACCEPTOR_STAT.queuedChecks);
    link.isWakeUpDue = true;
    this.#wakeUpTimer ??= setImmediate(() => this.#wakeWorkers());
    this.#pollTimer ??= setInterval(() => this.#pollAll(), POLL_INTERVAL_MS);
    return undefined;
  }

  #wakeWorkers(): void {
    this.#wakeUpTimer = undefined;
    for (const link of this.#channels) {
      if (!link.isWakeUpDue) continue;
      link.isWakeUpDue = false;
      link.producer.wakeWorker();
    }
  }

  /** Answers all checks whose decisions lie in the ring. */
  #drainReplies(channel: WorkerChannel): void {
    const { words, doubles } = channel.producer.memory;
    requestNotification(words, NOTIFICATION_FLAG);
    for (const { replies, decision } = channel; !replies.isEmpty(); replies.releaseFirst()) {
      const at = replies.firstItem();
      const pending = channel.pendingAt(words[at + REPLY.number]);
      if (pending === undefined) {
        countOutcome(this.#stats, words[at + REPLY.outcome]);
        continue;
      }
      decision.remaining = doubles[at / 2 + REPLY.remaining];
      decision.reset = doubles[at / 2 + REPLY.reset];
      decision.allowed = words[at + REPLY.allowed] === 1;
      decision.outcome = words[at + REPLY.outcome];
      this.#complete(channel, pending, decision);
    }
  }

  #complete(channel: WorkerChannel, pending: PendingCheck, decision: TableDecision): void {
    const { res, check, startedMs, completion } = pending;
    channel.removePending(pending);
    countDecision(this.#stats, check.namespace, check.cost, decision.allowed, decision.outcome);
    if (res === undefined) {
      this.#stats.increment(ACCEPTOR_STAT.undeliveredResponses);
      this.#stats.heartbeat();
      return;
    }
    res.cork(() => completion.complete(res, check, decision));
    this.#stats.recordLatency(this.#clock.monotonicMs() - startedMs);
  }

  #pollAll(): void {
    const idle = this.#channels.every((link) => link.isIdle());
    for (const link of this.#channels) this.#poll(link);
    if (!idle) return;
    clearInterval(this.#pollTimer);
    this.#pollTimer = undefined;
  }

  /** Finds what a message did not tell of, and sees to what takes too long. */
  #poll(channel: WorkerChannel): void {
    this.#drainReplies(channel);
    const nowMs = this.#clock.monotonicMs();
    for (const pending of channel.allPending()) {
      const waitedMs = nowMs - pending.startedMs;
      if (waitedMs < WITHDRAW_AFTER_MS) break;
      if (channel.producer.withdraw(pending.number)) {
        this.#stats.increment(ACCEPTOR_STAT.withdrawnChecks);
        channel.lastWithdrawn = pending.number;
        try {
          this.#complete(channel, pending, this.#decideWithdrawn(channel, pending));
        } catch (error) {
          this.#fail(channel, pending, error);
        }
      } else if (waitedMs >= CHECK_DEADLINE_MS) {
        const message = 'the thread that had this check in hand ended; it may have been counted';
        this.#fail(channel, pending, new ApiError('SERVICE_UNAVAILABLE', message));
      }
    }
  }

  #fail(channel: WorkerChannel, pending: PendingCheck, error: unknown): void {
    const { res, completion } = pending;
    channel.removePending(pending);
    if (res === undefined) this.#stats.increment(ACCEPTOR_STAT.undeliveredResponses);
    else res.cork(() => completion.fail(res, error));
  }

  /** Decides in place what was taken back, of whom its entry says. */
  #decideWithdrawn({ producer }: WorkerChannel, { number, check }: PendingCheck): TableDecision {
    const { words } = producer.memory;
    const at = itemAt(CHECK_QUEUE, number);
    const id: Identity = {
      h0: words[at + ENTRY.hash],
      h1: words[at + ENTRY.hash + 1],
      h2: words[at + ENTRY.hash + 2],
      h3: words[at + ENTRY.hash + 3],
    };
    return this.#counters.decide(id, words[at + ENTRY.namespaceTag], this.#clock.nowMs(), check);
  }
}

/** What an acceptor keeps of one worker: its rings, and the checks that it waits for, in order. */
class WorkerChannel {
  readonly producer: CheckQueueProducer;
  readonly replies: QueueConsumer;
  readonly decision = newDecision();
  /** Where the messages of the worker's present run come in. */
  notificationPort: MessagePort | undefined;
  isWakeUpDue = false;
  /** The last entry that had to be taken back, until the worker has passed it. */
  lastWithdrawn: number | undefined;
  /** By number modulo their count. An entry's place is free when `#oldest` has passed it. */
  readonly #pending: (PendingCheck | undefined)[] = new Array(CHECK_QUEUE_ENTRIES).fill(undefined);
  #oldestPending: number;

  constructor(producer: CheckQueueProducer) {
    this.producer = producer;
    this.replies = new QueueConsumer(producer.memory, REPLY_QUEUE);
    this.#oldestPending = producer.nextNumber;
  }

  /** Whether one more check may be handed over. */
  canEnqueue(): boolean {
    if (this.lastWithdrawn !== undefined) {
      const tail = Atomics.load(this.producer.memory.words, TAIL);
      if (((tail - this.lastWithdrawn) | 0) <= 0) return false;
      this.lastWithdrawn = undefined;
    }
    if (((this.producer.nextNumber - this.#oldestPending) | 0) >= CHECK_QUEUE_ENTRIES) return false;
    return this.producer.hasRoom();
  }

  /** Whether it waits for no check. */
  isIdle(): boolean {
    return this.#oldestPending === this.producer.nextNumber;
  }

  /** Notes a check that is handed over next. */
  addPending(
    res: CheckResponse,
    check: Check,
    startedMs: number,
    completion: Completion<CheckResponse>,
  ): PendingCheck {
    const number = this.producer.nextNumber;
    const { namespace, limit, durationMs, cost, rule, burst, isAsync, overrideId } = check;
    const kept = { namespace, limit, durationMs, cost, rule, burst, isAsync, overrideId };
    const pending = { number, res, check: kept, startedMs, completion };
    this.#pending[number & (CHECK_QUEUE_ENTRIES - 1)] = pending;
    return pending;
  }

  /** The check of a number; undefined when it has been answered. */
  pendingAt(number: number): PendingCheck | undefined {
    const pending = this.#pending[number & (CHECK_QUEUE_ENTRIES - 1)];
    return pending?.number === number ? pending : undefined;
  }

  /** A check is answered, or will never be. */
  removePending({ number }: PendingCheck): void {
    this.#pending[number & (CHECK_QUEUE_ENTRIES - 1)] = undefined;
    while (
      this.#oldestPending !== this.producer.nextNumber &&
      this.#pending[this.#oldestPending & (CHECK_QUEUE_ENTRIES - 1)] === undefined
    ) {
      this.#oldestPending = (this.#oldestPending + 1) | 0;
    }
  }

  /** The checks that are waited for, oldest first. */
  allPending(): PendingCheck[] {
    const waiting: PendingCheck[] = [];
    for (let n = this.#oldestPending; n !== this.producer.nextNumber; n = (n + 1) | 0) {
      const pending = this.pendingAt(n);
      if (pending !== undefined) waiting.push(pending);
    }
    return waiting;
  }
}
