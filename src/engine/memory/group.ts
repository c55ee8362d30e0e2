/**
 * One group of a shard's table, by the identity that is looked for in it: where its lock is, and
 * what is done while that is held. Whoever calls holds it, except where a function says otherwise.
 *
 * Stores are ordered so that of a thread that dies between two of them what was written before
 * stays true: a new window's number is stored behind its cells, a slot's tag comes last when it is
 * filled, first when it is emptied, and its bit in the lock line before it is filled.
 */

import { OUTCOME } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { chooseEviction } from './eviction.ts';
import { findSlot, isCounterOf, isSlotOf } from './find.ts';
import {
  type BucketPair,
  clearSlots,
  earliestWindowEnd,
  findFreeSlot,
  writeCounter,
} from './insert.ts';
import {
  BUCKET_SLOTS,
  bucketAt,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  indexInGroup,
  LOCK_LINE,
  lockAt,
  markSlotUsed,
  NO_SLOT,
  SLOT,
  SLOT_WORD,
  slotAt,
} from './layout.ts';
import type { TableMemory } from './table-memory.ts';
import { type Cells, isExpired } from './windows/window.ts';

const TWO_POW_32 = 2 ** 32;

/** Where an identity may lie, and the lock of its group as an index of words. */
export interface SlotCandidates extends BucketPair {
  lock: number;
}

/** The contents of a counter. */
export interface CounterSnapshot extends Cells {
  durationMs: number;
  /** The limit of the last check that it allowed. */
  limit: number;
}

export class Group implements SlotCandidates {
  lock = 0;
  bucketA = 0;
  bucketB = 0;
  preferredSlotA = 0;
  preferredSlotB = 0;
  /** Nobody's: a read that led to nothing would be left out. */
  prefetchedWord = 0;
  readonly #memory: TableMemory;
  readonly #groupCount: number;
  /** The first bucket of the table. */
  readonly #firstBucket: number;

  /** Whatever is read and written is so through its words and doubles. */
  constructor(memory: TableMemory) {
    this.#memory = memory;
    this.#groupCount = memory.groups;
    this.#firstBucket = bucketAt(memory.groups, 0);
  }

