/**
 * One shard's counters in shared memory, and the decision on them: the hot path of the service.
 *
 * Any number of acceptors attach to the same buffer and call `decide`; each call holds the lock of
 * one group from its look-up to its last store, so a decision is exact and a group's contents are
 * never seen half-written. What may happen to a thread in between:
 *
 *   descheduled, or dead, in a lock     see `lock.ts`
 *   stores cut off half-way             they are ordered so that this can only over-count: a new
 *                                       window's number is stored before its cell is overwritten,
 *                                       a slot's tag comes last when it is filled, first when it
 *                                       is emptied
 *
 * Capacity is fixed: no growth, no rehash, no garbage. An identity may lie in two buckets of its
 * group. Where neither has room, `victim.ts` says who goes.
 */

import type { Hasher, NamespaceState } from './hash.ts';
import {
  BUCKET,
  BUCKET_SLOTS,
  BUCKET_WORDS,
  bucketsOffset,
  GROUP_BUCKETS,
  HEADER,
  LINE_WORDS,
  LOCK,
  type Memory,
  NO_PLACE,
  SLOT,
  SLOT_WORD,
  slotAt,
  TABLE_MAGIC,
  TABLE_VERSION,
  tableBytes,
} from './layout.ts';
import { acquire, release } from './lock.ts';
import { earliestEnd, freePlace } from './room.ts';
import { chooseVictim } from './victim.ts';
import { type Cells, type Decision, decideFixed, isCurrent, NO_WINDOW } from './window.ts';

/** What became of a check, beside the decision itself. */
export const OUTCOME = { decided: 0, evicted: 1, full: 2 } as const;

export type OnFull = 'deny' | 'allow';

export interface TableDecision extends Decision {
  /** OUTCOME.evicted: a live counter made room. OUTCOME.full: no room, nothing was counted. */
  outcome: number;
}

export function newDecision(): TableDecision {
  return { admitted: false, remaining: 0, reset: 0, outcome: OUTCOME.decided };
}

const TWO_POW_32 = 2 ** 32;

/** Allocates an empty table, to which threads attach. */
export function allocateTable(shard: number, groups: number): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer(tableBytes(groups));
  const words = new Int32Array(buffer);
  words[HEADER.version] = TABLE_VERSION;
  words[HEADER.shard] = shard;
  words[HEADER.groups] = groups;
  Atomics.store(words, HEADER.magic, TABLE_MAGIC);
  return buffer;
}

export interface Table extends Memory {
  readonly groups: number;
}

/** @throws when the buffer is not a table of this version for this shard */
export function attachTable(buffer: SharedArrayBuffer, shard: number): Table {
  const words = new Int32Array(buffer);
  const is = (at: number, wanted: number, what: string) => {
    if (words[at] !== wanted) {
      throw new Error(`shard ${shard}: ${what} is ${words[at]}, not ${wanted}`);
    }
  };
  is(HEADER.magic, TABLE_MAGIC, 'the magic number');
  is(HEADER.version, TABLE_VERSION, 'the version of the layout');
  is(HEADER.shard, shard, 'the number of the shard');
  const groups = words[HEADER.groups];
  if (buffer.byteLength !== tableBytes(groups)) {
    throw new Error(`shard ${shard}: ${buffer.byteLength} bytes for ${groups} groups`);
  }
  return { words, doubles: new Float64Array(buffer), groups };
}

export class CounterTable implements Table {
  readonly groups: number;
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly #owner: number;
  readonly #onFull: OnFull;
  /** The first bucket, in words. */
  readonly #buckets: number;
  readonly #cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };

  /**
   * @param owner the incarnation of the calling thread, from 1; its locks carry it
   * @param onFull the answer where a newcomer finds no room: refused, or admitted uncounted
   * @throws as `attachTable` does
   */
  constructor(buffer: SharedArrayBuffer, shard: number, owner: number, onFull: OnFull) {
    if (!(owner >= 1)) throw new Error(`shard ${shard}: ${owner} cannot own a lock`);
    const { words, doubles, groups } = attachTable(buffer, shard);
    this.words = words;
    this.doubles = doubles;
    this.groups = groups;
    this.#owner = owner;
    this.#onFull = onFull;
    this.#buckets = bucketsOffset(this.groups) / 4;
  }

  /**
   * Decides one check of the identity in `hash` and counts it.
   * @param namespace the state of its namespace; its first word is the tag of the namespace
   * @param cost tokens, 0 to look only; a refusal, too, changes no amount
   */
  decide(
    hash: Hasher,
    namespace: NamespaceState,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    decision: TableDecision,
  ): void {
    // 32 x 22 bits: the product is exact.
    const group = Math.floor(((hash.h1 >>> 0) * this.groups) / TWO_POW_32);
    const first = hash.h2 & (GROUP_BUCKETS - 1);
    // One of the 31 others, by bits that the first has not used.
    const step = 1 + (((hash.h2 >>> 5) & 0xffff) % (GROUP_BUCKETS - 1));
    const second = (first + step) & (GROUP_BUCKETS - 1);
    const groupBucket = group * GROUP_BUCKETS;
    const a = this.#buckets + (groupBucket + first) * BUCKET_WORDS;
    const b = this.#buckets + (groupBucket + second) * BUCKET_WORDS;
    const lock = (group + 1) * LINE_WORDS;

    decision.outcome = OUTCOME.decided;
    acquire(this.words, lock, this.#owner);
    try {
      const now = this.#advance(lock, nowMs);
      let slot = this.#find(a, hash, durationMs);
      if (slot === 0) slot = this.#find(b, hash, durationMs);
      if (slot !== 0) this.#decideSlot(slot, now, limit, durationMs, cost, decision);
      else this.#decideNew(a, b, hash, namespace[0], now, limit, durationMs, cost, decision);
    } finally {
      release(this.words, lock);
    }
  }

  /**
   * Time in a group never runs back. A thread that read the clock and was then stopped for longer
   * than a window would otherwise open a spent one anew, once its expired counter has been
   * replaced.
   */
  #advance(lock: number, nowMs: number): number {
    const at = lock / 2 + LOCK.now;
    const latest = this.doubles[at];
    if (nowMs <= latest) return latest;
    this.doubles[at] = nowMs;
    return nowMs;
  }

