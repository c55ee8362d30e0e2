/**
 * One shard's counters in shared memory, and the decision on them: the hot path of the service.
 *
 * Any number of threads attach to the same buffer; each call, but for `look`, holds the lock of one
 * group from its look-up to its last store, so a decision is exact and a group's contents are never
 * seen half-written. What may happen to a thread in between:
 *
 *   descheduled, or dead, in a lock     see `lock.ts`
 *   stores cut off half-way             they are ordered so that what was written before stays
 *                                       true: a new window's number is stored behind its cells, a
 *                                       slot's tag comes last when it is filled, first when it is
 *                                       emptied
 *
 * Capacity is fixed: no growth, no rehash, no garbage. An identity may lie in two buckets of its
 * group. Where neither has room, `victim.ts` says who goes.
 */

import { attachTable, type Table } from './buffer.ts';
import { DEDUCTION, type OnFull, OUTCOME, type TableDecision } from './decision.ts';
import { findSlot } from './find.ts';
import type { Identity } from './hash.ts';
import {
  BUCKET_SLOTS,
  BUCKET_WORDS,
  bucketsOffset,
  GROUP_BUCKETS,
  LOCK,
  lockOf,
  NO_PLACE,
  SLOT,
  SLOT_WORD,
} from './layout.ts';
import { acquire, release } from './lock.ts';
import { earliestEnd, fillPlace, freePlace } from './room.ts';
import { chooseVictim } from './victim.ts';
import { type Cells, decideFixed, deduct, isCurrent, isExpired, NO_WINDOW } from './window.ts';

const TWO_POW_32 = 2 ** 32;

export class CounterTable implements Table {
  readonly groups: number;
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly #owner: number;
  readonly #onFull: OnFull;
  readonly #waiting: () => void;
  /** The first bucket, in words. */
  readonly #buckets: number;
  readonly #cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };
  /** Where the identity in question lies: its group's lock and its two buckets, in words. */
  #lock = 0;
  #a = 0;
  #b = 0;

  /**
   * @param owner the incarnation of the calling thread, from 1; its locks carry it
   * @param onFull the answer where a newcomer finds no room: refused, or admitted uncounted
   * @param waiting called now and then while the thread waits for a lock
   * @throws as `attachTable` does
   */
  constructor(
    buffer: SharedArrayBuffer,
    shard: number,
    owner: number,
    onFull: OnFull,
    waiting: () => void,
  ) {
    if (!(owner >= 1)) throw new Error(`shard ${shard}: ${owner} cannot own a lock`);
    const { words, doubles, groups } = attachTable(buffer, shard);
    this.words = words;
    this.doubles = doubles;
    this.groups = groups;
    this.#owner = owner;
    this.#onFull = onFull;
    this.#waiting = waiting;
    this.#buckets = bucketsOffset(this.groups) / 4;
  }

