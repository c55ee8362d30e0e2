/**
 * Decides the GCRA checks of a shard worker. There are no leases: each check is decided by Redis,
 * up to MESSAGES_PER_CALL in a call.
 *
 * A check whose call has no answer may have been counted. It is not sent again; its acceptor
 * decides it without Redis. Tokens of a check that its acceptor has withdrawn are refunded. Tokens
 * that were allowed without Redis stay unreported until Redis has answered: a report that is lost,
 * or whose worker dies, is sent again, and at worst counts them twice.
 */

import { NEVER, OUTCOME } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { RULE } from '../../core/window-rules.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import type { QueueEntry } from '../queue/check-queue-consumer.ts';
import { NO_SLOT } from '../table/layout.ts';
import { counterKey, durationOfKey } from '../windows/registry.ts';
import type { CallResult } from './bucket-calls.ts';
import { ENTRY_KIND } from './entry-kinds.ts';
import { type CheckSource, nameOfCounter } from './lease-client.ts';
import type { LeaseTable } from './lease-table.ts';
import type { GcraCallAnswer } from './scripts/gcra.ts';
import {
  type GcraAnswer,
  type GcraMessage,
  type GcraReport,
  type GcraState,
  MESSAGE_STATUS,
} from './scripts/protocol.ts';
import { CORRECTION_REPEAT_MS, MESSAGES_PER_CALL, RETRY_MS } from './scripts/protocol-constants.ts';

const never = () => false;

export interface GcraClientOptions {
  tableOf: (identity: Identity) => LeaseTable;
  bucketOf: (identity: Identity) => number;
  send: (
    bucket: number,
    messages: (GcraMessage | GcraReport)[],
  ) => Promise<CallResult<GcraCallAnswer>>;
  /** Called after decisions were sent in a turn of their own. */
  onReplies: () => void;
  /** A monotonic clock. */
  nowMs: () => number;
  stats: WorkerStats;
  /** How long a check waits until usage that Redis has lost is reported, before it is denied. */
  recoveryParkMs: number;
}

interface WaitingMessage {
  queuedMs: number;
  message: GcraMessage | GcraReport;
  /** Whether it is sent again when nothing was done. */
  isWanted: () => boolean;
  /** @param answer undefined: there is none */
  onAnswer: (answer: GcraAnswer | undefined) => void;
}

export class GcraClient {
  readonly #options: GcraClientOptions;
  /** By bucket. */
  readonly #waiting = new Map<number, WaitingMessage[]>();
  /** The reports of tokens that are under way, by counter. */
  readonly #syncs = new Map<string, Promise<boolean>>();
  readonly #retryTimers = new Set<NodeJS.Timeout>();
  #flushTimer: NodeJS.Immediate | undefined;

  constructor(options: GcraClientOptions) {
    this.#options = options;
  }

