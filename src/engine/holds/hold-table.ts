/**
 * The holds of one shard, as one thread uses them. Each call is made under the lock of the shard's
 * holds, unless its comment says that it needs none. A thread that has the lock of a group may take
 * this lock. A thread that has this lock takes no lock of a group.
 *
 * If a shard worker dies while it holds the lock, `rebuild.ts` derives all but the records from the
 * records again. So the state of a record is stored when all else of it is stored.
 */

import { ENDED_HOLD_MS } from '../../core/constants.ts';
import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import { HOLD_KIND, type HoldId, handleOf, newSecret, type Secret } from '../hold-id.ts';
import { groupOfIdentity } from '../table/group.ts';
import { acquire, release } from '../table/lock.ts';
import { ExpiryQueue } from './expiry-queue.ts';
import {
  AT,
  COUNTER,
  COUNTER_DOUBLE,
  DOUBLE_AT,
  flagsWord,
  HOLD_FLAG,
  HOLD_STATE,
  HoldMemory,
  LOCK,
  listLengthOfFlags,
  NONE,
  RECORD,
  RECORD_DOUBLE,
  recordOfReference,
  ruleOfFlags,
} from './layout.ts';

const IDENTITY_WORDS = 4;
const SECRET_WORDS = 3;
/** The words of a counter that have the first records of its lists. */
const RECORD_LISTS = [COUNTER.firstLive, COUNTER.firstEnded];

/** What a record has from its beginning. */
export interface NewHold {
  isLease: boolean;
  identity: Identity;
  /** The first two words of the hash state of its namespace. */
  namespace: ArrayLike<number>;
  rule: RuleNumber;
  durationMs: number;
  window: number;
  limit: number;
  /** Tokens reserved, or the cost of a lease. */
  amount: number;
  expiresAt: number;
  /** Whether it belongs to a list, and is not the first of it. */
  isMember?: boolean;
  /** The reference of the next one of the list. */
  nextOfList?: number;
  /** Of the first of a list: how many it has. */
  listLength?: number;
}

export class HoldTable {
  readonly memory: HoldMemory;
  readonly queue: ExpiryQueue;
  readonly #owner: number;
  readonly #onWait: () => void;

  /**
   * @param owner of the locks that the calling thread takes: see `table/lock.ts`
   * @param onWait called now and then while the thread waits for the lock
   */
  constructor(buffer: SharedArrayBuffer, shard: number, owner: number, onWait: () => void) {
    this.memory = new HoldMemory(buffer, shard);
    this.queue = new ExpiryQueue(this.memory);
    this.#owner = owner;
    this.#onWait = onWait;
  }

