/**
 * Operations on the counters of one group of a table. The caller holds the lock of the group,
 * except where a function says otherwise.
 */

import { OUTCOME } from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import type { RuleNumber } from '../../core/window-rules.ts';
import { advanceTime, type Location } from '../table/group.ts';
import {
  indexInGroup,
  keyAt,
  type Lock,
  markSlot,
  NO_SLOT,
  type Slot,
  tagAt,
} from '../table/layout.ts';
import { findAll } from '../table/slot.ts';
import type { TableMemory } from '../table/table-memory.ts';
import { durationOfKey, isExpired, ruleOf, ruleOfKey, usesLastLimit } from '../windows/registry.ts';
import type { Cells } from '../windows/rule.ts';
import { findEviction } from './eviction.ts';
import { earliestEndMs, findFreeSlot } from './insert.ts';
import { changedAt, deniedAt, newestAt } from './layout.ts';
import { readCells, readUsage, writeCells, writeCounter } from './slot.ts';

export class Group {
  /** Written only, so that V8 does not remove the reads of `prefetch`. */
  prefetchedWord = 0;
  readonly #memory: TableMemory;
  /** @param memory its words and doubles are looked up for each access */
  constructor(memory: TableMemory) {
    this.#memory = memory;
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
   * Begins a decision. The group is marked as changed before anything in it changes.
   * @returns the time of the decision
   */
  advanceTime(lock: Lock, nowMs: number): number {
    const { words, doubles } = this.#memory;
    words[changedAt(lock)] = 1;
    return advanceTime(doubles, lock, nowMs);
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
      slot = findEviction(memory, at, id, namespaceTag, nowMs);
      if (slot === NO_SLOT) return OUTCOME.full;
      outcome = OUTCOME.evicted;
    }
    markSlot(memory.words, at.lock, indexInGroup(memory.firstSlot, slot));
    writeCounter(memory, slot, id, namespaceTag, key, cells);
    return outcome;
  }

  /**
   * The slots of an identity, expired counters included: of one duration or all, one rule or all.
   */
  findAll(
    at: Location,
    id: Identity,
    durationMs: number | undefined,
    rule: RuleNumber | undefined,
  ): Slot[] {
    const memory = this.#memory;
    return findAll(memory, at, id).filter((slot) => {
      const key = memory.doubles[keyAt(slot)];
      if (durationMs !== undefined && durationOfKey(key) !== durationMs) return false;
      return rule === undefined || ruleOfKey(key).counterRule === ruleOf(rule).counterRule;
    });
  }

  /** Whether `insert` would find a slot for a new counter. */
  hasSlotFor(at: Location, id: Identity, namespaceTag: number, nowMs: number): boolean {
    const memory = this.#memory;
    if (findFreeSlot(memory, at, nowMs) !== NO_SLOT) return true;
    return findEviction(memory, at, id, namespaceTag, nowMs) !== NO_SLOT;
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
