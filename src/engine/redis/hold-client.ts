/**
 * The reservations and leases of a shard worker, all of which are in Redis. Every call may be
 * repeated until it has an answer. The worker ends holds that have expired, its own when they
 * expire and those of other machines soon after. No sum has a lease that has expired, also before a
 * worker ends it. The worker reports the holds that it has begun or renewed to a Redis that has
 * lost its memory.
 */

import type { Identity } from '../../core/hash.ts';
import { RULE } from '../../core/window-rules.ts';
import { WORKER_STAT, type WorkerStats } from '../../shared-memory/stats.ts';
import { counterKey } from '../windows/registry.ts';
import type { BucketCalls, CallResult } from './bucket-calls.ts';
import { type HoldAction, Unchanged, type WorkerResult } from './port-messages.ts';
import type {
  BeginHold,
  EndHold,
  EndHolds,
  HoldAnswer,
  HoldName,
  HoldsAnswer,
  HoldTerms,
} from './scripts/holds.ts';
import { nameOfHold } from './scripts/keys.ts';
import {
  CORRECTION_REPEAT_MS,
  EXPIRE_PAUSE_MS,
  EXPIRE_POLL_MS,
  KNOWN_HOLDS_MAX,
  SETTLE_RETRY_MS,
} from './scripts/protocol-constants.ts';
import { HOLD_STATUS } from './scripts/records.ts';

/** How often known holds that have expired are forgotten. */
const FORGET_INTERVAL_MS = 10_000;
/** Holds whose reports are under way at the same time. */
const REPORTS_AT_ONCE = 64;

/** What the record of a lease has in place of a check. */
export const WITHOUT_CHECK = {
  ...{ durationMs: 0, rule: RULE.fixed, window: 0, reservedUs: 0, chargesAtExpiry: false },
  others: [],
} as const;

export interface HoldClientOptions {
  /** By bucket. */
  buckets: readonly Pick<BucketCalls, 'beginHold' | 'endHold' | 'endHolds' | 'hasJoined'>[];
  stats: WorkerStats;
  /** A monotonic clock. */
  nowMs: () => number;
  /** Unix time by the clock of a bucket, at least. */
  redisMs: (bucket: number, nowMs: number) => number;
  /** Whether nothing can be sent to a bucket. */
  isDown: (bucket: number) => boolean;
  /** Called when tokens of a counter were returned, or charged. */
  onSettled: (identity: Identity, key: number) => void;
  /** Whether this worker ends holds that others have begun. One of a machine does. */
  pollsOthers: boolean;
}

/** A hold that this worker has begun or renewed, and that is not known to have ended. */
interface KnownHold {
  terms: HoldTerms;
  expiresAt: number;
}

export class HoldClient {
  readonly #options: HoldClientOptions;
  /** By bucket and name, in the order in which they were begun. */
  readonly #known = new Map<string, KnownHold>();
  /** Holds that may have begun, but no client gets: dropped when Redis answers again. */
  readonly #abandoned = new Set<HoldName>();
  /** By bucket. */
  readonly #expiryTimers: (NodeJS.Timeout | undefined)[];
  readonly #timers: NodeJS.Timeout[] = [];
  #isClosed = false;

  constructor(options: HoldClientOptions) {
    this.#options = options;
    this.#expiryTimers = options.buckets.map(() => undefined);
  }

  start(): void {
    const { buckets, isDown, pollsOthers } = this.#options;
    this.#timers.push(setInterval(() => this.#forgetExpired(), FORGET_INTERVAL_MS));
    this.#timers.push(setInterval(() => void this.#dropAbandoned(), EXPIRE_POLL_MS));
    if (!pollsOthers) return;
    const poll = () => {
      for (const [bucket, { hasJoined }] of buckets.entries()) {
        if (hasJoined && !isDown(bucket)) void this.#expire(bucket);
      }
    };
    this.#timers.push(setInterval(poll, EXPIRE_POLL_MS));
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#timers) clearInterval(timer);
    for (const timer of this.#expiryTimers) clearTimeout(timer);
  }

  async act(action: HoldAction): Promise<WorkerResult> {
    switch (action.kind) {
      case 'beginHold':
        return { kind: action.kind, answer: await this.#begin(action.call) };
      case 'endHold':
        return { kind: action.kind, answer: await this.#end(action.call) };
      case 'endHolds':
        return { kind: action.kind, answer: await this.#endAll(action.call) };
    }
  }

  /** Reports the live holds that this worker knows of a bucket. @returns whether Redis has all */
  async report(bucket: number): Promise<boolean> {
    const { buckets } = this.#options;
    this.#forgetExpired();
    const known = [...this.#known.values()].filter(({ terms }) => terms.bucket === bucket);
    for (let from = 0; from < known.length; from += REPORTS_AT_ONCE) {
      const results = await Promise.all(
        known.slice(from, from + REPORTS_AT_ONCE).map(({ terms, expiresAt }) => {
          return buckets[bucket].beginHold({ operation: 'report', terms, expiresAt });
        }),
      );
      if (results.some(({ kind }) => kind !== 'answer')) return false;
    }
    return true;
  }

  async #begin(call: BeginHold): Promise<HoldAnswer> {
    const { buckets, stats } = this.#options;
    const { terms } = call;
    const begun = this.#repeat(terms.bucket, () => buckets[terms.bucket].beginHold(call));
    const answer = await begun.catch((error) => {
      if (!(error instanceof Unchanged)) this.#abandoned.add(terms);
      throw error;
    });
    // A lease is denied while leases may be missing, as checks are.
    if (answer.holdStatus === HOLD_STATUS.recovering) stats.add(WORKER_STAT.recoveryDenials, 1);
    if (answer.isGranted) this.#remember(terms, answer.expiresAt);
    return answer;
  }

  async #end(call: EndHold): Promise<HoldAnswer> {
    const { buckets } = this.#options;
    const { name, operation } = call;
    const answer = await this.#repeat(name.bucket, () => buckets[name.bucket].endHold(call));
    if (answer.holdStatus === HOLD_STATUS.recovering) throw new Unchanged(RECOVERS);
    if (operation !== 'find' && operation !== 'renew') this.#known.delete(keyOf(name));
    if (operation === 'settle' && answer.identity !== undefined) {
      this.#options.onSettled(answer.identity, counterKey(answer.rule, answer.durationMs));
    }
    if (operation === 'renew' && answer.isGranted) this.#rememberLease(name, answer);
    return answer;
  }

  async #endAll(call: EndHolds): Promise<HoldsAnswer> {
    const { bucket } = call;
    // Leases are ended by several calls, if there are many.
    let count = 0;
    const answer = await this.#repeat(bucket, async () => {
      const result = await this.#options.buckets[bucket].endHolds(call);
      if (result.kind === 'answer') count += result.answer.count;
      return result;
    });
    return { ...answer, count };
  }