  /**
   * Decides one check of an identity, and counts it.
   * @param namespaceTag the first word of the state of its namespace
   * @param cost tokens, 0 to look only; a refusal, too, changes no amount
   * @param counts false: an admitted check gets its counter, but is deducted later, by `deduct`
   */
  decide(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    counts: boolean,
    decision: TableDecision,
  ): void {
    this.#locate(id);
    decision.outcome = OUTCOME.decided;
    acquire(this.words, this.#lock, this.#owner, this.#waiting);
    try {
      const now = this.#advance(nowMs);
      const slot = this.#find(id, durationMs);
      if (slot !== 0) this.#decideSlot(slot, now, limit, durationMs, cost, counts, decision);
      else this.#decideNew(id, namespaceTag, now, limit, durationMs, cost, counts, decision);
    } finally {
      release(this.words, this.#lock);
    }
  }

  /**
   * Judges a check by its counter as it stands, without the lock, and counts nothing. A counter
   * that is being written may look as before, which is what `async` allows; one that makes room for
   * another just now, as that other or as none ever was. A refusal is no answer therefore, and has
   * to be had from `decide`; an admission is deducted like any other.
   * @returns whether `decision` is one: the check was admitted by a counter that is there
   */
  look(
    id: Identity,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    decision: TableDecision,
  ): boolean {
    this.#locate(id);
    const slot = this.#find(id, durationMs);
    if (slot === 0) return false;
    this.#read(slot);
    decideFixed(this.#cells, nowMs, limit, durationMs, cost, decision);
    decision.outcome = OUTCOME.decided;
    return decision.admitted;
  }

  /**
   * Deducts a check that `look` or `decide` admitted without counting it.
   * @param window the number of the window in which it was admitted
   * @returns one of DEDUCTION
   */
  deduct(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    window: number,
    limit: number,
    durationMs: number,
    cost: number,
  ): number {
    this.#locate(id);
    acquire(this.words, this.#lock, this.#owner, this.#waiting);
    try {
      const now = this.#advance(nowMs);
      if (isExpired(window, durationMs, now)) return DEDUCTION.past;
      const slot = this.#find(id, durationMs);
      if (slot !== 0) {
        const newest = this.#read(slot);
        if (!deduct(this.#cells, window, cost)) return DEDUCTION.past;
        this.#write(slot, newest, limit);
        return DEDUCTION.applied;
      }
      // Its counter made room for others since; for a window that is over it displaces none.
      if (!isCurrent(window, durationMs, now)) return DEDUCTION.past;
      this.#clear();
      deduct(this.#cells, window, cost);
      const outcome = this.#place(id, namespaceTag, now, durationMs, limit);
      if (outcome === OUTCOME.full) return DEDUCTION.noRoom;
      return outcome === OUTCOME.evicted ? DEDUCTION.evicted : DEDUCTION.applied;
    } finally {
      release(this.words, this.#lock);
    }
  }

  #locate(id: Identity): void {
    // 32 x 22 bits: the product is exact.
    const group = Math.floor(((id.h1 >>> 0) * this.groups) / TWO_POW_32);
    const first = id.h2 & (GROUP_BUCKETS - 1);
    // One of the 31 others, by bits that the first has not used.
    const step = 1 + (((id.h2 >>> 5) & 0xffff) % (GROUP_BUCKETS - 1));
    const second = (first + step) & (GROUP_BUCKETS - 1);
    const groupBucket = group * GROUP_BUCKETS;
    this.#a = this.#buckets + (groupBucket + first) * BUCKET_WORDS;
    this.#b = this.#buckets + (groupBucket + second) * BUCKET_WORDS;
    this.#lock = lockOf(group);
  }

  /**
   * Time in a group never runs back. A thread that read the clock and was then stopped for longer
   * than a window would otherwise open a spent one anew, once its expired counter has been
   * replaced.
   */
  #advance(nowMs: number): number {
    const at = this.#lock / 2 + LOCK.now;
    const latest = this.doubles[at];
    if (nowMs <= latest) return latest;
    this.doubles[at] = nowMs;
    return nowMs;
  }

  /** The slot of the identity, as an index of `doubles`; 0 when it is not there. */
  #find(id: Identity, durationMs: number): number {
    const slot = findSlot(this, this.#a, id, durationMs);
    return slot !== 0 ? slot : findSlot(this, this.#b, id, durationMs);
  }

  #decideSlot(
    slot: number,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    counts: boolean,
    decision: TableDecision,
  ): void {
    const newest = this.#read(slot);
    decideFixed(this.#cells, nowMs, limit, durationMs, cost, decision);
    if (!decision.admitted) {
      if (isCurrent(newest, durationMs, nowMs)) {
        this.words[slot * 2 + SLOT_WORD.refused] |= 1 << (newest & 1);
      }
    } else if (cost !== 0 && counts) this.#write(slot, newest, limit);
  }

  #decideNew(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    counts: boolean,
    decision: TableDecision,
  ): void {
    this.#clear();
    decideFixed(this.#cells, nowMs, limit, durationMs, cost, decision);
    // What is refused with nothing used, and what costs nothing, needs no counter.
    if (!decision.admitted || cost === 0) return;
    if (!counts) this.#cells.current = 0;
    decision.outcome = this.#place(id, namespaceTag, nowMs, durationMs, limit);
    if (decision.outcome !== OUTCOME.full || this.#onFull === 'allow') return;
    decision.admitted = false;
    decision.remaining = 0;
    decision.reset = earliestEnd(this, this.#a, this.#b);
  }

  /** Finds or makes room for the counter in `#cells`. @returns one of OUTCOME */
  #place(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    durationMs: number,
    limit: number,
  ): number {
    let outcome: number = OUTCOME.decided;
    let place = freePlace(this, this.#a, this.#b, nowMs);
    if (place === NO_PLACE) {
      place = chooseVictim(this, this.#a, this.#b, namespaceTag, nowMs);
      if (place === NO_PLACE) return OUTCOME.full;
      outcome = OUTCOME.evicted;
    }
    const bucket = place < BUCKET_SLOTS ? this.#a : this.#b;
    fillPlace(this, bucket, place % BUCKET_SLOTS, id, namespaceTag, this.#cells, durationMs, limit);
    return outcome;
  }

  #clear(): void {
    this.#cells.newest = NO_WINDOW;
    this.#cells.current = 0;
    this.#cells.previous = 0;
  }

  /** Reads the ring of a slot into `#cells`. @returns its newest window */
  #read(slot: number): number {
    const cells = this.#cells;
    const ring = slot + SLOT.ring;
    const newest = this.doubles[slot + SLOT.newest];
    cells.newest = newest;
    cells.current = this.doubles[ring + (newest & 1)];
    cells.previous = this.doubles[ring + (~newest & 1)];
    return newest;
  }

  /** Writes `#cells` into a slot whose newest window was `before`. */
  #write(slot: number, before: number, limit: number): void {
    const { doubles } = this;
    const { newest, current, previous } = this.#cells;
    const ring = slot + SLOT.ring;
    const cell = newest & 1;
    doubles[ring + (cell ^ 1)] = previous;
    doubles[ring + cell] = current;
    doubles[slot + SLOT.limit] = limit;
    if (newest === before) return;
    // The number last: cut off before, no window is the worse for it. The cells that were written
    // are those of windows that are past, or hold what they held.
    this.words[slot * 2 + SLOT_WORD.refused] = 0;
    doubles[slot + SLOT.newest] = newest;
  }
}
