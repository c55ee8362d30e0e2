/**
 * Removes the counters of deleted namespaces from all tables, a few groups in a step. It belongs to
 * the main thread. A step never waits: a group whose lock is held is tried again in the next step.
 * A group that has none of these counters is read without its lock.
 *
 * Counters have a tag of their namespace, of 32 bits: the caller leaves out a tag that another
 * namespace has too.
 */

import {
  firstSlot,
  GROUP_SLOTS,
  groupAt,
  latestMsAt,
  lockAt,
  nextMarkedSlot,
  slotAt,
  tagAt,
  unmarkSlot,
} from '../table/layout.ts';
import { MAIN_THREAD_OWNER, release, tryAcquire } from '../table/lock.ts';
import type { TableMemory } from '../table/table-memory.ts';
import { changedAt, namespaceAt } from './layout.ts';

/** Groups of a step: some tens of microseconds each, where they are full. */
const STEP_GROUPS = 32;

export class NamespaceRemoval {
  /** Counters removed so far. */
  removedCount = 0;
  readonly #tables: readonly TableMemory[];
  readonly #namespaceTags: ReadonlySet<number>;
  #table = 0;
  #nextGroup = 0;

  constructor(tables: readonly TableMemory[], namespaceTags: ReadonlySet<number>) {
    this.#tables = tables;
    this.#namespaceTags = namespaceTags;
  }

  /** @returns whether all groups are done */
  step(nowMs: number): boolean {
    for (let count = 0; count < STEP_GROUPS && this.#table < this.#tables.length; count++) {
      const table = this.#tables[this.#table];
      if (!this.#removeFrom(table, this.#nextGroup, nowMs)) return false;
      if (++this.#nextGroup < table.groups) continue;
      this.#nextGroup = 0;
      this.#table++;
    }
    return this.#table === this.#tables.length;
  }

  /** @returns false: the lock is held */
  #removeFrom(table: TableMemory, group: number, nowMs: number): boolean {
    const { words, doubles } = table;
    const lock = lockAt(group);
    if (this.#findFrom(table, group, 0) === GROUP_SLOTS) return true;
    if (!tryAcquire(words, lock, MAIN_THREAD_OWNER)) return false;
    try {
      // The next checkpoint and the next sweep do not skip the group.
      words[changedAt(lock)] = 1;
      doubles[latestMsAt(lock)] = Math.max(doubles[latestMsAt(lock)], nowMs);
      const slots = groupAt(firstSlot(table.groups), group);
      for (
        let i = this.#findFrom(table, group, 0);
        i < GROUP_SLOTS;
        i = this.#findFrom(table, group, i + 1)
      ) {
        words[tagAt(slotAt(slots, i))] = 0;
        unmarkSlot(words, lock, i);
        this.removedCount++;
      }
    } finally {
      release(words, lock);
    }
    return true;
  }

  /** The first slot from `index` on with a counter to remove; GROUP_SLOTS when there is none. */
  #findFrom({ words, groups }: TableMemory, group: number, index: number): number {
    const lock = lockAt(group);
    const slots = groupAt(firstSlot(groups), group);
    for (
      let i = nextMarkedSlot(words, lock, index);
      i < GROUP_SLOTS;
      i = nextMarkedSlot(words, lock, i + 1)
    ) {
      const slot = slotAt(slots, i);
      if (words[tagAt(slot)] !== 0 && this.#namespaceTags.has(words[namespaceAt(slot)])) return i;
    }
    return GROUP_SLOTS;
  }
}
