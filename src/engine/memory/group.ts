/**
 * The groups of a shard's table: where an identity may lie, and what is done there under the lock
 * of its group. The caller holds that lock, except where a function says otherwise.
 */

import { OUTCOME } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import { durationOfKey, isExpired, ruleOf, ruleOfKey, usesLastLimit } from '../windows/registry.ts';
import type { Cells } from '../windows/rule.ts';
import { chooseEviction } from './eviction.ts';
import { type BucketPair, earliestEndMs, findFreeSlot } from './insert.ts';
import {
  BUCKET_SLOTS,
  bucketAt,
  changedAt,
  deniedAt,
  firstSlot,
  GROUP_BUCKETS,
  groupAt,
  indexInGroup,
  keyAt,
  type Lock,
  latestMsAt,
  lockAt,
  markSlotUsed,
  NO_SLOT,
  newestAt,
  type Slot,
  slotAt,
  tagAt,
} from './layout.ts';
import {
  findSlot,
  isCounterOf,
  isSlotOf,
  readCells,
  readUsage,
  writeCells,
  writeCounter,
} from './slot.ts';
import type { TableMemory } from './table-memory.ts';

const TWO_POW_32 = 2 ** 32;

/** Where an identity may lie, and the lock of its group. */
export interface Location extends BucketPair {
  lock: Lock;
}

export function newLocation(): Location {
  return {
    lock: lockAt(0),
    bucketA: NO_SLOT,
    bucketB: NO_SLOT,
    preferredSlotA: NO_SLOT,
    preferredSlotB: NO_SLOT,
  };
}

export class Group {
  /** Written only, so that V8 does not remove the reads of `prefetch`. */
  prefetchedWord = 0;
  readonly #memory: TableMemory;
  readonly #groupCount: number;
  readonly #firstSlot: Slot;

  /** @param memory its words and doubles are looked up for each access */
  constructor(memory: TableMemory) {
    this.#memory = memory;
    this.#groupCount = memory.groups;
    this.#firstSlot = firstSlot(memory.groups);
  }

