/**
 * One shard's counters in shared memory, and the decision on them: the hot path of the service.
 *
 * Any number of threads attach to the same buffer; each call, but for `look`, holds the lock of one
 * group from its look-up to its last store, so a decision is exact and a group's contents are never
 * seen half-written. `lock.ts` says what happens where a thread is descheduled or dies in there,
 * `group.ts` what it leaves behind. Checks that are decided together hold several locks:
 * `together.ts`.
 *
 * Capacity is fixed: no growth, no rehash, no garbage. An identity may lie in two buckets of its
 * group. Where neither has room, `victim.ts` says who goes.
 */

import {
  type CheckParameters,
  DEDUCTION_OUTCOME,
  type Decision,
  type FullTablePolicy,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { RULE } from '../../core/window-rules.ts';
import { type CounterSnapshot, Group } from './group.ts';
import { NO_SLOT } from './layout.ts';
import { acquire, release } from './lock.ts';
import { attachTable, type TableMemory } from './table-memory.ts';
import { judgeFixed } from './windows/fixed.ts';
import { judgeSliding } from './windows/sliding.ts';
import {
  addUsage,
  type Cells,
  isCurrent,
  isExpired,
  moveToWindow,
  NO_WINDOW,
} from './windows/window.ts';

export type { CounterSnapshot };

export class CounterTable implements TableMemory {
  readonly groups: number;
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly group: Group;
  readonly #owner: number;
  readonly #fullTablePolicy: FullTablePolicy;
  readonly #onWait: () => void;
  readonly #cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };

  /**
   * @param owner the incarnation of the calling thread, from 1; its locks carry it
   * @param fullTablePolicy decides a new counter without a slot: deny, or allow uncounted
   * @param onWait called now and then while the thread waits for a lock
   * @throws as `attachTable` does
   */
  constructor(
    buffer: SharedArrayBuffer,
    shard: number,
    owner: number,
    fullTablePolicy: FullTablePolicy,
    onWait: () => void,
  ) {
    if (!(owner >= 1)) throw new Error(`shard ${shard}: ${owner} cannot own a lock`);
    const { words, doubles, groups } = attachTable(buffer, shard);
    this.words = words;
    this.doubles = doubles;
    this.groups = groups;
    this.group = new Group(this);
    this.#owner = owner;
    this.#fullTablePolicy = fullTablePolicy;
    this.#onWait = onWait;
  }

  /**
   * Decides one check of an identity, and counts it.
   * @param namespaceTag the first word of the state of its namespace
   * @param parameters a cost of 0 only looks; a refusal, too, changes no amount
   * @param isDeducted false: an admitted check gets its counter, but is deducted later, by `deduct`
   */
  decide(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    isDeducted: boolean,
    decision: TableDecision,
  ): void {
    const { group } = this;
    group.locate(id);
    decision.outcome = OUTCOME.decided;
    const { lock } = group;
    this.acquire(lock);
    try {
      const now = group.advanceTime(nowMs);
      const slot = group.find(id, parameters.durationMs);
      if (slot !== NO_SLOT) this.#decideExisting(slot, now, parameters, isDeducted, decision);
      else this.#decideNew(id, namespaceTag, now, parameters, isDeducted, decision);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Judges a check by its counter as it stands, without the lock, and counts nothing. A counter
   * that is being written may look as before, which is what `async` allows, but to a clock that is
   * still in the window before without what was carried over there; one that makes room for
   * another just now, as that other or as none ever was. A refusal is no answer therefore, and has
   * to be had from `decide`; an admission is deducted like any other.
   * @returns whether `decision` is one: the check was admitted by a counter that is there
   */
  peek(id: Identity, nowMs: number, parameters: CheckParameters, decision: TableDecision): boolean {
    const { group } = this;
    group.locate(id);
    const slot = group.find(id, parameters.durationMs);
    if (slot === NO_SLOT) return false;
    group.readCells(slot, this.#cells);
    judge(this.#cells, nowMs, parameters, decision);
    decision.outcome = OUTCOME.decided;
    return decision.allowed;
  }

  /**
   * Deducts a check that `look` or `decide` admitted without counting it.
   * @param window the number of the window in which it was admitted
   * @returns one of DEDUCTION
   */
  deduct(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    window: number,
    { limit, durationMs, cost }: CheckParameters,
  ): number {
    const { group } = this;
    group.locate(id);
    const { lock } = group;
    this.acquire(lock);
    try {
      const now = group.advanceTime(nowMs);
      if (isExpired(window, durationMs, now)) return DEDUCTION_OUTCOME.windowEnded;
      const cells = this.#cells;
      const slot = group.find(id, durationMs);
      if (slot !== NO_SLOT) {
        group.readCells(slot, cells);
        const { newest } = cells;
        if (!addUsage(cells, window, cost)) return DEDUCTION_OUTCOME.windowEnded;
        group.setLastLimit(slot, limit);
        group.writeCells(slot, newest, cells);
        return DEDUCTION_OUTCOME.applied;
      }
      // Its counter made room for others since; for a window that is over it displaces none.
      if (!isCurrent(window, durationMs, now)) return DEDUCTION_OUTCOME.windowEnded;
      clearCells(cells);
      addUsage(cells, window, cost);
      const outcome = group.insert(id, namespaceTag, now, cells, durationMs, limit);
      if (outcome === OUTCOME.full) return DEDUCTION_OUTCOME.full;
      return outcome === OUTCOME.evicted ? DEDUCTION_OUTCOME.evicted : DEDUCTION_OUTCOME.applied;
    } finally {
      this.release(lock);
    }
  }

  /**
   * Gives tokens back to the window in which they were admitted.
   * @returns how many: no more than were used, and none when the window is past
   */
  refund(id: Identity, nowMs: number, window: number, durationMs: number, cost: number): number {
    const { group } = this;
    group.locate(id);
    const { lock } = group;
    this.acquire(lock);
    try {
      const now = group.advanceTime(nowMs);
      if (!isCurrent(window, durationMs, now)) return 0;
      const slot = group.find(id, durationMs);
      if (slot === NO_SLOT) return 0;
      const cells = this.#cells;
      group.readCells(slot, cells);
      const refunded = window === cells.newest ? Math.min(cost, cells.current) : 0;
      if (refunded === 0) return 0;
      cells.current -= refunded;
      group.writeCells(slot, cells.newest, cells);
      return refunded;
    } finally {
      this.release(lock);
    }
  }

  /**
   * Removes the counter of an identity and a duration, or those of all its durations.
   * @returns how many there were
   */
  reset(id: Identity, nowMs: number, durationMs: number | undefined): number {
    const { group } = this;
    group.locate(id);
    const { lock } = group;
    this.acquire(lock);
    try {
      return group.remove(id, durationMs, group.advanceTime(nowMs));
    } finally {
      this.release(lock);
    }
  }

  /** Reads the live counters of an identity, of one duration or of all, and changes none. */
  inspect(id: Identity, nowMs: number, durationMs: number | undefined): CounterSnapshot[] {
    const { group } = this;
    group.locate(id);
    const { lock } = group;
    this.acquire(lock);
    try {
      return group.read(id, durationMs, nowMs);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Whoever is refused keeps its counter as long as what it used counts: in its window, and, where
   * the sliding window carried it over, in the next. Under the lock.
   */
  protectDenied(slot: number, { rule }: CheckParameters, window: number): void {
    const { group } = this;
    const cells = this.#cells;
    group.readCells(slot, cells);
    const { newest } = cells;
    if (window > newest) {
      moveToWindow(cells, window);
      if (rule !== RULE.sliding || cells.previous === 0) return;
      group.writeCells(slot, newest, cells);
    }
    group.markDenied(slot, window);
  }

  /** @param lock that of a group */
  acquire(lock: number): void {
    acquire(this.words, lock, this.#owner, this.#onWait);
  }

  release(lock: number): void {
    release(this.words, lock);
  }

  #decideExisting(
    slot: number,
    nowMs: number,
    parameters: CheckParameters,
    isDeducted: boolean,
    decision: TableDecision,
  ): void {
    const { group } = this;
    const cells = this.#cells;
    group.readCells(slot, cells);
    const { newest } = cells;
    judge(cells, nowMs, parameters, decision);
    if (!decision.allowed) this.protectDenied(slot, parameters, decision.window);
    else if (parameters.cost !== 0 && isDeducted) {
      addUsage(cells, decision.window, parameters.cost);
      group.setLastLimit(slot, parameters.limit);
      group.writeCells(slot, newest, cells);
    }
  }

  #decideNew(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    isDeducted: boolean,
    decision: TableDecision,
  ): void {
    const { group } = this;
    const cells = this.#cells;
    const { limit, durationMs, cost } = parameters;
    clearCells(cells);
    judge(cells, nowMs, parameters, decision);
    // What is refused with nothing used, and what costs nothing, needs no counter.
    if (!decision.allowed || cost === 0) return;
    addUsage(cells, decision.window, isDeducted ? cost : 0);
    decision.outcome = group.insert(id, namespaceTag, nowMs, cells, durationMs, limit);
    if (decision.outcome === OUTCOME.full)
      applyFullTablePolicy(group, this.#fullTablePolicy, decision);
  }
}

/** Makes a counter of one that was never used. */
export function clearCells(cells: Cells): void {
  cells.newest = NO_WINDOW;
  cells.current = 0;
  cells.previous = 0;
}

export function judge(
  cells: Cells,
  nowMs: number,
  parameters: CheckParameters,
  decision: Decision,
): void {
  if (parameters.rule === RULE.sliding) judgeSliding(cells, nowMs, parameters, decision);
  else judgeFixed(cells, nowMs, parameters, decision);
}

/** What a newcomer is answered that would have been admitted, and for whom there is no room. */
export function applyFullTablePolicy(
  group: Group,
  fullTablePolicy: FullTablePolicy,
  decision: TableDecision,
): void {
  if (fullTablePolicy === 'allow') return;
  decision.allowed = false;
  decision.remaining = 0;
  decision.reset = group.earliestWindowEnd();
}
