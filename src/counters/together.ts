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

import { MULTI_LIMIT_MAX, SHARDS } from '../limits.ts';
import { shardOf } from '../shards/shard.ts';
import { newDecision, type OnFull, OUTCOME, type TableDecision } from './decision.ts';
import type { Spot } from './group.ts';
import type { Identity, MutableIdentity } from './hash.ts';
import { NO_SLOT } from './layout.ts';
import { LockOrder } from './lock-order.ts';
import { type CounterTable, clear, judge, noRoom } from './table.ts';
import { type Cells, count, isExpired, NO_WINDOW, type Terms, windowAt } from './window.ts';

/** A check among others. */
interface Item extends MutableIdentity, Spot {
  namespaceTag: number;
  terms: Terms;
  table: CounterTable;
  /** The time in its group. */
  nowMs: number;
  /** Where its counter lies, NO_SLOT for a newcomer. */
  slot: number;
  /** The nearest checks of the same counter, before it and behind it. */
  before: Item | undefined;
  behind: Item | undefined;
  /** What the checks of its counter take, up to this one, and under which limit the last did. */
  taken: number;
  limit: number;
  decision: TableDecision;
}

const NO_TERMS: Terms = { limit: 0, durationMs: 0, cost: 0, isSliding: false };

export class Together {
  readonly #tables: readonly CounterTable[];
  readonly #onFull: OnFull;
  readonly #items: Item[];
  #length = 0;
  /** Whether newcomers have got places, which may have been those of others. */
  #hasPlaced = false;
  readonly #order = new LockOrder();
  readonly #cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };
  readonly #looking: Terms = { ...NO_TERMS };

  /** @param tables one for each shard */
  constructor(tables: readonly CounterTable[], onFull: OnFull) {
    if (tables.length !== SHARDS) throw new Error(`${tables.length} tables for ${SHARDS} shards`);
    this.#tables = tables;
    this.#onFull = onFull;
    this.#items = Array.from({ length: MULTI_LIMIT_MAX }, () => newItem(tables[0]));
  }

  /** Begins with no checks. */
  begin(): void {
    this.#length = 0;
  }

  /** Adds one of at most MULTI_LIMIT_MAX checks. @param terms read by `decide` */
  add({ h0, h1, h2, h3 }: Identity, namespaceTag: number, terms: Terms): void {
    const number = this.#length++;
    const item = this.#items[number];
    item.h0 = h0;
    item.h1 = h1;
    item.h2 = h2;
    item.h3 = h3;
    item.namespaceTag = namespaceTag;
    item.terms = terms;
    const shard = shardOf(item);
    item.table = this.#tables[shard];
    const { group } = item.table;
    group.seek(item);
    item.lock = group.lock;
    item.a = group.a;
    item.b = group.b;
    item.ownA = group.ownA;
    item.ownB = group.ownB;
    this.#order.add(number, shard, item.lock);
  }

