/**
 * A lease table for tests, with the part of Redis played by hand; and the invariants of a table,
 * which any test can check at the end.
 */

import type { CheckParameters, TableDecision } from '../../src/core/decision.ts';
import { newDecision } from '../../src/core/decision.ts';
import { type Identity, newIdentity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import {
  type LeaseState,
  moveStateToWindow,
  newLeaseState,
} from '../../src/engine/redis/counter/lease-state.ts';
import { allocateEngineState, EngineState } from '../../src/engine/redis/engine-state.ts';
import {
  heldAt,
  lastLimitAt,
  lentLimitAt,
  othersDeductedAt,
  PREVIOUS_USE_MAX,
  previousUseOf,
  SUMMARY_OTHER_LIMIT,
  summaryAt,
} from '../../src/engine/redis/lease-layout.ts';
import { allocateLeaseTable } from '../../src/engine/redis/lease-memory.ts';
import { readTotal } from '../../src/engine/redis/lease-slot.ts';
import { LeaseTable } from '../../src/engine/redis/lease-table.ts';
import { NO_WINDOW } from '../../src/engine/redis/scripts/protocol.ts';
import { locate, newLocation } from '../../src/engine/table/group.ts';
import {
  GROUP_SLOTS,
  lockAt,
  NO_SLOT,
  type Slot,
  slotAt,
  tagAt,
} from '../../src/engine/table/layout.ts';
import { find } from '../../src/engine/table/slot.ts';
import { counterKey, durationOfKey, isCounterKey } from '../../src/engine/windows/registry.ts';

/** Redis' time less the monotonic time of the tests. */
export const OFFSET_MS = 1_700_000_000_000;
export const MINUTE = 60_000;
/** The monotonic time at which a window of a minute begins. */
export const START_MS = MINUTE - (OFFSET_MS % MINUTE);
export const WINDOW = (OFFSET_MS + START_MS) / MINUTE;

export interface TestCheck {
  limit: number;
  cost: number;
  durationMs: number;
  rule: CheckParameters['rule'];
  burst: number;
}

export function testCheck(check: Partial<TestCheck> = {}): TestCheck {
  return { limit: 100, cost: 1, durationMs: MINUTE, rule: RULE.fixed, burst: NO_BURST, ...check };
}

export function testIdentity(number: number): Identity {
  const scrambled = Math.imul(number + 1, 0x9e3779b1);
  const h2 = Math.imul(scrambled ^ 0x5bd1e995, 0x85ebca6b);
  return { h0: number, h1: Math.imul(scrambled, 0xc2b2ae35), h2, h3: number + 1 };
}

export class TestLeases {
  readonly state: EngineState;
  readonly table: LeaseTable;
  readonly buffer: SharedArrayBuffer;
  readonly stateBuffer: SharedArrayBuffer;

  constructor(groups = 1, owner = 1) {
    this.stateBuffer = allocateEngineState(1, 1);
    this.state = new EngineState(this.stateBuffer);
    this.state.setClock(0, OFFSET_MS, 0);
    this.buffer = allocateLeaseTable(0, groups);
    this.table = new LeaseTable(this.buffer, 0, this.state, owner, () => {});
  }

  decide(id: Identity, nowMs: number, check: Partial<TestCheck> = {}) {
    return this.#decision((into) => this.table.decide(id, nowMs, testCheck(check), into));
  }

  reserve(id: Identity, nowMs: number, check: Partial<TestCheck> = {}) {
    return this.#decision((into) => this.table.reserve(id, nowMs, testCheck(check), into));
  }

  decideAsync(id: Identity, nowMs: number, check: Partial<TestCheck> = {}) {
    return this.#decision((into) => this.table.decideAsync(id, nowMs, testCheck(check), into));
  }

  decideLocally(id: Identity, nowMs: number, check: Partial<TestCheck> = {}, machines = 1) {
    return this.#decision((into) => {
      return this.table.decideLocally(id, id.h0 & 1, nowMs, testCheck(check), machines, into);
    });
  }

  /** Changes a counter as a worker does: in the window of the time, inserted where it is missing. */
  work(
    id: Identity,
    nowMs: number,
    change: (state: LeaseState) => void = () => {},
    { durationMs, rule }: TestCheck = testCheck(),
  ): Slot {
    const { table } = this;
    const key = counterKey(rule, durationMs);
    const lock = table.lockFor(id);
    table.acquire(lock);
    const found = table.find(id, key);
    const slot = found === NO_SLOT ? table.insert(id, 1, key, nowMs) : found;
    if (slot !== NO_SLOT) {
      const state = newLeaseState();
      table.read(slot, state);
      const redisMs = nowMs + OFFSET_MS;
      moveStateToWindow(state, Math.floor(redisMs / durationMs));
      state.deadlineMs = nowMs + (state.window + 1) * durationMs - redisMs;
      state.boundUntilMs = state.deadlineMs;
      change(state);
      state.othersDeducted = Math.max(state.othersDeducted, state.others);
      table.write(slot, state);
    }
    table.release(lock);
    return slot;
  }

  /** A lease as an answer brings it. */
  lend(id: Identity, nowMs: number, lease: number, more: Partial<LeaseState> = {}): Slot {
    return this.work(id, nowMs, (state) => {
      Object.assign(state, { lease, lentLimit: 100, lastLimit: 100, ...more });
    });
  }

  /** The state of a counter; undefined where it has no slot. */
  read(id: Identity, check: TestCheck = testCheck()): LeaseState | undefined {
    const { table } = this;
    const slot = table.find(id, counterKey(check.rule, check.durationMs));
    if (slot === NO_SLOT) return undefined;
    const state = newLeaseState();
    table.read(slot, state);
    return state;
  }

  isDirty(id: Identity, check: TestCheck = testCheck()): boolean {
    const { table } = this;
    const slot = table.find(id, counterKey(check.rule, check.durationMs));
    return slot !== NO_SLOT && table.isDirty(table.lockFor(id), slot);
  }

  #decision(decide: (into: TableDecision) => number) {
    const decision = newDecision();
    const verdict = decide(decision);
    return { verdict, ...decision };
  }
}