  /**
   * Calls until Redis has answered for the hold.
   * @throws Error after CORRECTION_REPEAT_MS; Unchanged if nothing can have been done
   */
  async #repeat<Answer extends HoldAnswer>(
    bucket: number,
    call: () => Promise<CallResult<Answer>>,
  ): Promise<Answer> {
    const { nowMs, isDown } = this.#options;
    const endMs = nowMs() + CORRECTION_REPEAT_MS;
    let mayBeDone = false;
    while (!isDown(bucket)) {
      const isLast = nowMs() >= endMs;
      const result = await call();
      if (result.kind === 'unknown') mayBeDone = true;
      if (result.kind === 'answer') {
        const { answer } = result;
        this.#onAnswer(bucket, answer);
        if (answer.holdStatus === HOLD_STATUS.again) {
          mayBeDone = true;
          if (isLast) break;
          continue;
        }
        if (answer.holdStatus !== HOLD_STATUS.recovering || isLast) return answer;
      }
      if (isLast) break;
      await pause(SETTLE_RETRY_MS);
    }
    const reason = isDown(bucket) ? 'Redis is not reachable' : 'Redis did not answer in time';
    throw mayBeDone ? new Error(reason) : new Unchanged(reason);
  }

  /** Learns when the next hold of a bucket expires, to end it then. */
  #onAnswer(bucket: number, { expired, nextMs }: HoldAnswer): void {
    const { stats, redisMs, nowMs, pollsOthers } = this.#options;
    if (expired > 0) stats.add(WORKER_STAT.holdsExpired, expired);
    clearTimeout(this.#expiryTimers[bucket]);
    if (nextMs === 0 || this.#isClosed) return;
    const leftMs = nextMs - redisMs(bucket, nowMs());
    // A poll learns it again before.
    if (pollsOthers && leftMs > EXPIRE_POLL_MS) return;
    const waitMs = Math.max(EXPIRE_PAUSE_MS, leftMs);
    this.#expiryTimers[bucket] = setTimeout(() => void this.#expire(bucket), waitMs);
  }

  async #expire(bucket: number): Promise<void> {
    const result = await this.#options.buckets[bucket].endHolds({ operation: 'expire', bucket });
    if (result.kind === 'answer') this.#onAnswer(bucket, result.answer);
  }

  /** A call that has no answer may still be on its way to Redis, which then makes no hold of it. */
  async #dropAbandoned(): Promise<void> {
    const { buckets, isDown } = this.#options;
    for (const name of this.#abandoned) {
      if (isDown(name.bucket)) continue;
      const result = await buckets[name.bucket].endHold({ operation: 'drop', name, cost: 0 });
      if (result.kind === 'answer') this.#abandoned.delete(name);
    }
  }

  #remember(terms: HoldTerms, expiresAt: number): void {
    this.#known.set(keyOf(terms), { terms, expiresAt });
    if (this.#known.size <= KNOWN_HOLDS_MAX) return;
    const [oldest] = this.#known.keys();
    this.#known.delete(oldest);
  }

  /** Remembers a renewed lease, which may be that of another machine. */
  #rememberLease(name: HoldName, { identity, namespace, limit, charged, expiresAt }: HoldAnswer) {
    if (identity === undefined) return;
    const terms = { ...name, identity, namespace, limit, tokens: charged };
    this.#remember({ ...terms, ...WITHOUT_CHECK }, expiresAt);
  }

  #forgetExpired(): void {
    const { redisMs, nowMs } = this.#options;
    const now = nowMs();
    for (const [key, { terms, expiresAt }] of this.#known) {
      if (expiresAt <= redisMs(terms.bucket, now)) this.#known.delete(key);
    }
  }
}

const RECOVERS = 'Redis has lost memory, and recovers';

function keyOf({ kind, bucket, secret, number }: HoldName): string {
  return `${bucket}.${nameOfHold(kind, secret, number)}`;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
