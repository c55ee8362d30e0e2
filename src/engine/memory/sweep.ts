/**
 * Removes the expired counters of one shard and counts its live ones, a few groups in a step. It
 * belongs to the shard's worker; a step never waits: a group whose lock is held has its turn in
 * the next round. A worker that dies in here has at most removed fewer.
 *
 * A group is left alone while nobody decided in it since it was last swept and nothing in it has
 * expired, so that a table without traffic costs a look at its lock lines.
 */

import {
  bucketAt,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  LOCK_LINE,
  lockAt,
  markSlotEmpty,
  nextUsedSlot,
  SLOT,
  SLOT_WORD,
  slotAt,
} from './layout.ts';
import { release, tryAcquire } from './lock.ts';
import type { TableMemory } from './table-memory.ts';
import { isExpired } from './windows/window.ts';

/** Groups that were swept or found busy in one step: a few microseconds each. */
const STEP_GROUPS_MAX = 4;

export class Sweeper {
  /** Counters removed since the start. */
  removedCount = 0;
  readonly #table: TableMemory;
  readonly #owner: number;
  /**
   * Per group: up to which time of decisions it was looked at, when its next counter expires, how
   * many live. A millisecond that still runs is looked at again.
   */
  readonly #sweptUntilMs: Float64Array;
  readonly #nextExpiryMs: Float64Array;
  readonly #liveCounts: Uint16Array;
  #nextGroup = 0;

  /** @param owner the incarnation of the calling thread, which its locks carry */
  constructor(table: TableMemory, owner: number) {
    this.#table = table;
    this.#owner = owner;
    this.#sweptUntilMs = new Float64Array(table.groups);
    this.#nextExpiryMs = new Float64Array(table.groups).fill(Number.POSITIVE_INFINITY);
    this.#liveCounts = new Uint16Array(table.groups);
  }

  /** Live counters, as of the last look at each group. */
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

  /** @returns whether there was anything to look at */
  #sweepGroup(group: number, nowMs: number): boolean {
    const { words, doubles } = this.#table;
    const lock = lockAt(group);
    // Time in a group never runs back; see `group.ts`.
    const latestMs = doubles[lock / 2 + LOCK_LINE.latestMs];
    if (latestMs <= this.#sweptUntilMs[group] && nowMs < this.#nextExpiryMs[group]) return false;
    const atMs = Math.max(latestMs, nowMs);
    if (!this.#scanGroup(group, atMs)) {
      this.#sweptUntilMs[group] = Math.min(latestMs, nowMs - 1);
      return true;
    }
    if (!tryAcquire(words, lock, this.#owner)) return true;
    try {
      const lockedMs = Math.max(doubles[lock / 2 + LOCK_LINE.latestMs], nowMs);
      // What is removed now must count as expired for whoever comes with an older time.
      doubles[lock / 2 + LOCK_LINE.latestMs] = lockedMs;
      this.#removeExpired(group, lockedMs);
      this.#scanGroup(group, lockedMs);
      this.#sweptUntilMs[group] = Math.min(lockedMs, nowMs - 1);
    } finally {
      release(words, lock);
    }
    return true;
  }

  /**
   * Counts the live counters of a group, and when the next of them expires. Without the lock it may
   * see a slot as it was or as it will be. @returns whether an expired one is there
   */
  #scanGroup(group: number, nowMs: number): boolean {
    const { words, doubles, groups } = this.#table;
    const lock = lockAt(group);
    const slots = bucketAt(groups, group * GROUP_BUCKETS);
    let live = 0;
    let due = Number.POSITIVE_INFINITY;
    let expired = false;
    for (
      let i = nextUsedSlot(words, lock, 0);
      i < GROUP_SLOTS;
      i = nextUsedSlot(words, lock, i + 1)
    ) {
      const slot = slotAt(slots, i);
      if (words[slot * 2 + SLOT_WORD.tag] === 0) continue;
      const durationMs = doubles[slot + SLOT.duration];
      const newest = doubles[slot + SLOT.newest];
      if (isExpired(newest, durationMs, nowMs)) expired = true;
      else {
        live++;
        due = Math.min(due, (newest + 2) * durationMs);
      }
    }
    this.#liveCounts[group] = live;
    this.#nextExpiryMs[group] = due;
    return expired;
  }

  #removeExpired(group: number, nowMs: number): void {
    const { words, doubles, groups } = this.#table;
    const lock = lockAt(group);
    const slots = bucketAt(groups, group * GROUP_BUCKETS);
    for (
      let i = nextUsedSlot(words, lock, 0);
      i < GROUP_SLOTS;
      i = nextUsedSlot(words, lock, i + 1)
    ) {
      const slot = slotAt(slots, i);
      const tag = slot * 2 + SLOT_WORD.tag;
      const isUsed = words[tag] !== 0;
      if (isUsed && !isExpired(doubles[slot + SLOT.newest], doubles[slot + SLOT.duration], nowMs)) {
        continue;
      }
      words[tag] = 0;
      markSlotEmpty(words, lock, i);
      if (isUsed) this.removedCount++;
    }
  }
}