  lock(): void {
    acquire(this.memory.words, LOCK, this.#owner, this.#onWait);
  }

  unlock(): void {
    release(this.memory.words, LOCK);
  }

  /** Begins a change. Time never runs back. @returns the time of the change */
  advanceTime(nowMs: number): number {
    const { words, doubles } = this.memory;
    words[AT.changed] = 1;
    const latestMs = doubles[DOUBLE_AT.latestMs];
    if (nowMs <= latestMs) return latestMs;
    doubles[DOUBLE_AT.latestMs] = nowMs;
    return nowMs;
  }

  /**
   * The identity of a hold. Needs no lock: an id is given out after its record is written, and
   * where the record has another hold by now, `find` does not find it.
   */
  identityOf(record: number): Identity {
    return this.#identityAt(this.memory.record(record) + RECORD.identity);
  }

  /** Whether a record has a hold of an identity. */
  hasIdentity(record: number, identity: Identity): boolean {
    return this.#isIdentityAt(this.memory.record(record) + RECORD.identity, identity);
  }

  /** Finds the record of a hold. @returns NONE if there is no such hold, or it ended long ago */
  find({ kind, record, secret, isMember }: HoldId, nowMs: number): number {
    const { memory } = this;
    if (record < 1 || record > memory.capacity) return NONE;
    const state = memory.word(record, RECORD.state);
    if (state === HOLD_STATE.free) return NONE;
    if (this.isLease(record) !== (kind === HOLD_KIND.lease)) return NONE;
    if (this.hasFlag(record, HOLD_FLAG.member) !== (isMember === true)) return NONE;
    for (let word = 0; word < SECRET_WORDS; word++) {
      if (memory.word(record, RECORD.secret + word) !== secret[word]) return NONE;
    }
    const isForgotten = state !== HOLD_STATE.live && this.#isForgotten(record, nowMs);
    return isForgotten ? NONE : record;
  }

  /**
   * Finds the record of a live hold by the handle that operators see.
   * @returns NONE if the identity has no hold with this handle, or it has ended or expired
   */
  findLive(identity: Identity, handle: string, nowMs: number): number {
    const { memory } = this;
    const { shard } = memory;
    // A handle begins with the reference, and the comparison of all of it proves the rest.
    const record = recordOfReference(Number.parseInt(handle, 36));
    if (!(record >= 1 && record <= memory.capacity)) return NONE;
    if (!this.isLive(record) || !this.hasIdentity(record, identity)) return NONE;
    if (memory.double(record, RECORD_DOUBLE.expiresAt) <= nowMs) return NONE;
    return handleOf({ shard, record, secret: this.secretOf(record) }) === handle ? record : NONE;
  }

  /**
   * The reference of the next record of a list, or NONE. Needs no lock: it never changes, and where
   * the record has another hold by now, nothing is found with the secret of the id.
   */
  nextOfList({ record }: HoldId): number {
    const { memory } = this;
    if (record < 1 || record > memory.capacity) return NONE;
    return memory.word(record, RECORD.nextOfList);
  }

  /** How many records the list of a hold has. Needs no lock, as `nextOfList`. */
  listLengthOf({ record }: HoldId): number {
    const { memory } = this;
    if (record < 1 || record > memory.capacity) return 1;
    return Math.max(1, listLengthOfFlags(memory.word(record, RECORD.flags)));
  }

  isLease(record: number): boolean {
    return this.hasFlag(record, HOLD_FLAG.lease);
  }

  /** @param flag one of HOLD_FLAG */
  hasFlag(record: number, flag: number): boolean {
    return (this.memory.word(record, RECORD.flags) & flag) !== 0;
  }

  setFlag(record: number, flag: number): void {
    this.memory.setWord(record, RECORD.flags, this.memory.word(record, RECORD.flags) | flag);
  }

  ruleOf(record: number): RuleNumber {
    return ruleOfFlags(this.memory.word(record, RECORD.flags)) as RuleNumber;
  }

  isLive(record: number): boolean {
    return this.memory.word(record, RECORD.state) === HOLD_STATE.live;
  }

  /** For how many holds `add` finds records: free ones, and those that have ended. */
  get room(): number {
    const { words, capacity } = this.memory;
    return capacity - words[AT.liveReservations] - words[AT.liveLeases];
  }

  /** Records a hold. There is room. @returns its id */
  add(hold: NewHold, nowMs: number, secret = newSecret()): HoldId {
    const { memory } = this;
    const record = this.#takeRecord(nowMs);
    this.#write(record, hold, secret);
    this.link(record);
    const kind = hold.isLease ? HOLD_KIND.lease : HOLD_KIND.reservation;
    return { kind, shard: memory.shard, record, secret };
  }

  /** Puts a record that is written into its counter, and into the queue or the order of ends. */
  link(record: number): void {
    const { memory } = this;
    const isLive = this.isLive(record);
    const counter = this.#counterFor(record);
    memory.setWord(record, RECORD.counter, counter);
    if (isLive) {
      this.#addLive(counter, record);
      this.queue.add(record);
      this.#countLive(record, 1);
    } else this.#appendEnded(counter, record);
  }

  /**
   * Ends a live hold.
   * @param state HOLD_STATE.ended or HOLD_STATE.expired
   */
  end(record: number, state: number, nowMs: number): void {
    const { memory } = this;
    memory.setDouble(record, RECORD_DOUBLE.endedAt, nowMs);
    memory.setWord(record, RECORD.state, state);
    this.queue.remove(record);
    this.#countLive(record, -1);
    const counter = memory.word(record, RECORD.counter);
    this.#removeLive(counter, record);
    this.#appendEnded(counter, record);
  }

  /** Gives a live hold another expiry. */
  extend(record: number, expiresAt: number): void {
    this.memory.setDouble(record, RECORD_DOUBLE.expiresAt, expiresAt);
    this.queue.move(record);
    this.#noteExpiry(record);
  }

  /** Ends the leases of a counter that have expired. Mostly it looks at none of them. */
  endExpiredLeases(counter: number, nowMs: number): void {
    if (counter === NONE) return;
    const { memory } = this;
    if (memory.counterDouble(counter, COUNTER_DOUBLE.earliestExpiryMs) > nowMs) return;
    let earliestMs = Number.POSITIVE_INFINITY;
    for (const record of this.liveOf(counter)) {
      if (!this.isLease(record)) continue;
      const expiresAt = memory.double(record, RECORD_DOUBLE.expiresAt);
      if (expiresAt <= nowMs) this.end(record, HOLD_STATE.expired, nowMs);
      else earliestMs = Math.min(earliestMs, expiresAt);
    }
    memory.setCounterDouble(counter, COUNTER_DOUBLE.earliestExpiryMs, earliestMs);
  }

  /** The counter of an identity, or NONE. */
  findCounter(identity: Identity): number {
    const { words } = this.memory;
    let counter = words[this.#bucketOf(identity)];
    while (counter !== NONE && !this.#isIdentityAt(this.memory.counter(counter), identity)) {
      counter = words[this.memory.counter(counter) + COUNTER.next];
    }
    return counter;
  }

  /** The sum of the live leases of a counter. */
  inUse(counter: number): number {
    return counter === NONE ? 0 : this.memory.counterDouble(counter, COUNTER_DOUBLE.inUse);
  }

  /** The live holds of a counter. They may be ended one after the other. */
  *liveOf(counter: number): Generator<number> {
    if (counter === NONE) return;
    const { memory } = this;
    let record = memory.words[memory.counter(counter) + COUNTER.firstLive];
    while (record !== NONE) {
      const next = memory.word(record, RECORD.next);
      yield record;
      record = next;
    }
  }

  /** Whether there are live holds, or some that have ended. Needs no lock. */
  hasRecords(): boolean {
    const { words } = this.memory;
    const ended = words[AT.firstEnded];
    return ended !== NONE || words[AT.liveReservations] > 0 || words[AT.liveLeases] > 0;
  }

  /** Whether a group of the counter table has holds. Needs no lock. */
  hasRecordsInGroup(group: number): boolean {
    const { words, buckets, bucketsPerGroup } = this.memory;
    const first = buckets + group * bucketsPerGroup;
    for (let bucket = first; bucket < first + bucketsPerGroup; bucket++) {
      if (words[bucket] !== NONE) return true;
    }
    return false;
  }

  /** The secret in the id of a hold. */
  secretOf(record: number): Secret {
    const { memory } = this;
    const word = (index: number) => memory.word(record, RECORD.secret + index);
    return [word(0), word(1), word(2)];
  }

  /** All holds of a counter, live ones first. */
  *recordsOf(counter: number): Generator<number> {
    if (counter === NONE) return;
    const { memory } = this;
    const { words } = memory;
    const at = memory.counter(counter);
    for (const list of RECORD_LISTS) {
      let record = words[at + list];
      for (; record !== NONE; record = memory.word(record, RECORD.next)) yield record;
    }
  }

  /** All records of the counters in a group of the counter table. */
  *recordsOfGroup(group: number): Generator<number> {
    const { memory } = this;
    const { words, buckets, bucketsPerGroup } = memory;
    const first = buckets + group * bucketsPerGroup;
    for (let bucket = first; bucket < first + bucketsPerGroup; bucket++) {
      for (let counter = words[bucket]; counter !== NONE; ) {
        yield* this.recordsOf(counter);
        counter = words[memory.counter(counter) + COUNTER.next];
      }
    }
  }

  #write(record: number, hold: NewHold, secret: Secret): void {
    const { memory } = this;
    const { words, doubles } = memory;
    const at = memory.record(record);
    const doubleAt = at >>> 1;
    const { h0, h1, h2, h3 } = hold.identity;
    words[at + RECORD.identity] = h0;
    words[at + RECORD.identity + 1] = h1;
    words[at + RECORD.identity + 2] = h2;
    words[at + RECORD.identity + 3] = h3;
    words[at + RECORD.namespace] = hold.namespace[0];
    words[at + RECORD.namespace + 1] = hold.namespace[1];
    for (let word = 0; word < SECRET_WORDS; word++) words[at + RECORD.secret + word] = secret[word];
    const kindFlag = hold.isLease ? HOLD_FLAG.lease : hold.isMember ? HOLD_FLAG.member : 0;
    words[at + RECORD.flags] = flagsWord(kindFlag, hold.rule, hold.listLength ?? 1);
    words[at + RECORD.nextOfList] = hold.nextOfList ?? NONE;
    doubles[doubleAt + RECORD_DOUBLE.durationMs] = hold.durationMs;
    doubles[doubleAt + RECORD_DOUBLE.window] = hold.window;
    doubles[doubleAt + RECORD_DOUBLE.limit] = hold.limit;
    doubles[doubleAt + RECORD_DOUBLE.amount] = hold.amount;
    doubles[doubleAt + RECORD_DOUBLE.expiresAt] = hold.expiresAt;
    doubles[doubleAt + RECORD_DOUBLE.endedAt] = 0;
    doubles[doubleAt + RECORD_DOUBLE.charged] = hold.amount;
    doubles[doubleAt + RECORD_DOUBLE.released] = 0;
    words[at + RECORD.state] = HOLD_STATE.live;
  }

  /** Memory that was used is used again first, so that rare holds use little of it. */
  #takeRecord(nowMs: number): number {
    const { memory } = this;
    const { words, capacity } = memory;
    const oldest = words[AT.firstEnded];
    if (words[AT.freeRecord] === NONE && oldest !== NONE) {
      if (words[AT.used] === capacity || this.#isForgotten(oldest, nowMs)) this.#forgetOldest();
    }
    const record = words[AT.freeRecord];
    if (record !== NONE) {
      words[AT.freeRecord] = memory.word(record, RECORD.link);
      return record;
    }
    // There are as many counters as records.
    const unused = ++words[AT.used];
    this.#addFreeCounter(unused);
    return unused;
  }

  /** Whether a record that has ended is not found any more. */
  #isForgotten(record: number, nowMs: number): boolean {
    return this.memory.double(record, RECORD_DOUBLE.endedAt) + ENDED_HOLD_MS <= nowMs;
  }