  /** Goes to where an identity may lie. Needs no lock. */
  locate(id: Identity): void {
    // 32 x 22 bits: the product is exact.
    const group = Math.floor(((id.h1 >>> 0) * this.#groupCount) / TWO_POW_32);
    const first = id.h2 & (GROUP_BUCKETS - 1);
    // One of the 31 others, by bits that the first has not used.
    const step = 1 + (((id.h2 >>> 5) & 0xffff) % (GROUP_BUCKETS - 1));
    const second = (first + step) & (GROUP_BUCKETS - 1);
    const own = (id.h2 >>> 21) & (BUCKET_SLOTS - 1);
    const slots = slotAt(this.#firstBucket, group * GROUP_SLOTS);
    this.bucketA = slotAt(slots, first * BUCKET_SLOTS);
    this.bucketB = slotAt(slots, second * BUCKET_SLOTS);
    this.preferredSlotA = slotAt(this.bucketA, own);
    this.preferredSlotB = slotAt(this.bucketB, own);
    this.lock = lockAt(group);
  }

  /** Goes back to where `seek` went. */
  select({ lock, bucketA, bucketB, preferredSlotA, preferredSlotB }: SlotCandidates): void {
    this.lock = lock;
    this.bucketA = bucketA;
    this.bucketB = bucketB;
    this.preferredSlotA = preferredSlotA;
    this.preferredSlotB = preferredSlotB;
  }

  /**
   * Reads a word of each line that a decision is likely to want, ahead of it: these reads do not
   * wait for one another, so that the lines come from memory together. Not worth it for one check,
   * for which the second slot of its own is mostly read in vain.
   */
  prefetch(): void {
    const { words } = this.#memory;
    this.prefetchedWord =
      words[this.lock] ^ words[this.preferredSlotA * 2] ^ words[this.preferredSlotB * 2];
  }

  /**
   * Begins a decision. Time in a group never runs back: a thread that read the clock and was then
   * stopped for longer than a window would otherwise open a spent one anew, once its expired
   * counter has been replaced. That something may change is noted before anything does.
   */
  advanceTime(nowMs: number): number {
    const { words, doubles } = this.#memory;
    words[this.lock + LOCK_LINE.isChanged] = 1;
    const at = this.lock / 2 + LOCK_LINE.latestMs;
    const latest = doubles[at];
    if (nowMs <= latest) return latest;
    doubles[at] = nowMs;
    return nowMs;
  }

  /** The slot of the identity, an index of doubles; NO_SLOT when it is not there. Needs no lock. */
  find(id: Identity, durationMs: number): number {
    const memory = this.#memory;
    if (isCounterOf(memory, this.preferredSlotA, id, durationMs)) return this.preferredSlotA;
    if (isCounterOf(memory, this.preferredSlotB, id, durationMs)) return this.preferredSlotB;
    const slot = findSlot(memory, this.bucketA, id, durationMs);
    return slot !== NO_SLOT ? slot : findSlot(memory, this.bucketB, id, durationMs);
  }

  /** Reads the ring of a slot. Needs no lock, but then may see it half-written. */
  readCells(slot: number, cells: Cells): void {
    const { doubles } = this.#memory;
    const ring = slot + SLOT.cells;
    const newest = doubles[slot + SLOT.newest];
    cells.newest = newest;
    cells.current = doubles[ring + (newest & 1)];
    cells.previous = doubles[ring + (~newest & 1)];
  }

  /**
   * Writes the ring of a slot.
   * @param previousNewest the newest window that was read from it
   */
  writeCells(slot: number, previousNewest: number, { newest, current, previous }: Cells): void {
    const { doubles } = this.#memory;
    const ring = slot + SLOT.cells;
    const cell = newest & 1;
    doubles[ring + (cell ^ 1)] = previous;
    doubles[ring + cell] = current;
    if (newest === previousNewest) return;
    // The number last: cut off before, no window is the worse for it. The cells that were written
    // are those of windows that are past, or hold what they held.
    this.#memory.words[slot * 2 + SLOT_WORD.denied] = 0;
    doubles[slot + SLOT.newest] = newest;
  }

  /** Notes under which limit the last tokens of a slot were admitted. */
  setLastLimit(slot: number, limit: number): void {
    this.#memory.doubles[slot + SLOT.limit] = limit;
  }

  /** Notes that the identity was refused in a window that its slot holds. */
  markDenied(slot: number, window: number): void {
    this.#memory.words[slot * 2 + SLOT_WORD.denied] |= 1 << (window & 1);
  }

  /**
   * Finds or makes room for a counter.
   * @param namespaceTag the first word of the state of its namespace
   * @returns one of OUTCOME
   */
  insert(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    cells: Cells,
    durationMs: number,
    limit: number,
  ): number {
    const memory = this.#memory;
    let outcome: number = OUTCOME.decided;
    let slot = findFreeSlot(memory, this, nowMs);
    if (slot === NO_SLOT) {
      slot = chooseEviction(memory, this.bucketA, this.bucketB, id, namespaceTag, nowMs);
      if (slot === NO_SLOT) return OUTCOME.full;
      outcome = OUTCOME.evicted;
    }
    markSlotUsed(memory.words, this.lock, indexInGroup(this.#firstBucket, slot));
    writeCounter(memory, slot, id, namespaceTag, cells, durationMs, limit);
    return outcome;
  }

  /**
   * Removes the counter of the identity and a duration, or those of all its durations.
   * @param nowMs only what has not expired then is counted
   * @returns how many there were
   */
  remove(id: Identity, durationMs: number | undefined, nowMs: number): number {
    const inA = clearSlots(this.#memory, this.bucketA, id, durationMs, nowMs);
    return inA + clearSlots(this.#memory, this.bucketB, id, durationMs, nowMs);
  }

  /**
   * Reads the counters of the identity and a duration, or those of all its durations.
   * @param nowMs counters that have expired then are left out
   */
  read(id: Identity, durationMs: number | undefined, nowMs: number): CounterSnapshot[] {
    const memory = this.#memory;
    const snapshots: CounterSnapshot[] = [];
    for (const bucket of [this.bucketA, this.bucketB]) {
      for (let i = 0; i < BUCKET_SLOTS; i++) {
        const slot = slotAt(bucket, i);
        if (!isSlotOf(memory, slot, id)) continue;
        const found = memory.doubles[slot + SLOT.duration];
        if (durationMs !== undefined && found !== durationMs) continue;
        const limit = memory.doubles[slot + SLOT.limit];
        const snapshot = { durationMs: found, limit, newest: 0, current: 0, previous: 0 };
        this.readCells(slot, snapshot);
        if (!isExpired(snapshot.newest, found, nowMs)) snapshots.push(snapshot);
      }
    }
    return snapshots;
  }

  /** When the first window of the counters in the two buckets ends, ms. */
  earliestWindowEnd(): number {
    return earliestWindowEnd(this.#memory, this.bucketA, this.bucketB);
  }
}
