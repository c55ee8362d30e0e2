/**
 * Gets tokens from Redis for the checks of a shard worker. Each counter has at most one message
 * under way; the messages of a turn of the event loop that concern one bucket share calls.
 *
 *   no answer       the fate of the message is unknown. What it took from the lease stays away, and
 *                   the next message settles the account. Its checks wait for it, until their
 *                   acceptor withdraws them.
 *   denied without  the check is parked: another member may hold unspent tokens, which Redis
 *   proof           recalls. It is tried again when Redis says so, and every RETRY_MS, and denied
 *                   after PARK_MS.
 *   a stale answer  is ignored, and the checks are sent again.
 *   usage is lost   in Redis: the checks are parked until the members that Redis waits for have
 *                   reported the counter, for `recoveryParkMs` at most. So has this one: it says so
 *                   at once, together with its checks.
 *
 * Redis decides nothing twice: a check whose answer is lost is in no count of this machine, and
 * the next message gives its tokens back.
 */

import { type CheckParameters, NEVER, newDecision, OUTCOME } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { RULE } from '../../core/window-rules.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import { counterKey, passesAtInWindow } from '../windows/registry.ts';
import { share } from '../windows/sliding.ts';
import { ENTRY_KIND } from '../worker/layout.ts';
import {
  ActiveCounter,
  type CheckSource,
  type Correction,
  type SentMessage,
  type WaitingCheck,
} from './active-counter.ts';
import type { CallResult } from './bucket-calls.ts';
import { NO_LEASE_SLOT } from './lease-layout.ts';
import {
  applyAnswer,
  composeMessage,
  hasLateUsage,
  type Purpose,
  SHARED_LEASE_MS,
} from './lease-messages.ts';
import { type LeaseState, newLeaseState } from './lease-slot.ts';
import { type LeaseTable, VERDICT } from './lease-table.ts';
import type { QueueEntry, ReplyDecision } from './queue-consumer.ts';
import {
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  MESSAGES_PER_CALL,
  type MemberMessage,
  NO_WINDOW,
  SERVED,
  type TokenCheck,
} from './scripts/protocol.ts';

/** Parked checks are tried again after RETRY_MS, and denied after PARK_MS. */
const RETRY_MS = 4;
export const PARK_MS = 10;
/** Checks that wait for longer than that, for reports of other machines, are tried less often. */
const UNKNOWN_RETRY_MS = 50;
/** The purpose of a message that only answers a request. */
const NOTHING: Purpose = {
  ...{ checks: [], takesLease: false, wantsLease: false, isSliding: false, hasPrevious: false },
  ...{ report: 0, inherits: 0, recalls: false, refund: 0, refundWindow: NO_WINDOW },
};
/** Tokens that a batch kept at a recall are returned after this time: no batch takes longer. */
const RETURN_KEPT_MS = 25;
/** The most checks in a message. */
const CHECKS_PER_MESSAGE = 64;
/** Limits below this get no lease. */
const LEASED_LIMIT_MIN = 20;

type ReportRequest = Extract<MemberMessage, { kind: 'report' }>;

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
  /** The window of a duration at a time, as far as known. */
  windowOf: (identity: Identity, durationMs: number, nowMs: number) => number;
  /** A monotonic clock. */
  nowMs: () => number;
  stats: WorkerStats;
  /** Called when a counter has got tokens that the next window looks at. */
  onSlidingLease: (identity: Identity, key: number, deadlineMs: number) => void;
  /** Whether checks may be decided from tokens taken in advance. */
  leases: boolean;
  /** How long a check waits until usage that Redis has lost is reported, before it is denied. */
  recoveryParkMs: number;
  /** Called when checks wait for reports of a counter that Redis has requested before. */
  onUnknown: () => void;
}

export class LeaseClient {
  readonly #options: LeaseClientOptions;
  /** Counters with something to tell Redis, by name. */
  readonly #counters = new Map<string, ActiveCounter>();
  /** Counters that may have a message to send in this turn, by bucket. */
  readonly #ready = new Map<number, Set<ActiveCounter>>();
  /** Counters whose checks are tried again later. */
  readonly #parked = new Set<ActiveCounter>();
  readonly #state = newLeaseState();
  readonly #decision = newDecision();
  readonly #returnTimers = new Set<NodeJS.Timeout>();
  #flushTimer: NodeJS.Immediate | undefined;
  #retryTimer: NodeJS.Timeout | undefined;

