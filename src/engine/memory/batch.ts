/**
 * Decides many checks together, all or nothing: each is judged in its order, after the checks
 * before it; if all are allowed all are counted, else none is.
 *
 * The locks of all groups in question are held from the first look-up to the last store, so no
 * thread sees a part of it. They are taken in one order everywhere, by shard and group, and each
 * wait is bounded (`lock.ts`), so no order of checks leads to a deadlock. Who holds the lock of a
 * group takes no other lock but those of holds, which come after all groups. The work is bounded by
 * the number of checks: each is found, judged and counted a fixed number of times.
 *
 * Slots are found when all checks pass. When a new counter finds none, and the policy denies it,
 * the new counters before it are removed again; a counter that was evicted for one of them is lost.
 */

import { MULTI_LIMIT_MAX, SHARDS } from '../../core/constants.ts';
import {
  type CheckParameters,
  type FullTablePolicy,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import { type Identity, type MutableIdentity, newIdentity } from '../../core/hash.ts';
import { NO_BURST, RULE } from '../../core/window-rules.ts';
import { applyFullTablePolicy } from '../table/full-table-policy.ts';
import { type Location, locate, newLocation } from '../table/group.ts';
import { NO_SLOT, type Slot } from '../table/layout.ts';
import { LockOrder } from '../table/lock-order.ts';
import { shardOf } from '../table/shard.ts';
import { find } from '../table/slot.ts';
import { count, counterKey, judge } from '../windows/registry.ts';
import { type Cells, clearCells, copyCells, newCells } from '../windows/rule.ts';
import type { CounterTable } from './table.ts';

/** What is done together with a batch, while the locks of its groups are held. */
export interface BatchCompanion {
  /** @returns false: the batch is denied, whatever its counters say */
  begin(nowMs: number): boolean;
  /** All checks are counted. */
  record(): void;
  /** Called after a call of `begin` that returned. */
  end(): void;
}

interface BatchItem {
  id: MutableIdentity;
  location: Location;
  namespaceTag: number;
  parameters: CheckParameters;
  table: CounterTable;
  /** That of its counter. */
  key: number;
  /** The time in its group. */
  nowMs: number;
  /** NO_SLOT: its counter is new. */
  slot: Slot;
  /** The nearest checks of the same counter. */
  previousSameCounter: BatchItem | undefined;
  nextSameCounter: BatchItem | undefined;
  /** Its counter after this check and those before it. */
  cells: Cells;
  /** Whether one of these checks has a cost that counts. */
  hasUsage: boolean;
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
  /** Whether counters were inserted, which may have evicted others of this batch. */
  #hasInserted = false;
  readonly #lockOrder = new LockOrder();
  readonly #scratchCells = newCells();
  readonly #scratchParameters: CheckParameters = { ...EMPTY_PARAMETERS };
  readonly #scratchDecision = newDecision();

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
    const { id, location } = item;
    id.h0 = h0;
    id.h1 = h1;
    id.h2 = h2;
    id.h3 = h3;
    item.namespaceTag = namespaceTag;
    item.parameters = parameters;
    const shard = shardOf(id);
    item.table = this.#tables[shard];
    locate(item.table, id, location);
    this.#lockOrder.add(number, shard, location.lock);
  }

  /** Decides what was added, and counts it if all of it passes. @returns whether it does */
  decide(nowMs: number, companion?: BatchCompanion): boolean {
    const order = this.#lockOrder;
    order.sort(this.#length);
    this.#prefetch();
    let locked = 0;
    let hasBegun = false;
    try {
      for (; locked < this.#length; locked++) {
        const { table, location } = this.#itemAt(locked);
        if (!order.sharesLock(locked)) table.acquire(location.lock);
      }
      this.#linkSameCounters();
      this.#hasInserted = false;
      const isPossible = companion === undefined || companion.begin(nowMs);
      hasBegun = companion !== undefined;
      const passed = this.#judgeAll(nowMs) && isPossible && this.#insertNewCounters();
      if (passed) {
        this.#recordUsage();
        companion?.record();
      } else this.#reportUnchanged();
      return passed;
    } finally {
      if (hasBegun) companion?.end();
      while (locked-- > 0) {
        const { table, location } = this.#itemAt(locked);
        if (!order.sharesLock(locked)) table.release(location.lock);
      }
    }
  }

  /**
   * The decision on a check, by its number. `allowed` is that of the check by itself. When not all
   * passed, `remaining` is without any check of this batch, and that of a denied check is what its
   * rule says.
   */
  decision(number: number): TableDecision {
    return this.#items[number].decision;
  }

  /** Loads all lines in parallel; one after the other takes several times as long. */
  #prefetch(): void {
    for (let number = 0; number < this.#length; number++) {
      const { table, location } = this.#items[number];
      table.group.prefetch(location);
    }
  }

  #itemAt(position: number): BatchItem {
    return this.#items[this.#lockOrder.checkAt(position)];
  }

  /** Finds the checks of the same counter, which have the same lock, in their order. */
  #linkSameCounters(): void {
    let first = 0;
    for (let position = 0; position < this.#length; position++) {
      const item = this.#itemAt(position);
      const { rule, durationMs } = item.parameters;
      item.key = counterKey(rule, durationMs);
      item.previousSameCounter = undefined;
      item.nextSameCounter = undefined;
      if (!this.#lockOrder.sharesLock(position)) first = position;
      for (let earlier = position - 1; earlier >= first; earlier--) {
        const other = this.#itemAt(earlier);
        if (!isSameCounter(item, other)) continue;
        item.previousSameCounter = other;
        other.nextSameCounter = item;
        break;
      }
    }
  }

  /** @returns whether all are allowed */
  #judgeAll(nowMs: number): boolean {
    let passed = true;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, location, parameters, previousSameCounter, cells, decision } = item;
      item.nowMs = table.group.advanceTime(location.lock, nowMs);
      if (previousSameCounter === undefined) {
        this.#readCounter(item);
        item.hasUsage = false;
      } else {
        item.slot = previousSameCounter.slot;
        copyCells(previousSameCounter.cells, cells);
        item.hasUsage = previousSameCounter.hasUsage;
      }
      decision.outcome = OUTCOME.decided;
      judge(cells, item.nowMs, parameters, decision);
      const { rule, cost } = parameters;
      if (!decision.allowed) {
        passed = false;
        if (item.slot !== NO_SLOT) {
          table.group.protectDenied(item.slot, rule, decision.window, this.#scratchCells);
        }
      } else if (cost !== 0) {
        count(cells, decision.window, cost, parameters);
        item.hasUsage = true;
      }
    }
    return passed;
  }

  /**
   * Finds and reads the counter of a check. An expired one, which may be overwritten, is removed.
   */
  #readCounter(item: BatchItem): void {
    const { table, location, id, key, cells } = item;
    const { group } = table;
    item.slot = find(table, location, id, key);
    if (item.slot !== NO_SLOT) {
      if (!group.isExpired(item.slot, item.nowMs)) {
        group.readCells(item.slot, cells);
        return;
      }
      group.remove(item.slot);
      item.slot = NO_SLOT;
    }
    clearCells(cells);
  }

  /** Inserts the new counters, each with all of its usage. @returns false: one found no slot */
  #insertNewCounters(): boolean {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      if (!needsInsert(item)) continue;
      this.#insert(item);
      if (item.decision.outcome !== OUTCOME.full) continue;
      const earliestEndMs = item.table.group.earliestEndMs(item.location);
      let isAllowed = true;
      for (
        let check: BatchItem | undefined = item;
        check !== undefined;
        check = check.previousSameCounter
      ) {
        const { parameters, decision } = check;
        if (parameters.cost === 0) {
          decision.outcome = OUTCOME.decided;
          continue;
        }
        decision.outcome = OUTCOME.full;
        isAllowed = applyFullTablePolicy(this.#fullTablePolicy, earliestEndMs, decision);
      }
      if (isAllowed) continue;
      this.#removeInserted(number);
      return false;
    }
    return true;
  }

  #insert({ table, location, id, namespaceTag, nowMs, key, cells, decision }: BatchItem): void {
    this.#hasInserted = true;
    decision.outcome = table.group.insert(location, id, namespaceTag, nowMs, key, cells);
  }

  /** @param end the number of the first check whose counter is not inserted */
  #removeInserted(end: number): void {
    for (let number = 0; number < end; number++) {
      const item = this.#items[number];
      if (!needsInsert(item)) continue;
      const { table, location, id, key } = item;
      const slot = find(table, location, id, key);
      if (slot !== NO_SLOT) table.group.remove(slot);
    }
  }

  /** Stores the usage of the counters that existed. */
  #recordUsage(): void {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, location, id, parameters, key, slot, cells } = item;
      if (item.nextSameCounter !== undefined || slot === NO_SLOT || !item.hasUsage) continue;
      // A new counter of this batch may have evicted it.
      if (this.#hasInserted && find(table, location, id, key) !== slot) {
        countAnew(item);
        this.#insert(item);
      } else table.group.writeCells(slot, parameters.rule, cells);
    }
  }

  /** Not all passed, and nothing was counted: `remaining` is what it was before. */
  #reportUnchanged(): void {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { decision } = item;
      if (decision.allowed) this.#judgeWithCost(item, 0, decision);
      else if (item.previousSameCounter !== undefined && decision.outcome !== OUTCOME.full) {
        this.#delayPassing(item);
      }
    }
  }

  /** A denied check passes when the allowed checks before it on its counter pass with it. */
  #delayPassing(item: BatchItem): void {
    let { cost } = item.parameters;
    let earlier = item.previousSameCounter;
    for (; earlier !== undefined; earlier = earlier.previousSameCounter) {
      if (earlier.decision.allowed) cost += earlier.parameters.cost;
    }
    const together = this.#scratchDecision;
    this.#judgeWithCost(item, cost, together);
    item.decision.passesAt = together.passesAt;
  }

  /** Judges a check by its counter without this batch. */
  #judgeWithCost(item: BatchItem, cost: number, decision: TableDecision): void {
    const { parameters, cells, nowMs } = item;
    const scratch = this.#scratchParameters;
    this.#readCounter(item);
    scratch.limit = parameters.limit;
    scratch.durationMs = parameters.durationMs;
    scratch.cost = cost;
    scratch.rule = parameters.rule;
    scratch.burst = parameters.burst;
    judge(cells, nowMs, scratch, decision);
  }
}

