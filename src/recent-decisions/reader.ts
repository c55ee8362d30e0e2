/**
 * The side of the main thread: reads the recent decisions of all threads, on request only. It takes
 * no copy, so that it needs no memory; a record that is written over meanwhile is left out. The
 * counts of a record, and the time of its last denial, may be older than the rest by an instruction
 * of the thread, and grow until its period ends.
 */

import { BLOCK_ID_PREFIX, RECENT_DECISIONS, RECENT_TEXT_BYTES } from '../core/constants.ts';
import type { Hasher, Identity } from '../core/hash.ts';
import { newIdentity } from '../core/hash.ts';
import { isRule, RULE, type RuleNumber } from '../core/window-rules.ts';
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

/** Times are Unix ms. */
export interface RecentDecision {
  /** Of this run of weir. */
  id: string;
  timeMs: number;
  /** Of the last decision that the record counts. */
  untilMs: number;
  /** See `namespaceKey`. */
  namespaceKey: string;
  /** Undefined for a gateway check whose policy found no identifier. */
  identifier: string | undefined;
  isAllowed: boolean;
  /** Denials of the identifier from `timeMs` to `untilMs`; 1 for an allowed check. */
  count: number;
  /** Denials of the namespace on the same thread without a record: see `WORD.leftOut`. */
  leftOut: number;
  cost: number;
  /** Undefined where no counter decided. */
  window: RecentWindow | undefined;
  /** Of a request for a lease, in place of the window. */
  lease: { limit: number; inUse: number } | undefined;
  overrideId: string | undefined;
  source: LimitSource;
  /** Whether the policy of the namespace made the check. */
  isOfPolicy: boolean;
  /** Whether the denied request passed. */
  isShadow: boolean;
}

export interface RecentWindow {
  limit: number;
  durationMs: number;
  remaining: number;
  reset: number;
  rule: RuleNumber;
  /** NO_BURST where the limit is the burst. */
  burst: number;
}

/** Which records are wanted. A field that is undefined selects all. */
export interface RecentFilter {
  /** See `namespaceKey`. */
  isNamespace?: ((key: string) => boolean) | undefined;
  identifier?: string | undefined;
  /** Selects identifiers that begin with it, in place of `identifier`. */
  identifierPrefix?: string | undefined;
  /** The hash of a namespace and an identifier. */
  identity?: Identity | undefined;
  isAllowed?: boolean | undefined;
  overrideId?: string | undefined;
  source?: LimitSource | undefined;
  /** Unix ms; the end is exclusive. */
  startMs?: number | undefined;
  endMs?: number | undefined;
}

/** What set the limit of a decision. */
export const LIMIT_SOURCES = ['block', 'override', 'policy', 'request'] as const;
export type LimitSource = (typeof LIMIT_SOURCES)[number];

/** A record that was found. What it says is decoded by `read` only. */
interface FoundRecord {
  timeMs: number;
  isAllowed: boolean;
  /** As in `RecentDecision`. */
  leftOut: number;
  /** A number for the namespace, by which its records are told from those of others. */
  namespaceHash: number;
  thread: ThreadDecisions;
  number: number;
}

export class RecentDecisions {
  readonly #threads: readonly ThreadDecisions[];
  readonly #hasher: Pick<Hasher, 'namespace' | 'hash'>;
  readonly #startedMs: number;

  /** @param buffers by thread @param startedMs when weir started, Unix ms */
  constructor(
    buffers: readonly SharedArrayBuffer[],
    hasher: Pick<Hasher, 'namespace' | 'hash'>,
    startedMs: number,
  ) {
    this.#threads = buffers.map((buffer, thread) => new ThreadDecisions(buffer, thread));
    this.#hasher = hasher;
    this.#startedMs = startedMs;
  }