  /** Finds where an identity may lie. Needs no lock. */
  locate(id: Identity, into: Location): void {
    // 32 x 22 bits: the product is exact.
    const group = Math.floor(((id.h1 >>> 0) * this.#groupCount) / TWO_POW_32);
    const first = id.h2 & (GROUP_BUCKETS - 1);
    // One of the 31 others, by bits that the first has not used.
    const step = 1 + (((id.h2 >>> 5) & 0xffff) % (GROUP_BUCKETS - 1));
    const second = (first + step) & (GROUP_BUCKETS - 1);
    const preferred = (id.h2 >>> 21) & (BUCKET_SLOTS - 1);
    const slots = groupAt(this.#firstSlot, group);
    into.bucketA = bucketAt(slots, first);
    into.bucketB = bucketAt(slots, second);
    into.preferredSlotA = slotAt(into.bucketA, preferred);
    into.preferredSlotB = slotAt(into.bucketB, preferred);
    into.lock = lockAt(group);
  }

  /**
   * Reads a word of each line that a decision probably needs. These reads do not wait for each
   * other, so the lines are loaded in parallel. For a single check it costs more than it saves: the
   * second preferred slot is mostly read in vain. Needs no lock.
   */
  prefetch({ lock, preferredSlotA, preferredSlotB }: Location): void {
    const { words } = this.#memory;
    this.prefetchedWord = words[lock] ^ words[tagAt(preferredSlotA)] ^ words[tagAt(preferredSlotB)];
  }

  /**
   * Begins a decision. Time in a group never runs back: a thread that read the clock and was then
   * stopped for longer than a window would otherwise allow a spent window again, after the expired
   * counter was replaced. The group is marked as changed before anything in it changes.
   * @returns the time of the decision
   */
  advanceTime(lock: Lock, nowMs: number): number {
    const { words, doubles } = this.#memory;
    words[changedAt(lock)] = 1;
    const latestMs = doubles[latestMsAt(lock)];
    if (nowMs <= latestMs) return latestMs;
    doubles[latestMsAt(lock)] = nowMs;
    return nowMs;
  }

  /** @returns the slot of a counter; NO_SLOT when there is none. Needs no lock. */
  find(at: Location, id: Identity, key: number): Slot {
    const memory = this.#memory;
    if (isCounterOf(memory, at.preferredSlotA, id, key)) return at.preferredSlotA;
    if (isCounterOf(memory, at.preferredSlotB, id, key)) return at.preferredSlotB;
    const slot = findSlot(memory, at.bucketA, id, key);
    return slot !== NO_SLOT ? slot : findSlot(memory, at.bucketB, id, key);
  }

  /** Needs no lock. Without it, some cells may be from before a write. */
  readCells(slot: Slot, cells: Cells): void {
    readCells(this.#memory, slot, cells);
  }

  /** Reads what `judge` and `count` of a rule need: the limit is left out where neither does. */
  readForDecision(slot: Slot, rule: RuleNumber, cells: Cells): void {
    if (usesLastLimit(rule)) readCells(this.#memory, slot, cells);
    else readUsage(this.#memory, slot, cells);
  }

  writeCells(slot: Slot, rule: RuleNumber, cells: Cells): void {
    writeCells(this.#memory, slot, rule, cells);
  }

  /**
   * Protects a counter that denied a check, for as long as its usage counts.
   * @param cells for the use of this function
   * @param window that of the denial
   */
  protectDenied(slot: Slot, rule: RuleNumber, window: number, cells: Cells): void {
    const { words, doubles } = this.#memory;
    readCells(this.#memory, slot, cells);
    if (!ruleOf(rule).protect(cells, window)) return;
    if (cells.newest !== doubles[newestAt(slot)]) writeCells(this.#memory, slot, rule, cells);
    words[deniedAt(slot)] = ruleOf(rule).deniedWord(cells, window, words[deniedAt(slot)]);
  }

  /**
   * Finds a slot for a new counter, by eviction if necessary, and writes it.
   * @param namespaceTag the first word of its namespace's hash state; eviction goes by it
   * @returns one of OUTCOME
   */
  insert(
    at: Location,
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    key: number,
    cells: Cells,
  ): number {
    const memory = this.#memory;
    let outcome: number = OUTCOME.decided;
    let slot = findFreeSlot(memory, at, nowMs);
    if (slot === NO_SLOT) {
      slot = chooseEviction(memory, at, id, namespaceTag, nowMs);
      if (slot === NO_SLOT) return OUTCOME.full;
      outcome = OUTCOME.evicted;
    }
    markSlotUsed(memory.words, at.lock, indexInGroup(this.#firstSlot, slot));
    writeCounter(memory, slot, id, namespaceTag, key, cells);
    return outcome;
  }

  /**
   * The slots of an identity, expired counters included: of one duration or all, one rule or all.
   */
  findAll(
    { bucketA, bucketB }: Location,
    id: Identity,
    durationMs: number | undefined,
    rule: RuleNumber | undefined,
  ): Slot[] {
    const memory = this.#memory;
    const slots = [bucketA, bucketB].flatMap((bucket) => {
      return Array.from({ length: BUCKET_SLOTS }, (_, index) => slotAt(bucket, index));
    });
    return slots.filter((slot) => {
      if (!isSlotOf(memory, slot, id)) return false;
      const key = memory.doubles[keyAt(slot)];
      if (durationMs !== undefined && durationOfKey(key) !== durationMs) return false;
      return rule === undefined || ruleOfKey(key).counterRule === ruleOf(rule).counterRule;
    });
  }

  /** Whether `insert` would find a slot for a new counter. */
  hasSlotFor(at: Location, id: Identity, namespaceTag: number, nowMs: number): boolean {
    const memory = this.#memory;
    if (findFreeSlot(memory, at, nowMs) !== NO_SLOT) return true;
    return chooseEviction(memory, at, id, namespaceTag, nowMs) !== NO_SLOT;
  }

  /** The key of the counter in a slot. */
  readKey(slot: Slot): number {
    return this.#memory.doubles[keyAt(slot)];
  }

  isExpired(slot: Slot, nowMs: number): boolean {
    const { doubles } = this.#memory;
    return isExpired(doubles[keyAt(slot)], doubles[newestAt(slot)], nowMs);
  }

  remove(slot: Slot): void {
    this.#memory.words[tagAt(slot)] = 0;
  }

  /** When the first window of the counters in the two buckets of an identity ends, ms. */
  earliestEndMs(at: Location): number {
    return earliestEndMs(this.#memory, at);
  }
}
