/**
 * One shard's counters in shared memory, and the decision on them: the hot path of the service.
 *
 * Any number of threads attach to the same buffer. Each call except `peek` holds the lock of one
 * group from its look-up to its last store, so a decision is exact and no other thread sees a
 * group half written. `lock.ts` says what happens when the holder is descheduled or dies, `slot.ts`
 * what it leaves behind. Checks that are decided together hold several locks: `batch.ts`.
 *
 * Capacity is fixed: no growth, no rehash, no garbage. An identity may lie in two buckets of its
 * group. When both are full, `eviction.ts` chooses the counter to evict.
 */

import {
  type CheckParameters,
  DEDUCTION_OUTCOME,
  type FullTablePolicy,
  OUTCOME,
  type TableDecision,
} from '../../core/decision.ts';
import type { Identity } from '../../core/hash.ts';
import { hasWindows, type RuleNumber } from '../../core/window-rules.ts';
import type { ChecksOf, CounterExplanation } from '../engine.ts';
import { applyFullTablePolicy } from '../table/full-table-policy.ts';
import { type Location, locate, newLocation } from '../table/group.ts';
import {
  type Doubles,
  type Lock,
  latestMsAt,
  NO_SLOT,
  type Slot,
  type Words,
} from '../table/layout.ts';
import { acquire, release } from '../table/lock.ts';
import { find } from '../table/slot.ts';
import { attachTable, type TableMemory } from '../table/table-memory.ts';
import { type InspectedCounter, inspectCells } from '../windows/counter-state.ts';
import { explainCounters } from '../windows/prediction.ts';
import { count, counterKey, durationOfKey, judge, ruleOf, ruleOfKey } from '../windows/registry.ts';
import { type Cells, clearCells, newCells, type ReservedTokens } from '../windows/rule.ts';
import { Group } from './group.ts';

export class CounterTable implements TableMemory {
  readonly groups: number;
  readonly firstSlot: Slot;
  readonly words: Words;
  readonly doubles: Doubles;
  readonly group: Group;
  readonly #owner: number;
  readonly #fullTablePolicy: FullTablePolicy;
  readonly #onWait: () => void;
  /** Scratch of one call. */
  readonly #location: Location = newLocation();
  readonly #cells: Cells = newCells();