  /** The slot of the identity in a bucket, as an index of `doubles`; 0 when it is not there. */
  #find(bucket: number, hash: Hasher, durationMs: number): number {
    const words = this.words;
    for (let i = 0; i < BUCKET_SLOTS; i++) {
      if (words[bucket + BUCKET.tags + i] !== hash.h3) continue;
      const slot = slotAt(bucket, i);
      const slotWords = slot * 2;
      if (
        words[slotWords + SLOT_WORD.hash0] === hash.h0 &&
        words[slotWords + SLOT_WORD.hash1] === hash.h1 &&
        words[slotWords + SLOT_WORD.hash2] === hash.h2 &&
        this.doubles[slot + SLOT.duration] === durationMs
      ) {
        return slot;
      }
    }
    return 0;
  }

  #decideSlot(
    slot: number,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    decision: TableDecision,
  ): void {
    const doubles = this.doubles;
    const cells = this.#cells;
    const ring = slot + SLOT.ring;
    const newest = doubles[slot + SLOT.newest];
    cells.newest = newest;
    cells.current = doubles[ring + (newest & 1)];
    cells.previous = doubles[ring + (~newest & 1)];
    decideFixed(cells, nowMs, limit, durationMs, cost, decision);

    const refused = slot * 2 + SLOT_WORD.refused;
    if (!decision.admitted) {
      if (isCurrent(newest, durationMs, nowMs)) this.words[refused] |= 1 << (newest & 1);
    } else if (cost !== 0) {
      const cell = cells.newest & 1;
      if (cells.newest !== newest) {
        // The number first: cut off here, the new window starts with an old use, never without one.
        doubles[slot + SLOT.newest] = cells.newest;
        doubles[ring + (cell ^ 1)] = cells.previous;
        this.words[refused] = 0;
      }
      doubles[ring + cell] = cells.current;
      doubles[slot + SLOT.limit] = limit;
    }
  }

  #decideNew(
    a: number,
    b: number,
    hash: Hasher,
    namespaceTag: number,
    nowMs: number,
    limit: number,
    durationMs: number,
    cost: number,
    decision: TableDecision,
  ): void {
    const cells = this.#cells;
    cells.newest = NO_WINDOW;
    cells.current = 0;
    cells.previous = 0;
    decideFixed(cells, nowMs, limit, durationMs, cost, decision);
    // What is refused with nothing used, and what costs nothing, needs no counter.
    if (!decision.admitted || cost === 0) return;

    let place = freePlace(this, a, b, nowMs);
    if (place === NO_PLACE) {
      place = chooseVictim(this, a, b, namespaceTag, nowMs);
      if (place === NO_PLACE) {
        decision.outcome = OUTCOME.full;
        if (this.#onFull === 'allow') return;
        decision.admitted = false;
        decision.remaining = 0;
        decision.reset = earliestEnd(this, a, b);
        return;
      }
      decision.outcome = OUTCOME.evicted;
    }
    const bucket = place < BUCKET_SLOTS ? a : b;
    const index = place % BUCKET_SLOTS;
    this.#fill(bucket, index, hash, namespaceTag, durationMs, limit);
  }

  /** Writes the counter in `#cells` into a slot. */
  #fill(
    bucket: number,
    index: number,
    hash: Hasher,
    namespaceTag: number,
    durationMs: number,
    limit: number,
  ): void {
    const { words, doubles } = this;
    const cells = this.#cells;
    const tag = bucket + BUCKET.tags + index;
    const slot = slotAt(bucket, index);
    words[tag] = 0;
    doubles[slot + SLOT.duration] = durationMs;
    doubles[slot + SLOT.newest] = cells.newest;
    doubles[slot + SLOT.ring + (cells.newest & 1)] = cells.current;
    doubles[slot + SLOT.ring + (~cells.newest & 1)] = cells.previous;
    doubles[slot + SLOT.limit] = limit;
    const slotWords = slot * 2;
    words[slotWords + SLOT_WORD.hash0] = hash.h0;
    words[slotWords + SLOT_WORD.hash1] = hash.h1;
    words[slotWords + SLOT_WORD.hash2] = hash.h2;
    words[slotWords + SLOT_WORD.refused] = 0;
    words[bucket + BUCKET.namespaces + index] = namespaceTag;
    words[tag] = hash.h3;
  }
}