function newItem(table: CounterTable): BatchItem {
  return {
    id: newIdentity(),
    location: newLocation(),
    namespaceTag: 0,
    parameters: EMPTY_PARAMETERS,
    table,
    key: 0,
    nowMs: 0,
    slot: NO_SLOT,
    previousSameCounter: undefined,
    nextSameCounter: undefined,
    cells: newCells(),
    hasUsage: false,
    decision: newDecision(),
  };
}

function isSameCounter({ id: a, key }: BatchItem, other: BatchItem): boolean {
  const { id: b } = other;
  if (a.h3 !== b.h3 || a.h0 !== b.h0 || a.h1 !== b.h1 || a.h2 !== b.h2) return false;
  return key === other.key;
}

/** Whether a check is the last of a new counter that has usage. */
function needsInsert({ nextSameCounter, slot, hasUsage }: BatchItem): boolean {
  return nextSameCounter === undefined && slot === NO_SLOT && hasUsage;
}

/** Counts the checks of a counter that was evicted, from no usage. @param last the last of them */
function countAnew(last: BatchItem): void {
  let item = last;
  while (item.previousSameCounter !== undefined) item = item.previousSameCounter;
  const { cells } = last;
  clearCells(cells);
  for (let next: BatchItem | undefined = item; next !== undefined; next = next.nextSameCounter) {
    const { parameters, decision } = next;
    if (parameters.cost !== 0) count(cells, decision.window, parameters.cost, parameters);
  }
}