  /** Decides what was added, and counts it if all of it passes. @returns whether it does */
  decide(nowMs: number): boolean {
    const order = this.#order;
    order.sort(this.#length);
    this.#fetch();
    let locked = 0;
    try {
      for (; locked < this.#length; locked++) {
        const item = this.#at(locked);
        if (!order.sharesLock(locked)) item.table.acquire(item.lock);
      }
      this.#chain();
      this.#hasPlaced = false;
      const passed = this.#judge(nowMs) && this.#placeNewcomers();
      if (passed) this.#count();
      else this.#showUnchanged();
      return passed;
    } finally {
      while (locked-- > 0) {
        const item = this.#at(locked);
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
  #fetch(): void {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { group } = item.table;
      group.goTo(item);
      group.fetch();
    }
  }

  #at(place: number): Item {
    return this.#items[this.#order.at(place)];
  }

  /** Finds the checks of the same counter, which have the same lock, in their order. */
  #chain(): void {
    let first = 0;
    for (let place = 0; place < this.#length; place++) {
      const item = this.#at(place);
      item.before = undefined;
      item.behind = undefined;
      if (!this.#order.sharesLock(place)) first = place;
      for (let earlier = place - 1; earlier >= first; earlier--) {
        const other = this.#at(earlier);
        if (!isSameCounter(item, other)) continue;
        item.before = other;
        other.behind = item;
        break;
      }
    }
  }

  /** @returns whether all are admitted */
  #judge(nowMs: number): boolean {
    const cells = this.#cells;
    let passed = true;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, terms, before, decision } = item;
      const { group } = table;
      group.goTo(item);
      item.nowMs = group.advance(nowMs);
      this.#find(item);
      const taken = before === undefined ? 0 : before.taken;
      if (taken > 0) count(cells, windowAt(cells, item.nowMs, terms.durationMs), taken);
      decision.outcome = OUTCOME.decided;
      judge(cells, item.nowMs, terms, decision);
      item.taken = decision.admitted ? taken + terms.cost : taken;
      item.limit = terms.cost === 0 && before !== undefined ? before.limit : terms.limit;
      if (decision.admitted) continue;
      passed = false;
      if (item.slot !== NO_SLOT) table.guard(item.slot, terms, decision.window);
    }
    return passed;
  }

  /** Finds and reads the counter of a check. An expired one could be taken over: it is removed. */
  #find(item: Item): void {
    const { table, terms, nowMs } = item;
    const { group } = table;
    const cells = this.#cells;
    item.slot = group.find(item, terms.durationMs);
    if (item.slot !== NO_SLOT) {
      group.read(item.slot, cells);
      if (!isExpired(cells.newest, terms.durationMs, nowMs)) return;
      group.remove(item, terms.durationMs, nowMs);
      item.slot = NO_SLOT;
    }
    clear(cells);
  }

  /** Makes the counters that are not there yet, each with all it takes. @returns false: no room */
  #placeNewcomers(): boolean {
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      if (item.behind !== undefined || item.slot !== NO_SLOT || item.taken === 0) continue;
      item.table.group.goTo(item);
      this.#place(item);
      if (item.decision.outcome !== OUTCOME.full) continue;
      // Each of its checks is answered so.
      for (let of: Item | undefined = item; of !== undefined; of = of.before) {
        of.decision.outcome = of.terms.cost === 0 ? OUTCOME.decided : OUTCOME.full;
        if (of.terms.cost !== 0) noRoom(of.table.group, this.#onFull, of.decision);
      }
      if (this.#onFull === 'allow') continue;
      this.#removeNewcomers(number);
      return false;
    }
    return true;
  }

  #place(item: Item): void {
    const { table, terms, namespaceTag, nowMs, decision, taken, limit } = item;
    const { durationMs } = terms;
    const cells = this.#cells;
    clear(cells);
    count(cells, decision.window, taken);
    this.#hasPlaced = true;
    decision.outcome = table.group.place(item, namespaceTag, nowMs, cells, durationMs, limit);
  }

  /** @param end the number of the first check that may have none */
  #removeNewcomers(end: number): void {
    for (let number = 0; number < end; number++) {
      const item = this.#items[number];
      const { table, terms, nowMs } = item;
      if (item.behind !== undefined || item.slot !== NO_SLOT || item.taken === 0) continue;
      table.group.goTo(item);
      table.group.remove(item, terms.durationMs, nowMs);
    }
  }

  /** Counts in the counters that were there. */
  #count(): void {
    const cells = this.#cells;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, terms, decision, taken, slot } = item;
      if (item.behind !== undefined || slot === NO_SLOT || taken === 0) continue;
      const { group } = table;
      group.goTo(item);
      // A newcomer among the others may have taken its place.
      if (this.#hasPlaced && group.find(item, terms.durationMs) !== slot) {
        this.#place(item);
        continue;
      }
      group.read(slot, cells);
      const { newest } = cells;
      count(cells, decision.window, taken);
      group.admittedUnder(slot, item.limit);
      group.write(slot, newest, cells);
    }
  }

  /** Nothing was consumed: what is remaining is what was there before. */
  #showUnchanged(): void {
    const looking = this.#looking;
    for (let number = 0; number < this.#length; number++) {
      const item = this.#items[number];
      const { table, terms, decision } = item;
      if (!decision.admitted) continue;
      table.group.goTo(item);
      this.#find(item);
      looking.limit = terms.limit;
      looking.durationMs = terms.durationMs;
      looking.isSliding = terms.isSliding;
      judge(this.#cells, item.nowMs, looking, decision);
    }
  }
}

function newItem(table: CounterTable): Item {
  return {
    ...{ h0: 0, h1: 0, h2: 0, h3: 0, namespaceTag: 0, terms: NO_TERMS, table },
    ...{
      lock: 0,
      a: 0,
      b: 0,
      ownA: 0,
      ownB: 0,
      nowMs: 0,
      slot: NO_SLOT,
      before: undefined,
      behind: undefined,
    },
    ...{ taken: 0, limit: 0, decision: newDecision() },
  };
}

function isSameCounter(a: Item, b: Item): boolean {
  if (a.h3 !== b.h3 || a.h0 !== b.h0 || a.h1 !== b.h1 || a.h2 !== b.h2) return false;
  return a.terms.durationMs === b.terms.durationMs;
}
