/**
 * Decides many checks together, all or nothing: each is judged in its order, on what those before
 * it have left; if all are admitted all are counted, else none is.
 *
 * The locks of all groups in question are held from the first look-up to the last store, so nobody
 * sees a part of it. They are taken in one order everywhere, by shard and group, and each wait for
 * one is bounded (`lock.ts`), so that no order of checks leads to a deadlock; no other code takes
 * a lock while it holds one. The work is bounded by the number of checks: each is sought, judged
 * and counted a fixed number of times.
 *
 * Room is looked for when all would pass. Where a newcomer finds none, and that refuses, those
 * before it are removed again; a counter that made room for one is lost, as to any newcomer.
 */

import { MULTI_LIMIT_MAX, SHARDS } from '../../core/constants.ts';
import {
  type CheckParameters,
  type FullTablePolicy,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import type { Identity, MutableIdentity } from '../../core/hash.ts';
import { NO_BURST, RULE } from '../../core/window-rules.ts';
import type { SlotCandidates } from './group.ts';
import { NO_SLOT } from './layout.ts';
import { LockOrder } from './lock-order.ts';
import { shardOf } from './shard.ts';
import { applyFullTablePolicy, type CounterTable, clearCells, judge } from './table.ts';
import { addUsage, type Cells, isExpired, NO_WINDOW, windowAt } from './windows/window.ts';

/** A check among others. */
interface BatchItem extends MutableIdentity, SlotCandidates {
  namespaceTag: number;
  parameters: CheckParameters;
  table: CounterTable;
  /** The time in its group. */
  nowMs: number;
  /** Where its counter lies, NO_SLOT for a newcomer. */
  slot: number;
  /** The nearest checks of the same counter, before it and behind it. */
  previousSameCounter: BatchItem | undefined;
  nextSameCounter: BatchItem | undefined;
  /** What the checks of its counter take, up to this one, and under which limit the last did. */
  totalCost: number;
  lastLimit: number;
  decision: TableDecision;
}

const EMPTY_PARAMETERS: CheckParameters = {
  limit: 0,
  durationMs: 0,
  cost: 0,
  rule: RULE.fixed,
  burst: NO_BURST,
};

export class Batch {
  readonly #tables: readonly CounterTable[];
  readonly #fullTablePolicy: FullTablePolicy;
  readonly #items: BatchItem[];
  #length = 0;
  /** Whether newcomers have got places, which may have been those of others. */
  #hasInserted = false;
  readonly #lockOrder = new LockOrder();
  readonly #cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };
  readonly #zeroCostParameters: CheckParameters = { ...EMPTY_PARAMETERS };

  /** @param tables one for each shard */
  constructor(tables: readonly CounterTable[], fullTablePolicy: FullTablePolicy) {
    if (tables.length !== SHARDS) throw new Error(`${tables.length} tables for ${SHARDS} shards`);
    this.#tables = tables;
    this.#fullTablePolicy = fullTablePolicy;
    this.#items = Array.from({ length: MULTI_LIMIT_MAX }, () => newItem(tables[0]));
  }

  /** Begins with no checks. */
  begin(): void {
    this.#length = 0;
  }

  /** Adds one of at most MULTI_LIMIT_MAX checks. @param parameters read by `decide` */
  add({ h0, h1, h2, h3 }: Identity, namespaceTag: number, parameters: CheckParameters): void {
    const number = this.#length++;
    const item = this.#items[number];
    item.h0 = h0;
    item.h1 = h1;
    item.h2 = h2;
    item.h3 = h3;
    item.namespaceTag = namespaceTag;
    item.parameters = parameters;
    const shard = shardOf(item);
    item.table = this.#tables[shard];
    const { group } = item.table;
    group.locate(item);
    item.lock = group.lock;
    item.bucketA = group.bucketA;
    item.bucketB = group.bucketB;
    item.preferredSlotA = group.preferredSlotA;
    item.preferredSlotB = group.preferredSlotB;
    this.#lockOrder.add(number, shard, item.lock);
  }

  /** Decides what was added, and counts it if all of it passes. @returns whether it does */
  decide(nowMs: number): boolean {
    const order = this.#lockOrder;
    order.sort(this.#length);
    this.#prefetch();
    let locked = 0;
    try {
      for (; locked < this.#length; locked++) {
        const item = this.#itemAt(locked);
        if (!order.sharesLock(locked)) item.table.acquire(item.lock);
      }
      this.#linkSameCounters();
      this.#hasInserted = false;
      const passed = this.#judgeAll(nowMs) && this.#insertNewCounters();
      if (passed) this.#recordUsage();
      else this.#reportUnchanged();
      return passed;
    } finally {
      while (locked-- > 0) {
        const item = this.#itemAt(locked);
        if (!order.sharesLock(locked)) item.table.release(item.lock);
      }
    }
  }

  /**
   * What was decided of a check, by its number. `admitted` is by itself; where not all passed, what
   * is remaining is so without any of them, and of one that was refused what its judge says.
   */
  decision(number: number): TableDecision {
    return this.#items[number].decision;
  }

  /**
   * Has all lines come from memory together; one after the other, as they are wanted, they take
   * several times as long.
   */
  #prefetch(): void {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { group } = item.table;
      group.select(item);
      group.prefetch();
    }
  }

  #itemAt(position: number): BatchItem {
    return this.#items[this.#lockOrder.checkAt(position)];
  }

  /** Finds the checks of the same counter, which have the same lock, in their order. */
  #linkSameCounters(): void {
    let first = 0;
    for (let place = 0; place < this.#length; place++) {
      const item = this.#itemAt(place);
      item.previousSameCounter = undefined;
      item.nextSameCounter = undefined;
      if (!this.#lockOrder.sharesLock(place)) first = place;
      for (let earlier = place - 1; earlier >= first; earlier--) {
        const other = this.#itemAt(earlier);
        if (!isSameCounter(item, other)) continue;
        item.previousSameCounter = other;
        other.nextSameCounter = item;
        break;
      }
    }
  }

  /** @returns whether all are admitted */
  #judgeAll(nowMs: number): boolean {
    const cells = this.#cells;
    let passed = true;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, parameters, previousSameCounter, decision } = item;
      const { group } = table;
      group.select(item);
      item.nowMs = group.advanceTime(nowMs);
      this.#readCounter(item);
      const taken = previousSameCounter === undefined ? 0 : previousSameCounter.totalCost;
      if (taken > 0) addUsage(cells, windowAt(cells, item.nowMs, parameters.durationMs), taken);
      decision.outcome = OUTCOME.decided;
      judge(cells, item.nowMs, parameters, decision);
      item.totalCost = decision.allowed ? taken + parameters.cost : taken;
      item.lastLimit =
        parameters.cost === 0 && previousSameCounter !== undefined
          ? previousSameCounter.lastLimit
          : parameters.limit;
      if (decision.allowed) continue;
      passed = false;
      if (item.slot !== NO_SLOT) table.protectDenied(item.slot, parameters, decision.window);
    }
    return passed;
  }

  /** Finds and reads the counter of a check. An expired one could be taken over: it is removed. */
  #readCounter(item: BatchItem): void {
    const { table, parameters, nowMs } = item;
    const { group } = table;
    const cells = this.#cells;
    item.slot = group.find(item, parameters.durationMs);
    if (item.slot !== NO_SLOT) {
      group.readCells(item.slot, cells);
      if (!isExpired(cells.newest, parameters.durationMs, nowMs)) return;
      group.remove(item, parameters.durationMs, nowMs);
      item.slot = NO_SLOT;
    }
    clearCells(cells);
  }

  /** Makes the counters that are not there yet, each with all it takes. @returns false: no room */
  #insertNewCounters(): boolean {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      if (item.nextSameCounter !== undefined || item.slot !== NO_SLOT || item.totalCost === 0)
        continue;
      item.table.group.select(item);
      this.#insert(item);
      if (item.decision.outcome !== OUTCOME.full) continue;
      // Each of its checks is answered so.
      for (let of: BatchItem | undefined = item; of !== undefined; of = of.previousSameCounter) {
        of.decision.outcome = of.parameters.cost === 0 ? OUTCOME.decided : OUTCOME.full;
        if (of.parameters.cost !== 0)
          applyFullTablePolicy(of.table.group, this.#fullTablePolicy, of.decision);
      }
      if (this.#fullTablePolicy === 'allow') continue;
      this.#removeInserted(number);
      return false;
    }
    return true;
  }

  #insert(item: BatchItem): void {
    const { table, parameters, namespaceTag, nowMs, decision, totalCost, lastLimit } = item;
    const { durationMs } = parameters;
    const cells = this.#cells;
    clearCells(cells);
    addUsage(cells, decision.window, totalCost);
    this.#hasInserted = true;
    decision.outcome = table.group.insert(item, namespaceTag, nowMs, cells, durationMs, lastLimit);
  }

  /** @param end the number of the first check that may have none */
  #removeInserted(end: number): void {
    for (let number = 0; number < end; number++) {
      const item = this.#items[number];
      const { table, parameters, nowMs } = item;
      if (item.nextSameCounter !== undefined || item.slot !== NO_SLOT || item.totalCost === 0)
        continue;
      table.group.select(item);
      table.group.remove(item, parameters.durationMs, nowMs);
    }
  }

  /** Counts in the counters that were there. */
  #recordUsage(): void {
    const cells = this.#cells;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, parameters, decision, totalCost, slot } = item;
      if (item.nextSameCounter !== undefined || slot === NO_SLOT || totalCost === 0) continue;
      const { group } = table;
      group.select(item);
      // A newcomer among the others may have taken its place.
      if (this.#hasInserted && group.find(item, parameters.durationMs) !== slot) {
        this.#insert(item);
        continue;
      }
      group.readCells(slot, cells);
      const { newest } = cells;
      addUsage(cells, decision.window, totalCost);
      group.setLastLimit(slot, item.lastLimit);
      group.writeCells(slot, newest, cells);
    }
  }

  /** Nothing was consumed: what is remaining is what was there before. */
  #reportUnchanged(): void {
    const looking = this.#zeroCostParameters;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, parameters, decision } = item;
      if (!decision.allowed) continue;
      table.group.select(item);
      this.#readCounter(item);
      looking.limit = parameters.limit;
      looking.durationMs = parameters.durationMs;
      looking.rule = parameters.rule;
      judge(this.#cells, item.nowMs, looking, decision);
    }
  }
}

function newItem(table: CounterTable): BatchItem {
  return {
    ...{ h0: 0, h1: 0, h2: 0, h3: 0, namespaceTag: 0, parameters: EMPTY_PARAMETERS, table },
    ...{
      lock: 0,
      bucketA: 0,
      bucketB: 0,
      preferredSlotA: 0,
      preferredSlotB: 0,
      nowMs: 0,
      slot: NO_SLOT,
      previousSameCounter: undefined,
      nextSameCounter: undefined,
    },
    ...{ totalCost: 0, lastLimit: 0, decision: newDecision() },
  };
}

function isSameCounter(a: BatchItem, b: BatchItem): boolean {
  if (a.h3 !== b.h3 || a.h0 !== b.h0 || a.h1 !== b.h1 || a.h2 !== b.h2) return false;
  return a.parameters.durationMs === b.parameters.durationMs;
}