  constructor(options: LeaseClientOptions) {
    this.#options = options;
  }

  /** Takes over a check of the queue. */
  addCheck(source: CheckSource, entry: QueueEntry): void {
    const { identity, kind, namespaceTag } = entry;
    const { cost, limit, rule, durationMs } = entry.parameters;
    const counter = this.#counterOf(identity, counterKey(rule, durationMs), namespaceTag);
    counter.waiting.push({
      source,
      entry,
      check: {
        cost,
        limit,
        isSliding: rule === RULE.sliding,
        countsDenied: kind === ENTRY_KIND.countedTokens,
      },
      isReserve: kind === ENTRY_KIND.reserve,
      wasSent: false,
      queuedMs: this.#options.nowMs(),
      parkedMs: 0,
    });
    this.#queue(counter);
  }

  /** Wants more tokens of a counter before they are needed. */
  addPrefetch({ identity, namespaceTag, parameters }: QueueEntry): void {
    if (!this.#options.leases) return;
    const { limit, rule, durationMs } = parameters;
    const counter = this.#counterOf(identity, counterKey(rule, durationMs), namespaceTag);
    counter.prefetch = { limit, isSliding: rule === RULE.sliding };
    this.#queue(counter);
  }

  /**
   * Reports the usage of a counter, and reads that of all members.
   * @returns whether Redis has got it
   */
  sync(identity: Identity, key: number): Promise<boolean> {
    const counter = this.#counterOf(identity, key, 0);
    counter.mustSync = true;
    this.#queue(counter);
    return new Promise((resolve) => counter.listeners.push(resolve));
  }

  /** Returns the lease of a counter. */
  returnLease(identity: Identity, key: number): void {
    const counter = this.#counterOf(identity, key, 0);
    counter.mustReturn = true;
    this.#queue(counter);
  }

  /**
   * @returns the answer, of any status; undefined when there is none, and the correction may have
   *   been made
   */
  correct(
    identity: Identity,
    key: number,
    correction: Omit<Correction, 'resolve'>,
  ): Promise<CounterAnswer | undefined> {
    const counter = this.#counterOf(identity, key, 0);
    return new Promise((resolve) => {
      counter.corrections.push({ ...correction, resolve });
      this.#queue(counter);
    });
  }

  /** Follows a message of Redis about a counter. */
  receive(message: Exclude<MemberMessage, { kind: 'bucket' | 'epoch' }>): void {
    const { identity, durationMs } = message;
    const key = counterKey(RULE.fixed, durationMs);
    const counter = this.#counters.get(nameOf(identity, key));
    switch (message.kind) {
      case 'recall':
        if (counter?.sent === undefined) {
          this.returnLease(identity, key);
          this.flush();
        } else counter.isRecalled = true;
        this.#options.stats.add(WORKER_STAT.leasesRecalled, 1);
        break;
      case 'wake':
        this.#endDenials(identity, key);
        if (counter === undefined) break;
        // The answer under way may be older.
        counter.isWoken = counter.sent !== undefined;
        counter.retryMs = 0;
        this.#queue(counter);
        break;
      case 'report':
        this.#answerRequest(message);
        break;
      case 'reset':
        this.forget(identity, key);
        void this.sync(identity, key);
        break;
    }
  }

  /** Redis requests a report of all workers of a machine, of which one has the counter. */
  #answerRequest({ identity, durationMs, report }: ReportRequest): void {
    const { ownsShardOf, bucketOf, send, nowMs } = this.#options;
    if (ownsShardOf(identity)) {
      const counter = this.#counterOf(identity, counterKey(RULE.fixed, durationMs), 0);
      counter.report = report;
      this.#queue(counter);
      this.flush();
      return;
    }
    const sequence = Math.floor(nowMs() * 1_000);
    const state = { ...newLeaseState(), sequence, firstSequence: sequence };
    const message = composeMessage(identity, durationMs, state, { ...NOTHING, report }, nowMs());
    void send(bucketOf(identity), [message]);
  }