  #addFreeCounter(counter: number): void {
    const { memory } = this;
    const { words } = memory;
    words[memory.counter(counter) + COUNTER.next] = words[AT.freeCounter];
    words[AT.freeCounter] = counter;
  }

  /** Frees the record that ended first. It is the first of its counter too. */
  #forgetOldest(): void {
    const { memory } = this;
    const { words } = memory;
    const record = words[AT.firstEnded];
    words[AT.firstEnded] = memory.word(record, RECORD.link);
    if (words[AT.firstEnded] === NONE) words[AT.lastEnded] = NONE;
    memory.setWord(record, RECORD.state, HOLD_STATE.free);
    const counter = memory.word(record, RECORD.counter);
    const at = memory.counter(counter);
    words[at + COUNTER.firstEnded] = memory.word(record, RECORD.next);
    if (words[at + COUNTER.firstEnded] === NONE) {
      words[at + COUNTER.lastEnded] = NONE;
      if (words[at + COUNTER.firstLive] === NONE) this.#freeCounter(counter);
    }
    memory.setWord(record, RECORD.link, words[AT.freeRecord]);
    words[AT.freeRecord] = record;
  }

  /** Appends a record to those of its counter that have ended, and to those of all counters. */
  #appendEnded(counter: number, record: number): void {
    const { memory } = this;
    const { words } = memory;
    const at = memory.counter(counter);
    memory.setWord(record, RECORD.next, NONE);
    if (words[at + COUNTER.firstEnded] === NONE) words[at + COUNTER.firstEnded] = record;
    else memory.setWord(words[at + COUNTER.lastEnded], RECORD.next, record);
    words[at + COUNTER.lastEnded] = record;
    memory.setWord(record, RECORD.link, NONE);
    if (words[AT.firstEnded] === NONE) words[AT.firstEnded] = record;
    else memory.setWord(words[AT.lastEnded], RECORD.link, record);
    words[AT.lastEnded] = record;
  }

  /** @param change 1 when a hold becomes live, -1 when it ends */
  #countLive(record: number, change: number): void {
    const { memory } = this;
    const { words, doubles } = memory;
    const isLease = this.isLease(record);
    const count = isLease ? AT.liveLeases : AT.liveReservations;
    const tokens = isLease ? DOUBLE_AT.leasedTokens : DOUBLE_AT.heldTokens;
    const amount = memory.double(record, RECORD_DOUBLE.amount);
    words[count] += change;
    // A sum above 2^53 is not exact.
    doubles[tokens] = words[count] === 0 ? 0 : doubles[tokens] + change * amount;
    if (!isLease) return;
    const counter = memory.word(record, RECORD.counter);
    const inUse = memory.counterDouble(counter, COUNTER_DOUBLE.inUse) + change * amount;
    memory.setCounterDouble(counter, COUNTER_DOUBLE.inUse, inUse);
    if (change > 0) this.#noteExpiry(record);
  }

  /** Has the counter of a live lease know when it expires. */
  #noteExpiry(record: number): void {
    const { memory } = this;
    if (!this.isLease(record)) return;
    const counter = memory.word(record, RECORD.counter);
    const expiresAt = memory.double(record, RECORD_DOUBLE.expiresAt);
    const earliestMs = memory.counterDouble(counter, COUNTER_DOUBLE.earliestExpiryMs);
    if (expiresAt >= earliestMs) return;
    memory.setCounterDouble(counter, COUNTER_DOUBLE.earliestExpiryMs, expiresAt);
  }

  #addLive(counter: number, record: number): void {
    const { memory } = this;
    const { words } = memory;
    const at = memory.counter(counter);
    const next = words[at + COUNTER.firstLive];
    memory.setWord(record, RECORD.previous, NONE);
    memory.setWord(record, RECORD.next, next);
    if (next !== NONE) memory.setWord(next, RECORD.previous, record);
    words[at + COUNTER.firstLive] = record;
  }

  #removeLive(counter: number, record: number): void {
    const { memory } = this;
    const previous = memory.word(record, RECORD.previous);
    const next = memory.word(record, RECORD.next);
    if (previous === NONE) memory.words[memory.counter(counter) + COUNTER.firstLive] = next;
    else memory.setWord(previous, RECORD.next, next);
    if (next !== NONE) memory.setWord(next, RECORD.previous, previous);
  }

  /** The counter of the identity of a record. There are as many counters as records. */
  #counterFor(record: number): number {
    const { memory } = this;
    const { words } = memory;
    const identity = this.identityOf(record);
    const found = this.findCounter(identity);
    if (found !== NONE) return found;
    const counter = words[AT.freeCounter];
    const at = memory.counter(counter);
    words[AT.freeCounter] = words[at + COUNTER.next];
    words.copyWithin(
      at + COUNTER.identity,
      memory.record(record) + RECORD.identity,
      memory.record(record) + RECORD.identity + IDENTITY_WORDS,
    );
    words[at + COUNTER.firstLive] = NONE;
    words[at + COUNTER.firstEnded] = NONE;
    words[at + COUNTER.lastEnded] = NONE;
    memory.setCounterDouble(counter, COUNTER_DOUBLE.inUse, 0);
    memory.setCounterDouble(counter, COUNTER_DOUBLE.earliestExpiryMs, Number.POSITIVE_INFINITY);
    const bucket = this.#bucketOf(identity);
    words[at + COUNTER.next] = words[bucket];
    words[bucket] = counter;
    return counter;
  }

  #freeCounter(counter: number): void {
    const { memory } = this;
    const { words } = memory;
    const at = memory.counter(counter);
    let link = this.#bucketOf(this.#identityAt(at + COUNTER.identity));
    while (words[link] !== counter) link = memory.counter(words[link]) + COUNTER.next;
    words[link] = words[at + COUNTER.next];
    words[at + COUNTER.next] = words[AT.freeCounter];
    words[AT.freeCounter] = counter;
  }

  /** @param at the first word of an identity */
  #identityAt(at: number): Identity {
    const { words } = this.memory;
    return { h0: words[at], h1: words[at + 1], h2: words[at + 2], h3: words[at + 3] };
  }

  /** @param at the first word of an identity */
  #isIdentityAt(at: number, { h0, h1, h2, h3 }: Identity): boolean {
    const { words } = this.memory;
    return words[at] === h0 && words[at + 1] === h1 && words[at + 2] === h2 && words[at + 3] === h3;
  }

  /** The word of the bucket of an identity. */
  #bucketOf(identity: Identity): number {
    const { buckets, bucketsPerGroup, groups } = this.memory;
    const group = groupOfIdentity(identity, groups);
    // The first bits of this word are the shard.
    return buckets + group * bucketsPerGroup + (identity.h0 & (bucketsPerGroup - 1));
  }
}
