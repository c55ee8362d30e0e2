/**
 * Gets tokens from Redis for the checks of a shard worker. `counter/` decides what each message
 * says and what follows from its answer; this file decides when messages are sent. It has the
 * timers, locks the slots, and replies to acceptors.
 *
 * Each counter has at most one message under way; the messages of a turn of the event loop that
 * concern one bucket share calls. A counter is here only while it has something to report or to
 * wait for.
 */

import { newDecision } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { carriesOver, RULE } from '../../core/window-rules.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import type { QueueEntry, ReplyDecision } from '../queue/check-queue-consumer.ts';
import { counterKey, durationOfKey } from '../windows/registry.ts';
import type { CallResult } from './bucket-calls.ts';
import { type AnswerResult, endDenials } from './counter/answer.ts';
import { composeEmptyReport } from './counter/compose.ts';
import {
  type Correction,
  decideInOrder,
  isIdle,
  isReady,
  newCounter,
  recall,
  type WaitingCheck,
  wake,
} from './counter/counter.ts';
import { forgetUsage } from './counter/lease-state.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import {
  type CounterOfTable,
  changeState,
  composeFromSlot,
  takeAnswerIntoSlot,
} from './lease-exchange.ts';
import { type LeaseTable, VERDICT } from './lease-table.ts';
import type { CounterAnswer, CounterMessage, MemberMessage } from './scripts/protocol.ts';
import { MESSAGES_PER_CALL, RETRY_MS, RETURN_KEPT_MS } from './scripts/protocol-constants.ts';

/** Where the checks of a counter come from, and their decisions go to. */
export interface CheckSource {
  claim(number: number): boolean;
  unclaim(number: number): void;
  isOpen(number: number): boolean;
  dropRepeated(number: number): void;
  reply(number: number, decision: ReplyDecision): void;
}

interface QueuedCheck extends WaitingCheck {
  readonly source: CheckSource;
  readonly entry: QueueEntry;
}

interface QueuedCorrection extends Correction {
  readonly resolve: (answer: CounterAnswer | undefined) => void;
}

type Listener = (isDone: boolean) => void;

/** A counter that is not idle. */
interface ActiveCounter extends CounterOfTable<QueuedCheck, QueuedCorrection> {
  readonly name: string;
  readonly bucket: number;
  /** Called with whether Redis has got the next message, and the one under way. */
  listeners: Listener[];
  sentListeners: readonly Listener[];
}

export interface LeaseClientOptions {
  /** The table of an identity's shard, which must be one of this worker. */
  tableOf: (identity: Identity) => LeaseTable;
  ownsShardOf: (identity: Identity) => boolean;
  /** The number of the worker that had an identity in the process before, plus 1. */
  inheritsFrom: (identity: Identity) => number;
  bucketOf: (identity: Identity) => number;
  /** Sends messages of one bucket. */
  send: (bucket: number, messages: CounterMessage[]) => Promise<CallResult>;
  /** Called after decisions were sent in a turn of their own. */
  onReplies: () => void;
  /** A time by the clock of Redis, as far as known: Unix time, ms. */
  redisMs: (identity: Identity, nowMs: number) => number;
  /** A monotonic clock. */
  nowMs: () => number;
  stats: WorkerStats;
  /** Called when a counter has got tokens that the next window looks at. */
  onSlidingLease: (identity: Identity, deadlineMs: number) => void;
  /** Whether checks may be decided from tokens taken in advance. */
  leases: boolean;
  /** How long a check waits until usage that Redis has lost is reported, before it is denied. */
  recoveryParkMs: number;
  /** Called when checks wait for reports of a counter that Redis has requested before. */
  onUnknown: () => void;
}

export class LeaseClient {
  readonly #options: LeaseClientOptions;
  readonly #counters = new Map<string, ActiveCounter>();
  /** Counters that may have a message to send in this turn, by bucket. */
  readonly #ready = new Map<number, Set<ActiveCounter>>();
  /** Counters whose checks are sent again later. */
  readonly #parked = new Set<ActiveCounter>();
  readonly #decision = newDecision();
  readonly #returnTimers = new Set<NodeJS.Timeout>();
  #flushTimer: NodeJS.Immediate | undefined;
  #retryTimer: NodeJS.Timeout | undefined;