  /** Denies no check by what was known of a counter. */
  forget(identity: Identity, key: number): void {
    this.#change(identity, key, (state) => {
      state.boundUntilMs = 0;
      // A limit that is told shows that a counter was used, and a reset removes it.
      state.lastLimit = 0;
    });
  }

  /** The known use has fallen: checks that it denied may fit now. */
  #endDenials(identity: Identity, key: number): void {
    this.#change(identity, key, (state) => this.#endBound(state, this.#options.nowMs()));
  }

  /** After many refunds in a row a call is not made for each of them, but every RETRY_MS. */
  #endBound(state: LeaseState, nowMs: number): void {
    state.boundUntilMs = Math.min(state.boundUntilMs, nowMs + RETRY_MS);
  }

  #change(identity: Identity, key: number, change: (state: LeaseState) => void): void {
    const table = this.#options.tableOf(identity);
    const lock = table.lockFor(identity);
    table.acquire(lock);
    const slot = table.find(identity, key);
    if (slot !== NO_LEASE_SLOT) {
      table.read(slot, this.#state);
      change(this.#state);
      table.write(slot, this.#state);
    }
    table.release(lock);
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
    for (const counter of counters) {
      // A message is under way: its answer looks at the counter again.
      if (counter.sent !== undefined) continue;
      counter.waiting = counter.waiting.filter(({ source, entry }) => source.isOpen(entry.number));
      this.#decideInPlace(counter);
      if (!counter.isReady(nowMs)) {
        this.#settle(counter, nowMs);
        continue;
      }
      batch.push(counter);
      if (batch.length < MESSAGES_PER_CALL) continue;
      void this.#exchange(bucket, batch);
      batch = [];
    }
    if (batch.length > 0) void this.#exchange(bucket, batch);
  }

  async #exchange(bucket: number, counters: readonly ActiveCounter[]): Promise<void> {
    const { nowMs, send } = this.#options;
    const messages = counters.map((counter) => this.#compose(counter, nowMs()));
    const result = await send(bucket, messages);
    const now = nowMs();
    const sentMs = result.kind === 'answer' ? result.sentMs : now;
    const answers = result.kind === 'answer' ? result.answer.counters : [];
    for (const [at, counter] of counters.entries()) {
      const { sent } = counter;
      counter.sent = undefined;
      if (sent === undefined) continue;
      const answer: CounterAnswer | undefined = answers[at];
      const isDone = answer !== undefined && this.#onAnswer(counter, sent, answer, sentMs, now);
      if (!isDone) this.#onNothingDone(counter, sent, now);
      for (const listener of sent.listeners) listener(isDone);
      this.#queueAgain(counter, now);
    }
    this.#options.onReplies();
  }

  /**
   * Decides waiting checks that can be decided in memory now, up to the first that cannot: checks
   * of a request are decided in their order, and a later one may have a larger limit.
   */
  #decideInPlace(counter: ActiveCounter): void {
    if (!this.#options.leases || counter.waiting.length === 0) return;
    let isBlocked = false;
    counter.waiting = counter.waiting.filter((waiting) => {
      if (waiting.wasSent) return true;
      isBlocked ||= !this.#tryInPlace(waiting);
      return isBlocked;
    });
  }

  /** @returns whether the check is over */
  #tryInPlace({ source, entry, isReserve }: WaitingCheck): boolean {
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

  /** Takes the next message of a counter, and notes it as under way. */
  #compose(counter: ActiveCounter, nowMs: number): CounterMessage {
    const { identity, prefetch } = counter;
    const correction = counter.corrections.shift();
    const isPlain = correction === undefined;
    const checks = isPlain ? takeChecks(counter) : [];
    const takesLease = checks.length > 0 || counter.mustReturn || correction !== undefined;
    const wantsLease =
      this.#options.leases &&
      isPlain &&
      !counter.mustReturn &&
      !counter.isRecalled &&
      (checks.length > 0 || prefetch !== undefined);
    const table = this.#options.tableOf(identity);
    const lock = table.lockFor(identity);
    table.acquire(lock);
    const slot = this.#slotFor(table, counter, nowMs, checks.length > 0);
    const state = this.#state;
    if (slot === NO_LEASE_SLOT) {
      // Redis counts what such a message uses as that of an earlier slot.
      const sequence = Math.floor(nowMs * 1_000);
      Object.assign(state, newLeaseState(), { sequence, firstSequence: sequence });
    } else table.read(slot, state);
    const leaseBefore = state.lease;
    const limits = checks.map(({ check }) => check.limit);
    if (prefetch !== undefined && checks.length === 0) state.lastLimit = prefetch.limit;
    const message = composeMessage(
      identity,
      counter.durationMs,
      state,
      {
        checks: checks.map(({ check }) => check),
        takesLease,
        // Without a slot there is no place for a lease.
        wantsLease:
          wantsLease &&
          slot !== NO_LEASE_SLOT &&
          Math.min(...limits, prefetch?.limit ?? LEASED_LIMIT_MIN) >= LEASED_LIMIT_MIN,
        isSliding:
          state.coversSliding ||
          (prefetch?.isSliding ?? false) ||
          checks.some(({ check }) => check.isSliding),
        report: counter.report,
        inherits: state.isInherited ? this.#options.inheritsFrom(identity) : 0,
        hasPrevious:
          (counter.report !== 0 || counter.mustSync) &&
          (state.previousSpent !== 0 || state.previousKnownUse > 0),
        recalls: correction?.recalls ?? false,
        refund: correction?.refund ?? 0,
        refundWindow: correction?.refundWindow ?? NO_WINDOW,
      },
      nowMs,
    );
    if (slot !== NO_LEASE_SLOT) {
      state.isPinned = true;
      table.write(slot, state);
      table.setDirty(lock, slot, false);
    }
    table.release(lock);
    const isReturn = counter.mustReturn;
    if (checks.length === 0 && isReturn && leaseBefore > 0) {
      this.#options.stats.add(WORKER_STAT.leasesReturned, 1);
      this.#options.stats.add(WORKER_STAT.returnedTokens, leaseBefore);
    }
    counter.mustReturn = false;
    counter.mustSync = false;
    counter.report = 0;
    counter.prefetch = undefined;
    counter.retryMs = Number.POSITIVE_INFINITY;
    const { listeners } = counter;
    counter.listeners = [];
    counter.sent = { message, checks, correction, isReturn, listeners };
    return message;
  }

  /** The slot of a counter; a new one if it has none and is to be used. */
  #slotFor(table: LeaseTable, counter: ActiveCounter, nowMs: number, inserts: boolean) {
    const { identity, key, namespaceTag } = counter;
    const slot = table.find(identity, key);
    if (slot !== NO_LEASE_SLOT || !inserts) return slot;
    return table.insert(identity, namespaceTag, key, nowMs);
  }

  /** @returns whether Redis has done what the message wants */
  #onAnswer(
    counter: ActiveCounter,
    sent: SentMessage,
    answer: CounterAnswer,
    sentMs: number,
    nowMs: number,
  ): boolean {
    const { done, retryRefund, recovering } = MESSAGE_STATUS;
    const { status } = answer;
    if (status === done || status === retryRefund) {
      return this.#onDone(counter, sent, answer, sentMs, nowMs);
    }
    if (status === recovering) {
      for (const waiting of sent.checks) {
        if (isParkingOver(waiting, nowMs)) this.#denyFenced(waiting, nowMs);
        else if (waiting.parkedMs === 0) waiting.parkedMs = nowMs;
      }
    }
    sent.correction?.resolve(answer);
    return false;
  }

  /** Denies a check of a window that the clock of Redis has not reached. */
  #denyFenced({ source, entry }: WaitingCheck, nowMs: number): void {
    const { identity, number, parameters } = entry;
    const { durationMs } = parameters;
    const reset = (this.#options.windowOf(identity, durationMs, nowMs) + 1) * durationMs;
    if (!source.claim(number)) return;
    const { cost, limit, rule } = parameters;
    // A sliding window needs the one before it, too.
    const endMs = rule === RULE.sliding ? reset + durationMs : reset;
    source.reply(number, {
      allowed: false,
      remaining: 0,
      reset,
      passesAt: cost > limit ? NEVER : endMs,
      outcome: OUTCOME.decided,
    });
    this.#options.stats.add(WORKER_STAT.recoveryDenials, 1);
    this.#options.stats.add(WORKER_STAT.decisions, 1);
  }

  /** @returns false: the answer is stale */
  #onDone(
    counter: ActiveCounter,
    { message, checks, correction, isReturn }: SentMessage,
    answer: CounterAnswer,
    sentMs: number,
    nowMs: number,
  ): boolean {
    const { stats, leases } = this.#options;
    const { identity, key } = counter;
    const table = this.#options.tableOf(identity);
    const lock = table.lockFor(identity);
    table.acquire(lock);
    const state = this.#state;
    const slot = table.find(identity, key);
    if (slot === NO_LEASE_SLOT) {
      Object.assign(state, newLeaseState(), { sequence: message.sequence });
    } else table.read(slot, state);
    if (!applyAnswer(state, message, answer, { sentMs, nowMs }, leases)) {
      table.release(lock);
      return false;
    }
    // The reports of machines that are well come sooner.
    const isSlow = answer.isUnknown && checks.some(({ parkedMs }) => parkedMs !== 0);
    if (isSlow) this.#options.onUnknown();
    const isOver = (waiting: WaitingCheck) => {
      if (!answer.isUnknown) return isParkingOver(waiting, nowMs);
      return nowMs - waiting.queuedMs >= this.#options.recoveryParkMs;
    };
    if (message.inherits > 0) state.isInherited = false;
    const isLate = hasLateUsage(message, state);
    const unproven: WaitingCheck[] = [];
    const replies: [WaitingCheck, ReplyDecision][] = [];
    let isCancelled = false;
    let reserved = 0;
    for (const [at, waiting] of checks.entries()) {
      const served = answer.served[at];
      const { check, entry, source } = waiting;
      if (served === SERVED.unproven && !isOver(waiting)) {
        unproven.push(waiting);
        continue;
      }
      if (!source.claim(entry.number)) {
        // The acceptor has decided it by itself. Its tokens go back with the next message.
        isCancelled ||= served === SERVED.allowed;
        continue;
      }
      const allowed = served === SERVED.allowed;
      if (allowed) {
        if (waiting.isReserve && slot !== NO_LEASE_SLOT) {
          restrictLease(state, reserved, check);
          reserved += check.cost;
        } else state.spent += check.cost;
        if (check.cost > 0) state.lastLimit = check.limit;
      } else if (check.countsDenied) state.spent += check.cost;
      if (served === SERVED.unproven) {
        const { recoveryDenials, unprovenDenials } = WORKER_STAT;
        stats.add(answer.isUnknown ? recoveryDenials : unprovenDenials, 1);
      }
      const isShared = served === SERVED.shared;
      if (allowed && answer.isMissing) stats.addOpenedTokens(counter.namespaceTag, check.cost);
      replies.push([
        waiting,
        decisionOf(state, reserved, answer, entry.parameters, allowed, isShared),
      ]);
    }
    state.isPinned = false;
    if (counter.isWoken) this.#endBound(state, nowMs);
    counter.isWoken = false;
    if (slot !== NO_LEASE_SLOT) {
      table.write(slot, state);
      table.addReserved(slot, reserved);
      if (isLate || isCancelled) table.setDirty(lock, slot, true);
    }
    table.release(lock);
    for (const [{ source, entry }, decision] of replies) source.reply(entry.number, decision);
    stats.add(WORKER_STAT.decisions, replies.length);
    stats.add(WORKER_STAT.leasesWrittenOff, answer.writtenOff);
    if (answer.report !== 0) {
      counter.report = answer.report;
      counter.retryMs = nowMs;
    }
    if (answer.lent > 0) {
      if (answer.isMissing) stats.addOpenedTokens(counter.namespaceTag, answer.lent);
      stats.add(WORKER_STAT.leasesGranted, 1);
      stats.add(WORKER_STAT.leasedTokens, answer.lent);
    }
    const isNewDeadline = answer.lent > 0 || (answer.pauseMs > 0 && state.lease > 0);
    if (message.isSliding && isNewDeadline) {
      this.#options.onSlidingLease(identity, key, state.deadlineMs);
    }
    correction?.resolve(answer);
    this.#park(counter, unproven, nowMs, answer.isUnknown);
    if (isReturn && message.kept > 0) this.#returnLater(identity, key);
    // A recall that the message had not answered yet, because Redis sent it afterwards.
    const isUnsettled = state.lease > 0 || state.spent !== message.spent;
    if (counter.isRecalled && isUnsettled) counter.mustReturn = true;
    counter.isRecalled = false;
    return true;
  }

  /** The fate of a message is unknown, or its answer is worthless. */
  #onNothingDone(counter: ActiveCounter, sent: SentMessage, nowMs: number): void {
    const table = this.#options.tableOf(counter.identity);
    const lock = table.lockFor(counter.identity);
    table.acquire(lock);
    const slot = table.find(counter.identity, counter.key);
    if (slot !== NO_LEASE_SLOT) {
      table.read(slot, this.#state);
      this.#state.isPinned = false;
      table.write(slot, this.#state);
      table.setDirty(lock, slot, true);
    }
    table.release(lock);
    sent.correction?.resolve(undefined);
    if (counter.isRecalled) counter.mustReturn = true;
    counter.isRecalled = false;
    counter.isWoken = false;
    counter.waiting.unshift(
      ...sent.checks.filter(({ source, entry }) => source.isOpen(entry.number)),
    );
    counter.retryMs = nowMs + RETRY_MS;
  }

  /** Returns what a pending batch has kept of a recalled lease, when it is over. */
  #returnLater(identity: Identity, key: number): void {
    const timer = setTimeout(() => {
      this.#returnTimers.delete(timer);
      this.returnLease(identity, key);
    }, RETURN_KEPT_MS);
    this.#returnTimers.add(timer);
  }

  /** Keeps checks that cannot be decided yet. */
  #park(
    counter: ActiveCounter,
    checks: readonly WaitingCheck[],
    nowMs: number,
    isUnknown: boolean,
  ): void {
    if (checks.length === 0) return;
    for (const waiting of checks) {
      if (waiting.parkedMs === 0) waiting.parkedMs = nowMs;
      const endMs = isUnknown
        ? waiting.queuedMs + this.#options.recoveryParkMs
        : waiting.parkedMs + PARK_MS;
      const isLong = isUnknown && nowMs - waiting.parkedMs > UNKNOWN_RETRY_MS;
      const retryMs = nowMs + (isLong ? UNKNOWN_RETRY_MS : RETRY_MS);
      counter.retryMs = Math.min(counter.retryMs, retryMs, Math.max(nowMs, endMs));
    }
    counter.waiting.unshift(...checks);
  }

  /** After a message: sends the next one, or waits until it is due. */
  #queueAgain(counter: ActiveCounter, nowMs: number): void {
    if (counter.isReady(nowMs)) this.#queue(counter);
    else this.#settle(counter, nowMs);
  }

  #settle(counter: ActiveCounter, nowMs: number): void {
    if (counter.isIdle()) {
      this.#counters.delete(counter.name);
      this.#parked.delete(counter);
    } else if (counter.sent === undefined && counter.waiting.length > 0) {
      this.#parked.add(counter);
      this.#retryTimer ??= setTimeout(
        () => this.#retry(),
        Math.max(1, Math.min(counter.retryMs - nowMs, RETRY_MS)),
      );
    }
  }

  #retry(): void {
    this.#retryTimer = undefined;
    const nowMs = this.#options.nowMs();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const counter of this.#parked) {
      if (counter.sent !== undefined || counter.waiting.length === 0) this.#parked.delete(counter);
      else if (nowMs >= counter.retryMs) this.#queue(counter);
      else nextMs = Math.min(nextMs, counter.retryMs);
    }
    this.flush();
    if (nextMs === Number.POSITIVE_INFINITY) return;
    this.#retryTimer ??= setTimeout(() => this.#retry(), Math.max(1, nextMs - nowMs));
  }

  #counterOf(identity: Identity, key: number, namespaceTag: number): ActiveCounter {
    const name = nameOf(identity, key);
    let counter = this.#counters.get(name);
    if (counter === undefined) {
      const bucket = this.#options.bucketOf(identity);
      counter = new ActiveCounter(name, identity, key, bucket, namespaceTag);
      this.#counters.set(name, counter);
    }
    if (namespaceTag !== 0) counter.namespaceTag = namespaceTag;
    return counter;
  }

  /** Looks at a counter at the end of this turn. */
  #queue(counter: ActiveCounter): void {
    this.#parked.delete(counter);
    let ready = this.#ready.get(counter.bucket);
    if (ready === undefined) {
      ready = new Set();
      this.#ready.set(counter.bucket, ready);
    }
    ready.add(counter);
    this.#flushTimer ??= setImmediate(() => this.flush());
  }
}