/**
 * The slots of a table that break an invariant, and how. No thread may change the table meanwhile.
 * @param mayHold owners that may still hold locks
 */
export function brokenInvariants(table: LeaseTable, mayHold: readonly number[] = []): string[] {
  const broken: string[] = [];
  for (let group = 0; group < table.groups; group++) {
    const owner = table.words[lockAt(group)];
    if (owner !== 0 && !mayHold.includes(owner)) broken.push(`group ${group} is held by ${owner}`);
    for (let index = 0; index < GROUP_SLOTS; index++) {
      const slot = slotAt(table.firstSlot, group * GROUP_SLOTS + index);
      if (table.words[tagAt(slot)] === 0) continue;
      for (const problem of problemsOf(table, slot)) {
        broken.push(`group ${group}, slot ${index}: ${problem}`);
      }
    }
  }
  return broken;
}

function problemsOf(table: LeaseTable, slot: Slot): string[] {
  const { words, doubles, details } = table;
  const problems: string[] = [];
  const require = (isTrue: boolean, problem: string) => {
    if (!isTrue) problems.push(problem);
  };
  const id = table.readIdentity(slot, newIdentity());
  const key = table.readKey(slot);
  require(isCounterKey(key) && durationOfKey(key) > 0, `${key} is no key`);
  const location = newLocation();
  locate(table, id, location);
  require(find(table, location, id, key) === slot, 'a look-up does not find it');
  if (key !== durationOfKey(key)) return problems;
  const state = newLeaseState();
  table.read(slot, state);
  const { window, lease, reserved, spent, othersDeducted } = state;
  for (const [name, value] of Object.entries(state)) {
    // A report that is under way is infinite.
    if (typeof value !== 'number' || name === 'reported') continue;
    require(Number.isFinite(value), `${name} is ${value}`);
  }
  for (const name of [
    'lease',
    'reserved',
    'prefetchBelow',
    'lentLimit',
    'previousUsage',
  ] as const) {
    require(state[name] >= 0, `${name} is ${state[name]}`);
  }
  require(state.reported > Number.NEGATIVE_INFINITY, `${state.reported} was reported`);
  require(window >= NO_WINDOW, `its window is ${window}`);
  require(window !== NO_WINDOW || lease === 0, 'a lease without a window');
  require(lease === 0 || state.deadlineMs > 0, 'a lease without a deadline');
  require(state.boundUntilMs <= state.deadlineMs, 'denies after the end of its window');
  const isKnownLess = state.previousKnownUsage <= state.previousUsage;
  require(state.boundUntilMs === 0 || isKnownLess, 'more usage is known than there is');
  const held = doubles[heldAt(slot)];
  require(held === readTotal(table, slot) + details[othersDeductedAt(slot)], `it holds ${held}`);
  require(held - lease === othersDeducted + spent + reserved, 'its parts do not make up its total');
  const isOther = details[lastLimitAt(slot)] !== doubles[lentLimitAt(slot)];
  const summary = words[summaryAt(slot)];
  const hasOther = (summary & SUMMARY_OTHER_LIMIT) !== 0;
  require(hasOther === isOther, 'its last limit is marked wrongly');
  const previousUsage = Math.min(state.previousUsage, PREVIOUS_USE_MAX);
  require(previousUseOf(summary) === previousUsage, 'its summary has another previous use');
  require(state.firstSequence <= state.sequence + 1, 'its sequence numbers are out of order');
  return problems;
}