  /**
   * @param owner of the locks that the calling thread takes: see `lock.ts`
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
    const { words, doubles, groups, firstSlot } = attachTable(buffer, shard);
    this.words = words;
    this.doubles = doubles;
    this.groups = groups;
    this.firstSlot = firstSlot;
    this.group = new Group(this);
    this.#owner = owner;
    this.#fullTablePolicy = fullTablePolicy;
    this.#onWait = onWait;
  }

  /**
   * Decides one check of an identity, and counts it.
   * @param namespaceTag the first word of its namespace's hash state; eviction goes by it
   * @param parameters a check with a cost of 0, and a denied one, change no amount
   * @param countsNow false: `deduct` counts an allowed check later; its counter is inserted now,
   *   except with GCRA
   */
  decide(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    countsNow: boolean,
    decision: TableDecision,
  ): void {
    const location = this.#location;
    const { group } = this;
    locate(this, id, location);
    decision.outcome = OUTCOME.decided;
    const { lock } = location;
    this.acquire(lock);
    try {
      const now = group.advanceTime(lock, nowMs);
      const key = counterKey(parameters.rule, parameters.durationMs);
      const slot = find(this, location, id, key);
      if (slot !== NO_SLOT) this.#decideExisting(slot, now, parameters, countsNow, decision);
      else this.#decideNew(id, namespaceTag, now, key, parameters, countsNow, decision);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Judges a check by its counter as it stands, without the lock, and counts nothing. A counter
   * that is being written may be read as it was before, or partly so; `async` permits this. A slot
   * that is being given to another counter may be read as the other one, or as unused. So a denial
   * is not returned, and must come from `decide`; an allowed check is deducted like any other.
   * @returns whether there is a counter and it allows the check; else `decision` means nothing
   */
  peek(id: Identity, nowMs: number, parameters: CheckParameters, decision: TableDecision): boolean {
    const location = this.#location;
    const { group } = this;
    locate(this, id, location);
    const key = counterKey(parameters.rule, parameters.durationMs);
    const slot = find(this, location, id, key);
    if (slot === NO_SLOT) return false;
    group.readCells(slot, this.#cells);
    // Another counter may have got the slot meanwhile: its cells may mean something else.
    if (find(this, location, id, key) !== slot) return false;
    judge(this.#cells, nowMs, parameters, decision);
    decision.outcome = OUTCOME.decided;
    return decision.allowed;
  }

  /**
   * Deducts a check that `peek` or `decide` allowed without counting it.
   * @param window that of its decision
   * @returns one of DEDUCTION_OUTCOME
   */
  deduct(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    window: number,
    parameters: CheckParameters,
  ): number {
    const { rule, durationMs } = parameters;
    const now = this.lock(id, nowMs);
    try {
      const cells = this.#cells;
      const slot = find(this, this.#location, id, counterKey(rule, durationMs));
      if (slot === NO_SLOT) clearCells(cells);
      else this.group.readCells(slot, cells);
      return this.#deductLocked(id, namespaceTag, now, window, slot, parameters);
    } finally {
      this.unlock();
    }
  }

  /**
   * Gives tokens back.
   * @param window that of the decision, for rules that have windows
   * @returns how many: at most as many as are used, and 0 when the window has ended
   */
  refund(
    id: Identity,
    rule: RuleNumber,
    durationMs: number,
    window: number,
    cost: number,
    nowMs: number,
  ): number {
    const location = this.#location;
    const { group } = this;
    locate(this, id, location);
    const { lock } = location;
    this.acquire(lock);
    try {
      const now = group.advanceTime(lock, nowMs);
      const slot = find(this, location, id, counterKey(rule, durationMs));
      if (slot === NO_SLOT) return 0;
      const cells = this.#cells;
      group.readCells(slot, cells);
      const refunded = ruleOf(rule).refund(cells, window, now, durationMs, cost);
      if (refunded !== 0) group.writeCells(slot, rule, cells);
      return refunded;
    } finally {
      this.release(lock);
    }
  }

  /**
   * Removes the counters of an identity: of one duration or all, of one rule or all.
   * @param onReset called under the lock of the group
   * @returns how many there were
   */
  reset(
    id: Identity,
    nowMs: number,
    durationMs?: number,
    rule?: RuleNumber,
    onReset?: () => void,
  ): number {
    const location = this.#location;
    const { group } = this;
    locate(this, id, location);
    const { lock } = location;
    this.acquire(lock);
    try {
      const now = group.advanceTime(lock, nowMs);
      let live = 0;
      for (const slot of group.findAll(location, id, durationMs, rule)) {
        group.remove(slot);
        if (!group.isExpired(slot, now)) live++;
      }
      onReset?.();
      return live;
    } finally {
      this.release(lock);
    }
  }

  /**
   * The counters of an identity that have not expired: of one duration or all, of one rule or all.
   * Changes nothing, not even the time of the group.
   */
  inspect(id: Identity, nowMs: number, durationMs?: number, rule?: RuleNumber): InspectedCounter[] {
    const location = this.#location;
    locate(this, id, location);
    const { lock } = location;
    this.acquire(lock);
    try {
      return this.#inspectAll(id, this.#timeOf(lock, nowMs), durationMs, rule);
    } finally {
      this.release(lock);
    }
  }

  /**
   * Shows the counters of an identity, and predicts checks of it. Changes nothing.
   * @param namespaceTag as for `decide`
   */
  explain(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    checksOf: ChecksOf,
  ): CounterExplanation {
    const location = this.#location;
    const { group } = this;
    locate(this, id, location);
    const { lock } = location;
    this.acquire(lock);
    try {
      const now = this.#timeOf(lock, nowMs);
      return explainCounters(this.#inspectAll(id, now), now, checksOf, (decision) => {
        if (group.hasSlotFor(location, id, namespaceTag, now)) return;
        decision.outcome = OUTCOME.full;
        applyFullTablePolicy(this.#fullTablePolicy, group.earliestEndMs(location), decision);
      });
    } finally {
      this.release(lock);
    }
  }

  /**
   * Takes the lock of the group of an identity, for the functions whose names end in `Locked`.
   * @returns the time of the group
   */
  lock(id: Identity, nowMs: number): number {
    const location = this.#location;
    locate(this, id, location);
    this.acquire(location.lock);
    return this.group.advanceTime(location.lock, nowMs);
  }

  /** Moves the time of the group forward. @returns that time */
  advanceTimeLocked(nowMs: number): number {
    return this.group.advanceTime(this.#location.lock, nowMs);
  }

  /** Releases the lock that `lock` has taken. */
  unlock(): void {
    this.release(this.#location.lock);
  }

  /** The same as `decide`. @param nowMs the time of the group */
  decideLocked(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
    decision: TableDecision,
  ): void {
    const key = counterKey(parameters.rule, parameters.durationMs);
    const slot = find(this, this.#location, id, key);
    decision.outcome = OUTCOME.decided;
    if (slot !== NO_SLOT) this.#decideExisting(slot, nowMs, parameters, true, decision);
    else this.#decideNew(id, namespaceTag, nowMs, key, parameters, true, decision);
  }

  /**
   * Counts tokens in the current window, also beyond the limit.
   * @param parameters its cost is counted; its limit is that of a new counter
   * @returns false: there is no slot for a new counter, or no counter by a limit of 0
   */
  chargeLocked(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    parameters: CheckParameters,
  ): boolean {
    const { rule, durationMs } = parameters;
    const slot = find(this, this.#location, id, counterKey(rule, durationMs));
    const cells = this.#cells;
    if (slot === NO_SLOT || this.group.isExpired(slot, nowMs)) clearCells(cells);
    else this.group.readCells(slot, cells);
    const limit = cells.limit > 0 ? cells.limit : parameters.limit;
    if (limit === 0) return false;
    const { window } = ruleOf(rule).usage(cells, durationMs, nowMs);
    const terms = { ...parameters, limit };
    const outcome = this.#deductLocked(id, namespaceTag, nowMs, window, slot, terms);
    return outcome !== DEDUCTION_OUTCOME.full;
  }

  /** Gives tokens of a reservation back. @returns how many, as the rule of the reservation says */
  giveBackLocked(
    id: Identity,
    rule: RuleNumber,
    reserved: ReservedTokens,
    nowMs: number,
    tokens: number,
  ): number {
    const slot = find(this, this.#location, id, counterKey(rule, reserved.durationMs));
    if (slot === NO_SLOT) return 0;
    const cells = this.#cells;
    this.group.readCells(slot, cells);
    const returned = ruleOf(rule).giveBack(cells, reserved, nowMs, tokens);
    if (returned !== 0) this.group.writeCells(slot, rule, cells);
    return returned;
  }

  /** @param lock that of a group */
  acquire(lock: Lock): void {
    acquire(this.words, lock, this.#owner, this.#onWait);
  }

  release(lock: Lock): void {
    release(this.words, lock);
  }

  /** The time at which a group would decide. Its lock is held. */
  #timeOf(lock: Lock, nowMs: number): number {
    return Math.max(nowMs, this.doubles[latestMsAt(lock)]);
  }

  /** The live counters of an identity at `#location`, whose lock is held. */
  #inspectAll(
    id: Identity,
    nowMs: number,
    durationMs?: number,
    rule?: RuleNumber,
  ): InspectedCounter[] {
    const { group } = this;
    return group
      .findAll(this.#location, id, durationMs, rule)
      .filter((slot) => !group.isExpired(slot, nowMs))
      .map((slot) => this.#inspectSlot(slot, nowMs));
  }

  #inspectSlot(slot: Slot, nowMs: number): InspectedCounter {
    const key = this.group.readKey(slot);
    const rule = ruleOfKey(key);
    const durationMs = durationOfKey(key);
    const cells = newCells();
    this.group.readCells(slot, cells);
    return inspectCells(rule.counterRule, durationMs, cells, nowMs);
  }

  /** Deducts from the cells that were read, and stores them. @param slot NO_SLOT: a new counter */
  #deductLocked(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    window: number,
    slot: Slot,
    parameters: CheckParameters,
  ): number {
    const { group } = this;
    const { rule, durationMs } = parameters;
    const cells = this.#cells;
    if (!ruleOf(rule).deduct(cells, window, nowMs, parameters)) {
      return DEDUCTION_OUTCOME.windowEnded;
    }
    if (slot !== NO_SLOT) {
      group.writeCells(slot, rule, cells);
      return DEDUCTION_OUTCOME.applied;
    }
    // Its counter was evicted since, or is new.
    const key = counterKey(rule, durationMs);
    const outcome = group.insert(this.#location, id, namespaceTag, nowMs, key, cells);
    if (outcome === OUTCOME.full) return DEDUCTION_OUTCOME.full;
    return outcome === OUTCOME.evicted ? DEDUCTION_OUTCOME.evicted : DEDUCTION_OUTCOME.applied;
  }

  #decideExisting(
    slot: Slot,
    nowMs: number,
    parameters: CheckParameters,
    countsNow: boolean,
    decision: TableDecision,
  ): void {
    const { group } = this;
    const cells = this.#cells;
    group.readForDecision(slot, parameters.rule, cells);
    judge(cells, nowMs, parameters, decision);
    const { rule, cost } = parameters;
    if (!decision.allowed) group.protectDenied(slot, rule, decision.window, cells);
    else if (cost !== 0 && countsNow) {
      count(cells, decision.window, cost, parameters);
      group.writeCells(slot, rule, cells);
    }
  }

  #decideNew(
    id: Identity,
    namespaceTag: number,
    nowMs: number,
    key: number,
    parameters: CheckParameters,
    countsNow: boolean,
    decision: TableDecision,
  ): void {
    const { group } = this;
    const cells = this.#cells;
    const { cost } = parameters;
    clearCells(cells);
    judge(cells, nowMs, parameters, decision);
    // A check that is denied without any usage, and a cost of 0, need no counter.
    if (!decision.allowed || cost === 0) return;
    // GCRA: a counter without usage has expired already. The deduction inserts it.
    if (!countsNow && !hasWindows(parameters.rule)) return;
    count(cells, decision.window, countsNow ? cost : 0, parameters);
    decision.outcome = group.insert(this.#location, id, namespaceTag, nowMs, key, cells);
    if (decision.outcome === OUTCOME.full) {
      applyFullTablePolicy(this.#fullTablePolicy, group.earliestEndMs(this.#location), decision);
    }
  }
}