function nameOf({ h0, h1, h2, h3 }: Identity, key: number): string {
  return `${h0},${h1},${h2},${h3},${key}`;
}

/** Takes the checks of the next message. */
function takeChecks(counter: ActiveCounter): WaitingCheck[] {
  const checks = counter.waiting.splice(0, CHECKS_PER_MESSAGE);
  for (const check of checks) check.wasSent = true;
  return checks;
}

/** Whether a check that was denied without proof has waited long enough. */
function isParkingOver({ parkedMs }: WaitingCheck, nowMs: number): boolean {
  return parkedMs !== 0 && nowMs - parkedMs >= PARK_MS;
}

/** Reserved tokens may become a part of the lease, which then serves no more than both do. */
function restrictLease(state: LeaseState, reservedNow: number, check: TokenCheck): void {
  const isAlone = state.lease === 0 && state.reserved + reservedNow === 0;
  state.lentLimit = isAlone ? check.limit : Math.max(state.lentLimit, check.limit);
  state.coversSliding = check.isSliding && (isAlone || state.coversSliding);
}

/** The decision of Redis about a check, after its cost was counted. */
function decisionOf(
  state: LeaseState,
  reserved: number,
  answer: CounterAnswer,
  check: Readonly<CheckParameters>,
  allowed: boolean,
  isShared: boolean,
): ReplyDecision {
  const { limit, durationMs, rule } = check;
  const { previousUse, leftUs } = answer;
  const isSliding = rule === RULE.sliding;
  const carried = isSliding ? share(previousUse, leftUs, durationMs * 1_000) : 0;
  const used = state.othersDeducted + state.spent + state.reserved + reserved;
  const reset = (state.window + 1) * durationMs;
  let outcome: number = OUTCOME.decided;
  if (!allowed && answer.wasWrittenOff) outcome = OUTCOME.doubted;
  else if (isShared) outcome = OUTCOME.shared;
  let passesAt = allowed ? 0 : passesAtOfDenied(used, answer, check, reset);
  // Other machines use what they hold by then, or return it.
  if (isShared) passesAt = Math.min(passesAt, decidedMsOf(answer, reset) + SHARED_LEASE_MS);
  return {
    allowed,
    remaining: !allowed && isSliding ? 0 : Math.max(0, limit - used - carried),
    reset,
    passesAt,
    outcome,
  };
}

/** Not before the decision: tokens that Redis saw as used may have been returned since. */
function passesAtOfDenied(
  used: number,
  answer: CounterAnswer,
  check: Readonly<CheckParameters>,
  reset: number,
): number {
  const passesAt = passesAtInWindow(used, answer.previousUse, check, reset);
  return Math.max(decidedMsOf(answer, reset), passesAt);
}

/** By the clock of Redis. */
function decidedMsOf({ leftUs }: CounterAnswer, reset: number): number {
  return reset - Math.floor(leftUs / 1_000);
}