  /** Unix ms: no record of a later decision was written over. */
  get sinceMs(): number {
    return Math.max(this.#startedMs, ...this.#threads.map((thread) => thread.sinceMs));
  }

  /** @param key see `namespaceKey` */
  identityOf(key: string, identifier: string): Identity {
    return this.#hasher.hash(this.#hasher.namespace(key), identifier, newIdentity());
  }

  /** The records of all threads, the newest first. */
  *find(filter: RecentFilter): Iterable<FoundRecord> {
    const sources = this.#threads.map((thread) => thread.newestFirst(filter));
    const heads = sources.map((source) => source.next().value);
    for (;;) {
      let newest = -1;
      for (const [number, head] of heads.entries()) {
        if (head && head.timeMs > (heads[newest]?.timeMs ?? Number.NEGATIVE_INFINITY)) {
          newest = number;
        }
      }
      const record = heads[newest];
      if (!record) return;
      yield record;
      heads[newest] = sources[newest].next().value;
    }
  }

  /** The same by thread, for work in parts: of each, the newest first. */
  findByThread(filter: RecentFilter): Iterable<FoundRecord>[] {
    return this.#threads.map((thread) => thread.newestFirst(filter));
  }

  /** @returns undefined if the record was written over meanwhile */
  read({ thread, number }: FoundRecord): RecentDecision | undefined {
    return thread.read(number);
  }

  /** The decoded records, the newest first. */
  *decisions(filter: RecentFilter): Iterable<RecentDecision> {
    for (const found of this.find(filter)) {
      const decision = this.read(found);
      if (decision !== undefined) yield decision;
    }
  }
}

class ThreadDecisions {
  readonly #thread: number;
  readonly #words: Int32Array;
  readonly #doubles: Float64Array;
  readonly #texts: Buffer;

  constructor(buffer: SharedArrayBuffer, thread: number) {
    const { words, doubles, texts } = attachRecentMemory(buffer, thread);
    this.#thread = thread;
    this.#words = words;
    this.#doubles = doubles;
    this.#texts = texts;
  }

  /** The time of the oldest record if older ones were written over, else -Infinity. */
  get sinceMs(): number {
    let sinceMs = Number.NEGATIVE_INFINITY;
    for (const number of this.#numbers()) {
      sinceMs = this.#doubles[(recordAt(number) >> 3) + DOUBLE.time];
    }
    return this.#isReadable(1) ? Number.NEGATIVE_INFINITY : sinceMs;
  }