  constructor(options: LeaseClientOptions) {
    this.#options = options;
  }

  /** Whether no counter has something to send, or waits for an answer. */
  get isIdle(): boolean {
    return this.#counters.size === 0;
  }

  /** Takes over a check of the queue. */
  addCheck(source: CheckSource, entry: QueueEntry): void {
    const { identity, kind, namespaceTag, parameters } = entry;
    const { cost, limit, rule, durationMs } = parameters;
    const active = this.#activeOf(identity, counterKey(rule, durationMs), namespaceTag);
    const countsDenied = kind === ENTRY_KIND.countedTokens;
    active.counter.waiting.push({
      source,
      entry,
      parameters,
      check: { cost, limit, isSliding: carriesOver(rule), countsDenied },
      isReserve: kind === ENTRY_KIND.reserve,
      wasSent: false,
      queuedMs: this.#options.nowMs(),
      parkedMs: 0,
    });
    this.#queue(active);
  }

  /** Wants more tokens of a counter before they are needed. */
  addPrefetch({ identity, namespaceTag, parameters }: QueueEntry): void {
    if (!this.#options.leases) return;
    const { limit, rule, durationMs } = parameters;
    const active = this.#activeOf(identity, counterKey(rule, durationMs), namespaceTag);
    active.counter.prefetch = { limit, isSliding: carriesOver(rule) };
    this.#queue(active);
  }

  /**
   * Reports the usage of a counter, and reads that of all machines.
   * @returns whether Redis has got it
   */
  sync(identity: Identity, key: number): Promise<boolean> {
    const active = this.#activeOf(identity, key, 0);
    active.counter.mustSync = true;
    this.#queue(active);
    return new Promise((resolve) => active.listeners.push(resolve));
  }

  /** Returns the lease of a counter. */
  returnLease(identity: Identity, key: number): void {
    const active = this.#activeOf(identity, key, 0);
    active.counter.mustReturn = true;
    this.#queue(active);
  }

  /**
   * @returns the answer, of any status; undefined when there is none, and the correction may have
   *   been made
   */
  correct(
    identity: Identity,
    key: number,
    correction: Correction,
  ): Promise<CounterAnswer | undefined> {
    const active = this.#activeOf(identity, key, 0);
    return new Promise((resolve) => {
      active.counter.corrections.push({ ...correction, resolve });
      this.#queue(active);
    });
  }

  /**
   * Follows a message of Redis about a counter. After a loss Redis awaits all members of a machine,
   * of which one has the counter: the others report that they have nothing, and ignore the rest.
   */
  receive(message: Exclude<MemberMessage, { kind: 'bucket' | 'epoch' }>): void {
    const { identity, durationMs } = message;
    const { ownsShardOf, bucketOf, send, tableOf, nowMs, stats } = this.#options;
    if (!ownsShardOf(identity)) {
      if (message.kind !== 'report') return;
      const report = composeEmptyReport(identity, durationMs, message.report, nowMs());
      void send(bucketOf(identity), [report]);
      return;
    }
    const key = counterKey(RULE.fixed, durationMs);
    switch (message.kind) {
      case 'recall': {
        const active = this.#activeOf(identity, key, 0);
        recall(active.counter);
        this.#queue(active);
        this.flush();
        stats.add(WORKER_STAT.leasesRecalled, 1);
        break;
      }
      case 'wake': {
        changeState(tableOf(identity), identity, key, (state) => endDenials(state, nowMs()));
        const active = this.#counters.get(nameOfCounter(identity, key));
        if (active === undefined) break;
        wake(active.counter);
        this.#queue(active);
        break;
      }
      case 'report': {
        const active = this.#activeOf(identity, key, 0);
        active.counter.report = message.report;
        this.#queue(active);
        this.flush();
        break;
      }
      case 'reset':
        this.forget(identity, key);
        void this.sync(identity, key);
        break;
    }
  }

  /** Denies no check by what was known of a counter. */
  forget(identity: Identity, key: number): void {
    changeState(this.#options.tableOf(identity), identity, key, forgetUsage);
  }

  /** Ends all timers. */
  close(): void {
    clearImmediate(this.#flushTimer);
    clearTimeout(this.#retryTimer);
    for (const timer of this.#returnTimers) clearTimeout(timer);
  }

  /** Sends what is to be sent. Happens by itself at the end of a turn. */
  flush(): void {
    clearImmediate(this.#flushTimer);
    this.#flushTimer = undefined;
    for (const [bucket, counters] of this.#ready) {
      this.#ready.delete(bucket);
      this.#flushBucket(bucket, counters);
    }
  }

  #flushBucket(bucket: number, counters: ReadonlySet<ActiveCounter>): void {
    const nowMs = this.#options.nowMs();
    let batch: ActiveCounter[] = [];
    for (const active of counters) {
      const { counter } = active;
      // A message is under way: its answer looks at the counter again.
      if (counter.sent !== undefined) continue;
      counter.waiting = counter.waiting.filter(isOpen);
      if (this.#options.leases) decideInOrder(counter, (check) => this.#tryInMemory(check));
      if (!isReady(counter, nowMs)) {
        this.#parkOrForget(active, nowMs);
        continue;
      }
      batch.push(active);
      if (batch.length < MESSAGES_PER_CALL) continue;
      void this.#exchange(bucket, batch);
      batch = [];
    }
    if (batch.length > 0) void this.#exchange(bucket, batch);
  }

  async #exchange(bucket: number, counters: readonly ActiveCounter[]): Promise<void> {
    const { nowMs, send, onReplies } = this.#options;
    const messages = counters.map((active) => this.#compose(active, nowMs()));
    const result = await send(bucket, messages);
    const now = nowMs();
    const sentMs = result.kind === 'answer' ? result.sentMs : now;
    const answers = result.kind === 'answer' ? result.answer.counters : [];
    for (const [at, active] of counters.entries()) {
      this.#takeAnswer(active, answers[at], sentMs, now);
      if (isReady(active.counter, now)) this.#queue(active);
      else this.#parkOrForget(active, now);
    }
    onReplies();
  }

  /** @returns whether the check is over */
  #tryInMemory({ source, entry, isReserve }: QueuedCheck): boolean {
    const { identity, parameters, number, kind } = entry;
    // A denial that counts is one of Redis.
    if (kind === ENTRY_KIND.countedTokens) return !source.isOpen(number);
    if (!source.claim(number)) return true;
    const table = this.#options.tableOf(identity);
    const nowMs = this.#options.nowMs();
    const decision = this.#decision;
    const verdict = isReserve
      ? table.reserve(identity, nowMs, parameters, decision)
      : table.decide(identity, nowMs, parameters, decision);
    if (verdict !== VERDICT.decided && verdict !== VERDICT.decidedPrefetch) {
      source.unclaim(number);
      return false;
    }
    if (verdict === VERDICT.decidedPrefetch) this.addPrefetch(entry);
    source.reply(number, decision);
    this.#options.stats.add(WORKER_STAT.decisions, 1);
    return true;
  }

  #compose(active: ActiveCounter, nowMs: number): CounterMessage {
    const { identity } = active.counter;
    const { tableOf, leases, inheritsFrom, stats } = this.#options;
    const { message, returned } = composeFromSlot(tableOf(identity), active, {
      ...{ nowMs, usesLeases: leases },
      inheritsFrom: inheritsFrom(identity),
    });
    if (returned > 0) {
      stats.add(WORKER_STAT.leasesReturned, 1);
      stats.add(WORKER_STAT.returnedTokens, returned);
    }
    active.sentListeners = active.listeners;
    active.listeners = [];
    return message;
  }

  /** @param answer undefined: there is none */
  #takeAnswer(
    active: ActiveCounter,
    answer: CounterAnswer | undefined,
    sentMs: number,
    nowMs: number,
  ): void {
    const { counter, key } = active;
    const { identity, sent } = counter;
    const { tableOf, leases, recoveryParkMs, redisMs, onUnknown, onSlidingLease } = this.#options;
    const result = takeAnswerIntoSlot(tableOf(identity), active, answer, {
      ...{ sentMs, nowMs, redisMs: redisMs(identity, nowMs), usesLeases: leases },
      ...{ recoveryParkMs, claim, isOpen },
    });
    for (const [{ source, entry }, decision] of result.decisions) {
      source.reply(entry.number, decision);
    }
    this.#count(active, result);
    const { isUnknown, slidingLeaseEndMs, returnsLater, isDone } = result;
    if (isUnknown) onUnknown();
    if (slidingLeaseEndMs > 0) onSlidingLease(identity, slidingLeaseEndMs);
    if (returnsLater) this.#returnLater(identity, key);
    sent?.correction?.resolve(result.answer);
    for (const listener of active.sentListeners) listener(isDone);
  }

  #count({ namespaceTag }: ActiveCounter, result: AnswerResult<QueuedCheck>): void {
    const { stats } = this.#options;
    const { decisions, recoveryDenials, unprovenDenials, openedTokens, isDone, answer } = result;
    stats.add(WORKER_STAT.decisions, decisions.length);
    stats.add(WORKER_STAT.recoveryDenials, recoveryDenials);
    stats.add(WORKER_STAT.unprovenDenials, unprovenDenials);
    if (openedTokens > 0) stats.addOpenedTokens(namespaceTag, openedTokens);
    if (!isDone || answer === undefined) return;
    stats.add(WORKER_STAT.leasesWrittenOff, answer.writtenOff);
    if (answer.lent === 0) return;
    stats.add(WORKER_STAT.leasesGranted, 1);
    stats.add(WORKER_STAT.leasedTokens, answer.lent);
  }

  /** Returns what a pending batch has kept of a recalled lease, when it is over. */
  #returnLater(identity: Identity, key: number): void {
    const timer = setTimeout(() => {
      this.#returnTimers.delete(timer);
      this.returnLease(identity, key);
    }, RETURN_KEPT_MS);
    this.#returnTimers.add(timer);
  }

  /** Has a counter wait until its checks are to be sent again, or forgets one that is idle. */
  #parkOrForget(active: ActiveCounter, nowMs: number): void {
    const { sent, waiting, retryMs } = active.counter;
    if (isIdle(active.counter)) {
      this.#counters.delete(active.name);
      this.#parked.delete(active);
    } else if (sent === undefined && waiting.length > 0) {
      this.#parked.add(active);
      this.#retryTimer ??= setTimeout(
        () => this.#retry(),
        Math.max(1, Math.min(retryMs - nowMs, RETRY_MS)),
      );
    }
  }

  #retry(): void {
    this.#retryTimer = undefined;
    const nowMs = this.#options.nowMs();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const active of this.#parked) {
      const { sent, waiting, retryMs } = active.counter;
      if (sent !== undefined || waiting.length === 0) this.#parked.delete(active);
      else if (nowMs >= retryMs) this.#queue(active);
      else nextMs = Math.min(nextMs, retryMs);
    }
    this.flush();
    if (nextMs === Number.POSITIVE_INFINITY) return;
    this.#retryTimer ??= setTimeout(() => this.#retry(), Math.max(1, nextMs - nowMs));
  }

  #activeOf(identity: Identity, key: number, namespaceTag: number): ActiveCounter {
    const name = nameOfCounter(identity, key);
    let active = this.#counters.get(name);
    if (active === undefined) {
      const bucket = this.#options.bucketOf(identity);
      const counter = newCounter<QueuedCheck, QueuedCorrection>(identity, durationOfKey(key));
      active = { name, key, bucket, namespaceTag, counter, listeners: [], sentListeners: [] };
      this.#counters.set(name, active);
    }
    if (namespaceTag !== 0) active.namespaceTag = namespaceTag;
    return active;
  }

  /** Looks at a counter at the end of this turn. */
  #queue(active: ActiveCounter): void {
    this.#parked.delete(active);
    let ready = this.#ready.get(active.bucket);
    if (ready === undefined) {
      ready = new Set();
      this.#ready.set(active.bucket, ready);
    }
    ready.add(active);
    this.#flushTimer ??= setImmediate(() => this.flush());
  }
}

function claim({ source, entry }: QueuedCheck): boolean {
  return source.claim(entry.number);
}

function isOpen({ source, entry }: QueuedCheck): boolean {
  return source.isOpen(entry.number);
}

/** A key of maps by counter. */
export function nameOfCounter({ h0, h1, h2, h3 }: Identity, key: number): string {
  return `${h0},${h1},${h2},${h3},${key}`;
}
