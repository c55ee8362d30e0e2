/**
 * The side of a thread that decides checks: selects decisions, and writes their records. A flood of
 * denials must not push out all other records, so each namespace and the thread have a quota in a
 * period, and all denials of an identifier in a period are one record, which counts them. Of
 * allowed checks, the first one of a namespace in a period is a sample.
 *
 * A check costs a comparison here, unless it is denied or the first of its namespace in a period.
 */

import {
  NAME_MAX_BYTES,
  NAMESPACE_KEY_MAX_BYTES,
  RECENT_DECISIONS,
  RECENT_DENIALS,
  RECENT_DENIALS_MAX,
  RECENT_DENIALS_OF_NAMESPACE,
  RECENT_SAMPLES,
  RECENT_TEXT_BYTES,
} from '../core/constants.ts';
import type { Identity } from '../core/hash.ts';
import { type Namespace, NO_PERIOD } from '../core/namespace.ts';
import { NO_BURST, RULE } from '../core/window-rules.ts';
import type { DecisionEvent } from '../events/decision-event.ts';
import type { Clock } from '../shared-memory/clock.ts';
import {
  attachRecentMemory,
  DOUBLE,
  FLAG,
  NO_RECORD,
  NO_TEXT,
  recordAt,
  TEXT_END,
  textAt,
  WORD,
  WRITTEN,
} from './memory.ts';

/** The identifiers of this period, by hash. Those that share an entry replace each other. */
const SEEN_ENTRIES = 1_024;
const SEEN = { period: 0, h0: 1, h1: 2, limit: 3, duration: 4, number: 5 } as const;
const SEEN_WORDS = 8;

/** Namespaces whose last record is known. */
const NAMESPACES_KNOWN = 16_384;
const OVERRIDE_BYTES_MAX = 64;

/** Texts of so many bytes use the quotas once more. */
const BYTES_OF_QUOTA = RECENT_TEXT_BYTES / RECENT_DECISIONS;

interface NamespaceQuota {
  period: number;
  used: number;
  /** Whether it had a record in the period before. */
  isServed: boolean;
  /** The number of its last record. */
  last: number;
  /** Denials that are not counted on a record yet. */
  leftOut: number;
}

export class RecentDecisionWriter {
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #texts: Buffer;
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #scratch = Buffer.alloc(NAMESPACE_KEY_MAX_BYTES + NAME_MAX_BYTES + OVERRIDE_BYTES_MAX);
  readonly #seen = new Int32Array(SEEN_ENTRIES * SEEN_WORDS);
  readonly #quotas = new Map<object, NamespaceQuota>();
  #period = NO_PERIOD + 1;
  #denials = 0;
  #samples = 0;
  #number: number;
  #textEnd: number;

  constructor(buffer: SharedArrayBuffer, thread: number, clock: Pick<Clock, 'nowMs'>) {
    const { words, doubles, texts } = attachRecentMemory(buffer, thread);
    this.#words = words;
    this.#doubles = doubles;
    this.#texts = texts;
    this.#clock = clock;
    this.#number = Atomics.load(words, WRITTEN);
    this.#textEnd = Atomics.load(words, TEXT_END);
  }