  *newestFirst(filter: RecentFilter): Generator<FoundRecord, undefined> {
    const { startMs = Number.NEGATIVE_INFINITY, endMs = Number.POSITIVE_INFINITY } = filter;
    const matches = this.#matcherOf(filter);
    for (const number of this.#numbers()) {
      const at = recordAt(number);
      const timeMs = this.#doubles[(at >> 3) + DOUBLE.time];
      if (timeMs < startMs) return;
      if (timeMs >= endMs || !matches(at >> 2)) continue;
      const word = (name: keyof typeof WORD) => this.#words[(at >> 2) + WORD[name]];
      const isAllowed = (word('flags') & FLAG.allowed) !== 0;
      // 53 bits of the hash.
      const namespaceHash = (word('namespace0') >>> 0) * 2 ** 21 + (word('namespace1') >>> 11);
      const leftOut = word('leftOut');
      // Otherwise what was read may be of two records, and older ones are written over too.
      if (!this.#isStillReadable(number)) return;
      yield { timeMs, isAllowed, leftOut, namespaceHash, thread: this, number };
    }
  }

  /** The numbers of the records that are not written over, the newest first. */
  *#numbers(): Iterable<number> {
    let number = Atomics.load(this.#words, WRITTEN);
    for (let count = 0; count < RECENT_DECISIONS; count++) {
      if (number === NO_RECORD) number = -1;
      if (!this.#isReadable(number)) return;
      yield number;
      number = (number - 1) | 0;
    }
  }

  /** Decodes texts only where nothing else tells. */
  #matcherOf(filter: RecentFilter): (word: number) => boolean {
    const { identity, isAllowed, source, isNamespace } = filter;
    const words = this.#words;
    const isPrefix = filter.identifierPrefix !== undefined;
    const text = filter.identifierPrefix ?? filter.identifier;
    const identifier = text === undefined ? undefined : Buffer.from(text);
    const override = filter.overrideId === undefined ? undefined : Buffer.from(filter.overrideId);
    /** By the hash of the namespace. */
    const namespaces = new Map<string, boolean>();
    const isWantedNamespace = (word: number): boolean => {
      if (isNamespace === undefined) return true;
      const hash = `${words[word + WORD.namespace0]} ${words[word + WORD.namespace1]}`;
      let isWanted = namespaces.get(hash);
      if (isWanted === undefined) {
        isWanted = isNamespace(this.#textsOf(word).namespaceKey);
        namespaces.set(hash, isWanted);
      }
      return isWanted;
    };
    return (word) => {
      const flags = words[word + WORD.flags];
      if (isAllowed !== undefined && ((flags & FLAG.allowed) !== 0) !== isAllowed) return false;
      if (identity !== undefined && !this.#isOf(word, identity)) return false;
      if (source !== undefined && this.#sourceAt(word) !== source) return false;
      return (
        this.#hasText(word, WORD.identifierBytes, identifier, isPrefix) &&
        this.#hasText(word, WORD.overrideBytes, override) &&
        isWantedNamespace(word)
      );
    };
  }

  /** @param expected undefined for any text @param isPrefix whether more may follow it */
  #hasText(
    word: number,
    length: typeof WORD.identifierBytes | typeof WORD.overrideBytes,
    expected: Buffer | undefined,
    isPrefix = false,
  ): boolean {
    if (expected === undefined) return true;
    const words = this.#words;
    const bytes = words[word + length];
    if (isPrefix ? bytes < expected.length : bytes !== expected.length) return false;
    const before = [WORD.namespaceBytes, WORD.identifierBytes].filter((it) => it < length);
    const skipped = before.reduce((sum, it) => sum + Math.max(0, words[word + it]), 0);
    const from = textAt(words[word + WORD.textFrom]) + skipped;
    return expected.equals(this.#texts.subarray(from, from + expected.length));
  }

  #isOf(word: number, { h0, h1, h2, h3 }: Identity): boolean {
    const words = this.#words;
    return (
      words[word + WORD.h0] === h0 &&
      words[word + WORD.h1] === h1 &&
      words[word + WORD.h2] === h2 &&
      words[word + WORD.h3] === h3
    );
  }

  /** Whether a record is complete, and its texts were not written over. */
  #isReadable(number: number): boolean {
    const words = this.#words;
    const word = recordAt(number) >> 2;
    const age = (Atomics.load(words, TEXT_END) - words[word + WORD.textFrom]) >>> 0;
    return age <= RECENT_TEXT_BYTES && Atomics.load(words, word + WORD.number) === number;
  }

  /** The same after a record was read: whether what was read is of this record. */
  #isStillReadable(number: number): boolean {
    // An exchange: the accesses before it cannot move behind it.
    Atomics.compareExchange(this.#words, (recordAt(number) >> 2) + WORD.number, number, number);
    return this.#isReadable(number);
  }

  #textsOf(word: number) {
    const words = this.#words;
    let from = textAt(words[word + WORD.textFrom]);
    const text = (bytes: number) => {
      if (bytes === NO_TEXT) return undefined;
      const end = from + bytes;
      const decoded = this.#texts.toString('utf8', from, end);
      from = end;
      return decoded;
    };
    const namespaceKey = text(words[word + WORD.namespaceBytes]) ?? '';
    const identifier = text(words[word + WORD.identifierBytes]);
    return { namespaceKey, identifier, overrideId: text(words[word + WORD.overrideBytes]) };
  }

  /** @returns undefined if the record was written over meanwhile */
  read(number: number): RecentDecision | undefined {
    const at = recordAt(number);
    const [words, doubles] = [this.#words, this.#doubles];
    const word = (name: keyof typeof WORD) => words[(at >> 2) + WORD[name]];
    const double = (name: keyof typeof DOUBLE) => doubles[(at >> 3) + DOUBLE[name]];
    if (!this.#isReadable(number)) return undefined;
    const flags = word('flags');
    const rule = word('rule');
    const [limit, remaining] = [double('limit'), double('remaining')];
    const window = {
      ...{ limit, durationMs: double('duration'), remaining, reset: double('reset') },
      ...{ rule: isRule(rule) ? rule : RULE.fixed, burst: double('burst') },
    };
    const decision = {
      id: `${this.#thread}.${number >>> 0}`,
      timeMs: double('time'),
      untilMs: double('until'),
      ...this.#textsOf(at >> 2),
      isAllowed: (flags & FLAG.allowed) !== 0,
      count: word('count'),
      leftOut: word('leftOut'),
      cost: double('cost'),
      window: (flags & FLAG.window) === 0 ? undefined : window,
      lease: (flags & FLAG.lease) === 0 ? undefined : { limit, inUse: remaining },
      source: this.#sourceAt(at >> 2),
      isOfPolicy: (flags & FLAG.policy) !== 0,
      isShadow: (flags & FLAG.shadow) !== 0,
    };
    return this.#isStillReadable(number) ? decision : undefined;
  }

  #sourceAt(word: number): LimitSource {
    const words = this.#words;
    if (words[word + WORD.overrideBytes] !== NO_TEXT) {
      return this.#hasText(word, WORD.overrideBytes, BLOCK_ID, true) ? 'block' : 'override';
    }
    return (words[word + WORD.flags] & FLAG.policy) === 0 ? 'request' : 'policy';
  }
}

const BLOCK_ID = Buffer.from(BLOCK_ID_PREFIX);