  /** Takes over a check of the queue. */
  addCheck(source: CheckSource, entry: QueueEntry): void {
    const { identity, kind, number, namespaceTag, parameters } = entry;
    const { limit, burst, durationMs, cost } = parameters;
    const countsDenied = kind === ENTRY_KIND.countedTokens;
    const known = this.#bucketOf(identity, durationMs);
    const message = { identity, durationMs, limit, burst, cost, countsDenied, known };
    const isWanted = () => source.isOpen(number);
    this.#add(message, isWanted, (answer) => {
      if (answer === undefined || answer.status === MESSAGE_STATUS.full) {
        source.dropRepeated(number);
        return;
      }
      if (answer.isMissing && answer.isAllowed) {
        this.#options.stats.addOpenedTokens(namespaceTag, cost);
      }
      if (answer.status === MESSAGE_STATUS.done)
        this.#keep(identity, namespaceTag, message, answer);
      if (!source.claim(number)) {
        if (answer.isAllowed && cost > 0) void this.refund(identity, durationMs, cost);
        return;
      }
      const { isAllowed: allowed, remaining, reset, status } = answer;
      if (status === MESSAGE_STATUS.recovering) {
        this.#options.stats.add(WORKER_STAT.recoveryDenials, 1);
      }
      this.#options.stats.add(WORKER_STAT.decisions, 1);
      const passesAt = allowed ? 0 : cost > Math.min(burst, limit) ? NEVER : reset;
      source.reply(number, { allowed, remaining, reset, passesAt, outcome: OUTCOME.decided });
    });
  }

  /** @returns the answer; undefined: there is none, and it may have been done */
  refund(identity: Identity, durationMs: number, cost: number): Promise<GcraAnswer | undefined> {
    const { nowMs } = this.#options;
    const known = this.#bucketOf(identity, durationMs);
    const nothing = { limit: 0, burst: 0, countsDenied: false };
    const message = { identity, durationMs, ...nothing, cost: -cost, known };
    const endMs = nowMs() + CORRECTION_REPEAT_MS;
    return new Promise((resolve) => this.#add(message, () => nowMs() < endMs, resolve));
  }

  /** Reports tokens that were allowed without Redis. @returns whether it has got them */
  sync(identity: Identity, key: number): Promise<boolean> {
    const name = nameOfCounter(identity, key);
    // Redis would count tokens twice that are reported twice.
    const underWay = this.#syncs.get(name);
    if (underWay !== undefined) return underWay.then(() => this.sync(identity, key));
    const sync = this.#sync(identity, key).finally(() => this.#syncs.delete(name));
    this.#syncs.set(name, sync);
    return sync;
  }

  #sync(identity: Identity, key: number): Promise<boolean> {
    const table = this.#options.tableOf(identity);
    let tokens = 0;
    let limit = 0;
    table.withSlot(identity, key, (slot, lock) => {
      tokens = table.readUnreported(slot);
      limit = table.readLastLimit(slot);
      if (tokens === 0) table.setDirty(lock, slot, false);
    });
    if (tokens === 0) return Promise.resolve(true);
    const durationMs = durationOfKey(key);
    const cost = Math.min(tokens, limit);
    const message = { identity, durationMs, limit, burst: limit, cost, countsDenied: true };
    return this.#report(message, key, tokens);
  }

  /** Reports a bucket to a Redis that has lost it. @returns whether Redis has got it */
  report(identity: Identity, key: number): Promise<boolean> {
    const table = this.#options.tableOf(identity);
    let state: GcraState | undefined;
    // The bucket contains the tokens that were allowed without Redis.
    let tokens = 0;
    table.withSlot(identity, key, (slot) => {
      state = table.readGcra(slot);
      tokens = table.readUnreported(slot);
    });
    if (state === undefined || state.newest <= 0 || state.limit <= 0) return Promise.resolve(true);
    return this.#report({ identity, durationMs: durationOfKey(key), ...state }, key, tokens);
  }

  /**
   * Sends a report once.
   * @param tokens that are unreported until Redis has got it
   * @returns whether Redis has got it
   */
  #report(message: GcraMessage | GcraReport, key: number, tokens: number): Promise<boolean> {
    const { identity } = message;
    const table = this.#options.tableOf(identity);
    return new Promise((resolve) => {
      this.#add(message, never, (answer) => {
        if (answer?.status !== MESSAGE_STATUS.done) {
          resolve(false);
          return;
        }
        table.withSlot(identity, key, (slot, lock) => {
          const left = Math.max(0, table.readUnreported(slot) - tokens);
          table.setUnreported(slot, left);
          if (left > 0) return;
          table.setDirty(lock, slot, false);
          // The local bucket may have been this machine's share of the limit.
          table.writeGcra(slot, answer.state);
        });
        resolve(true);
      });
    });
  }

  /** The bucket as this machine has last seen it. */
  #bucketOf(identity: Identity, durationMs: number): GcraState | undefined {
    const table = this.#options.tableOf(identity);
    let state: GcraState | undefined;
    table.withSlot(identity, counterKey(RULE.gcra, durationMs), (slot) => {
      // What was allowed without Redis is reported on its own.
      if (table.readUnreported(slot) === 0) state = table.readGcra(slot);
    });
    return state;
  }

  /** Keeps a used bucket, in case that Redis loses it or is down. */
  #keep(identity: Identity, tag: number, message: GcraMessage, answer: GcraAnswer): void {
    if (message.cost === 0 || answer.state.newest <= answer.window) return;
    const { tableOf, nowMs } = this.#options;
    const table = tableOf(identity);
    const key = counterKey(RULE.gcra, message.durationMs);
    table.withLock(identity, () => {
      let slot = table.find(identity, key);
      if (slot === NO_SLOT) slot = table.insert(identity, tag, key, nowMs());
      if (slot === NO_SLOT || table.readUnreported(slot) > 0) return;
      table.writeGcra(slot, answer.state);
    });
  }

  /** Sends what is to be sent. Happens by itself at the end of a turn. */
  flush(): void {
    clearImmediate(this.#flushTimer);
    this.#flushTimer = undefined;
    for (const [bucket, waiting] of this.#waiting) {
      this.#waiting.delete(bucket);
      for (let from = 0; from < waiting.length; from += MESSAGES_PER_CALL) {
        void this.#call(bucket, waiting.slice(from, from + MESSAGES_PER_CALL));
      }
    }
  }

  close(): void {
    clearImmediate(this.#flushTimer);
    for (const timer of this.#retryTimers) clearTimeout(timer);
  }

  async #call(bucket: number, waiting: readonly WaitingMessage[]): Promise<void> {
    const { send, onReplies } = this.#options;
    const result = await send(
      bucket,
      waiting.map(({ message }) => message),
    );
    const answers = result.kind === 'answer' ? result.answer.counters : [];
    const again: WaitingMessage[] = [];
    for (const [at, one] of waiting.entries()) {
      const mustWait = answers[at]?.status === MESSAGE_STATUS.recovering && this.#mayWait(one);
      const isUndone = result.kind === 'refused' || mustWait;
      if (isUndone && one.isWanted()) again.push(one);
      else one.onAnswer(answers[at]);
    }
    if (again.length > 0) this.#retry(again);
    onReplies();
  }

  #mayWait({ queuedMs }: WaitingMessage): boolean {
    const { nowMs, recoveryParkMs } = this.#options;
    return nowMs() - queuedMs < recoveryParkMs;
  }

  /** Sends messages again a little later. */
  #retry(messages: readonly WaitingMessage[]): void {
    const timer = setTimeout(() => {
      this.#retryTimers.delete(timer);
      for (const { message, isWanted, onAnswer, queuedMs } of messages) {
        if (isWanted()) this.#add(message, isWanted, onAnswer, queuedMs);
        else onAnswer(undefined);
      }
      this.flush();
    }, RETRY_MS);
    this.#retryTimers.add(timer);
  }

  #add(
    message: GcraMessage | GcraReport,
    isWanted: WaitingMessage['isWanted'],
    onAnswer: WaitingMessage['onAnswer'],
    queuedMs = this.#options.nowMs(),
  ): void {
    const bucket = this.#options.bucketOf(message.identity);
    const waiting = this.#waiting.get(bucket) ?? [];
    waiting.push({ message, isWanted, onAnswer, queuedMs });
    this.#waiting.set(bucket, waiting);
    this.#flushTimer ??= setImmediate(() => this.flush());
  }
}
