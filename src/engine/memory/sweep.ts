/**
 * Removes the expired counters of one shard and counts its live ones, a few groups in a step. It
 * belongs to the shard's worker. A step never waits: a group whose lock is held is swept in the
 * next round. A worker that dies in here has removed fewer counters, and nothing else.
 *
 * A group is skipped while no decision was made in it since the last sweep and nothing in it has
 * expired. A table without traffic so costs one read of each lock line.
 */

import {
  firstSlot,
  GROUP_SLOTS,
  groupAt,
  keyAt,
  latestMsAt,
  lockAt,
  nextMarkedSlot,
  type Slot,
  slotAt,
  tagAt,
  unmarkSlot,
} from '../table/layout.ts';
import { release, tryAcquire } from '../table/lock.ts';
import type { TableMemory } from '../table/table-memory.ts';
import { expiryMs, isExpired } from '../windows/registry.ts';
import { newestAt } from './layout.ts';

/** Groups that a step sweeps or finds locked: a few microseconds each. */
const STEP_GROUPS_MAX = 4;

export class Sweeper {
  /** Counters removed since the start. */
  removedCount = 0;
  readonly #table: TableMemory;
  readonly #owner: number;
  /**
   * By group: the time of decisions up to which it was swept, when its next counter expires, and
   * its live counters. A millisecond that is not over is swept again.
   */
  readonly #sweptUntilMs: Float64Array;
  readonly #nextExpiryMs: Float64Array;
  readonly #liveCounts: Uint16Array;
  #nextGroup = 0;

  /** @param owner of the locks that the calling thread takes: see `lock.ts` */
  constructor(table: TableMemory, owner: number) {
    this.#table = table;
    this.#owner = owner;
    this.#sweptUntilMs = new Float64Array(table.groups);
    this.#nextExpiryMs = new Float64Array(table.groups).fill(Number.POSITIVE_INFINITY);
    this.#liveCounts = new Uint16Array(table.groups);
  }

  /** Live counters, as of the last sweep of each group. */
  get liveCount(): number {
    return this.#liveCounts.reduce((sum, live) => sum + live, 0);
  }

  /** Sweeps some of the groups that need it. @returns whether the round is done */
  step(nowMs: number): boolean {
    let swept = 0;
    while (swept < STEP_GROUPS_MAX && this.#nextGroup < this.#table.groups) {
      if (this.#sweepGroup(this.#nextGroup++, nowMs)) swept++;
    }
    if (this.#nextGroup < this.#table.groups) return false;
    this.#nextGroup = 0;
    return true;
  }

  /** @returns false: the group was skipped */
  #sweepGroup(group: number, nowMs: number): boolean {
    const { words, doubles } = this.#table;
    const lock = lockAt(group);
    // Time in a group never runs back; see `group.ts`.
    const latestMs = doubles[latestMsAt(lock)];
    if (latestMs <= this.#sweptUntilMs[group] && nowMs < this.#nextExpiryMs[group]) return false;
    const atMs = Math.max(latestMs, nowMs);
    if (!this.#scanGroup(group, atMs)) {
      this.#sweptUntilMs[group] = Math.min(latestMs, nowMs - 1);
      return true;
    }
    if (!tryAcquire(words, lock, this.#owner)) return true;
    try {
      const lockedMs = Math.max(doubles[latestMsAt(lock)], nowMs);
      // A counter that is removed now must be expired for a thread with an older time, too.
      doubles[latestMsAt(lock)] = lockedMs;
      this.#removeExpired(group, lockedMs);
      this.#scanGroup(group, lockedMs);
      this.#sweptUntilMs[group] = Math.min(lockedMs, nowMs - 1);
    } finally {
      release(words, lock);
    }
    return true;
  }

  /**
   * Counts the live counters of a group, and finds when the next of them expires. Without the lock
   * it may see a slot before or after a write. @returns whether a counter has expired
   */
  #scanGroup(group: number, nowMs: number): boolean {
    const { words, doubles } = this.#table;
    const lock = lockAt(group);
    const slots = this.#slotsOf(group);
    let live = 0;
    let nextMs = Number.POSITIVE_INFINITY;
    let hasExpired = false;
    for (
      let i = nextMarkedSlot(words, lock, 0);
      i < GROUP_SLOTS;
      i = nextMarkedSlot(words, lock, i + 1)
    ) {
      const slot = slotAt(slots, i);
      if (words[tagAt(slot)] === 0) continue;
      const dueMs = expiryMs(doubles[keyAt(slot)], doubles[newestAt(slot)]);
      if (dueMs <= nowMs) hasExpired = true;
      else {
        live++;
        nextMs = Math.min(nextMs, dueMs);
      }
    }
    this.#liveCounts[group] = live;
    this.#nextExpiryMs[group] = nextMs;
    return hasExpired;
  }

  #removeExpired(group: number, nowMs: number): void {
    const { words, doubles } = this.#table;
    const lock = lockAt(group);
    const slots = this.#slotsOf(group);
    for (
      let i = nextMarkedSlot(words, lock, 0);
      i < GROUP_SLOTS;
      i = nextMarkedSlot(words, lock, i + 1)
    ) {
      const slot = slotAt(slots, i);
      const isUsed = words[tagAt(slot)] !== 0;
      if (isUsed && !isExpired(doubles[keyAt(slot)], doubles[newestAt(slot)], nowMs)) continue;
      words[tagAt(slot)] = 0;
      unmarkSlot(words, lock, i);
      if (isUsed) this.removedCount++;
    }
  }

  #slotsOf(group: number): Slot {
    return groupAt(firstSlot(this.#table.groups), group);
  }
}