  /** Called every RECENT_PERIOD_MS. */
  beginPeriod(): void {
    this.#period = (this.#period + 1) & 0x3fff_ffff || NO_PERIOD + 1;
    this.#denials = 0;
    this.#samples = 0;
    if (this.#quotas.size > NAMESPACES_KNOWN) this.#quotas.clear();
  }

  /** Whether an allowed check becomes a record. */
  selectsAllowed(namespace: Namespace): boolean {
    if (namespace.sampledPeriod === this.#period) return false;
    namespace.sampledPeriod = this.#period;
    return !namespace.isTransient && this.#samples++ < RECENT_SAMPLES;
  }

  /**
   * Counts a denial on the record of its identifier in this period, if there is one.
   * @param durationMs 0 for a lease
   * @returns whether the denial becomes a record
   */
  selectsDenied(
    namespace: Namespace,
    { h0, h1 }: Identity,
    limit: number,
    durationMs: number,
  ): boolean {
    const seen = this.#seen;
    const at = ((h0 ^ durationMs) & (SEEN_ENTRIES - 1)) * SEEN_WORDS;
    const isSeen =
      seen[at + SEEN.h0] === h0 &&
      seen[at + SEEN.h1] === h1 &&
      seen[at + SEEN.period] === this.#period &&
      seen[at + SEEN.limit] === (limit | 0) &&
      seen[at + SEEN.duration] === (durationMs | 0);
    if (isSeen && this.#repeat(seen[at + SEEN.number])) return false;
    const selects = this.#admit(namespace);
    if (selects) {
      seen[at + SEEN.period] = this.#period;
      seen[at + SEEN.h0] = h0;
      seen[at + SEEN.h1] = h1;
      seen[at + SEEN.limit] = limit;
      seen[at + SEEN.duration] = durationMs;
      // The caller writes it next.
      seen[at + SEEN.number] = this.#nextNumber();
    }
    return selects;
  }

  /** Writes the record of a decision that was selected right before. */
  write(event: DecisionEvent): void {
    const number = this.#nextNumber();
    const at = recordAt(number);
    const [word, double] = [at >> 2, at >> 3];
    const words = this.#words;
    Atomics.exchange(words, word + WORD.number, NO_RECORD);
    const bytes = this.#writeTexts(word, event);
    this.#writeFigures(double, event);
    const { identity, window, lease, policy, isShadow } = event;
    words[word + WORD.flags] =
      (event.isAllowed ? FLAG.allowed : 0) |
      (window === undefined ? 0 : FLAG.window) |
      (lease === undefined ? 0 : FLAG.lease) |
      (policy === undefined ? 0 : FLAG.policy) |
      (isShadow ? FLAG.shadow : 0);
    words[word + WORD.rule] = window?.rule ?? RULE.fixed;
    words[word + WORD.count] = 1;
    words[word + WORD.leftOut] = event.isAllowed ? 0 : this.#useQuota(event, number, bytes);
    words[word + WORD.h0] = identity?.h0 ?? 0;
    words[word + WORD.h1] = identity?.h1 ?? 0;
    words[word + WORD.h2] = identity?.h2 ?? 0;
    words[word + WORD.h3] = identity?.h3 ?? 0;
    words[word + WORD.namespace0] = event.namespace.hashState[0];
    words[word + WORD.namespace1] = event.namespace.hashState[1];
    Atomics.store(words, word + WORD.number, number);
    this.#number = number;
    Atomics.store(words, WRITTEN, number);
  }

  /** @returns the denials that were left out since the record before */
  #useQuota({ namespace }: DecisionEvent, number: number, bytes: number): number {
    const uses = 1 + Math.floor(bytes / BYTES_OF_QUOTA);
    const quota = this.#quotaOf(namespace);
    quota.used += uses;
    this.#denials += uses;
    quota.last = number;
    const { leftOut } = quota;
    quota.leftOut = 0;
    return leftOut;
  }

  /** @returns false if the record was written over */
  #repeat(number: number): boolean {
    const at = recordAt(number);
    const words = this.#words;
    if (words[(at >> 2) + WORD.number] !== number) return false;
    words[(at >> 2) + WORD.count]++;
    this.#doubles[(at >> 3) + DOUBLE.until] = this.#clock.nowMs();
    return true;
  }

  /** Uses the quotas of the namespace and the thread, or counts the denial as left out. */
  #admit(namespace: Namespace): boolean {
    // Nobody may read its records: it is not registered.
    if (namespace.isTransient) return false;
    const quota = this.#quotaOf(namespace);
    const first = quota.isServed ? RECENT_DENIALS_MAX / 2 : RECENT_DENIALS_MAX;
    const hasRoom =
      quota.used === 0
        ? this.#denials < first
        : quota.used < RECENT_DENIALS_OF_NAMESPACE && this.#denials < RECENT_DENIALS;
    if (!hasRoom) this.#leaveOut(quota);
    return hasRoom;
  }

  #quotaOf(namespace: object): NamespaceQuota {
    let quota = this.#quotas.get(namespace);
    if (quota === undefined) {
      const counts = { used: 0, isServed: false, leftOut: 0 };
      quota = { ...counts, period: NO_PERIOD, last: NO_RECORD };
      this.#quotas.set(namespace, quota);
    }
    if (quota.period !== this.#period) {
      quota.isServed = quota.used > 0 && quota.period === this.#period - 1;
      quota.period = this.#period;
      quota.used = 0;
    }
    return quota;
  }

  #leaveOut(quota: NamespaceQuota): void {
    const word = recordAt(quota.last) >> 2;
    const isThere = quota.last !== NO_RECORD && this.#words[word + WORD.number] === quota.last;
    if (isThere) this.#words[word + WORD.leftOut]++;
    else quota.leftOut++;
  }

  /** Numbers of records wrap as int32, and leave out the number of no record. */
  #nextNumber(): number {
    return (this.#number + 1) | 0 || 1;
  }

  /** @returns the bytes of the texts */
  #writeTexts(word: number, { namespace, identifier, overrideId }: DecisionEvent): number {
    const scratch = this.#scratch;
    const words = this.#words;
    const namespaceBytes = scratch.write(namespace.key, 0);
    let end = namespaceBytes;
    words[word + WORD.namespaceBytes] = namespaceBytes;
    words[word + WORD.identifierBytes] = NO_TEXT;
    words[word + WORD.overrideBytes] = NO_TEXT;
    if (identifier !== undefined) {
      const bytes = scratch.write(identifier, end);
      words[word + WORD.identifierBytes] = bytes;
      end += bytes;
    }
    if (overrideId !== undefined) {
      const bytes = scratch.write(overrideId, end);
      words[word + WORD.overrideBytes] = bytes;
      end += bytes;
    }
    // Texts of a record are in one piece.
    const left = RECENT_TEXT_BYTES - textAt(this.#textEnd);
    const from = left < end ? this.#textEnd + left : this.#textEnd;
    this.#textEnd = (from + end) | 0;
    Atomics.exchange(words, TEXT_END, this.#textEnd);
    words[word + WORD.textFrom] = from;
    scratch.copy(this.#texts, textAt(from), 0, end);
    return end;
  }

  #writeFigures(double: number, { cost, window, lease }: DecisionEvent): void {
    const doubles = this.#doubles;
    const nowMs = this.#clock.nowMs();
    doubles[double + DOUBLE.time] = nowMs;
    doubles[double + DOUBLE.until] = nowMs;
    doubles[double + DOUBLE.cost] = cost;
    doubles[double + DOUBLE.limit] = window?.limit ?? lease?.limit ?? 0;
    doubles[double + DOUBLE.duration] = window?.durationMs ?? 0;
    doubles[double + DOUBLE.remaining] = window?.remaining ?? lease?.inUse ?? 0;
    doubles[double + DOUBLE.reset] = window?.reset ?? 0;
    doubles[double + DOUBLE.burst] = window?.burst ?? NO_BURST;
  }
}
