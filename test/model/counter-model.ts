/**
 * A small counter table that two or three threads share. This file prepares its memory, runs the
 * actions of the threads with the real table code, and reads the final state for assertions.
 */

import { SHARDS } from '../../src/core/constants.ts';
import { type CheckParameters, newDecision } from '../../src/core/decision.ts';
import type { Identity } from '../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../src/core/window-rules.ts';
import { Batch } from '../../src/engine/memory/batch.ts';
import { NamespaceRemoval } from '../../src/engine/memory/removal.ts';
import { Sweeper } from '../../src/engine/memory/sweep.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import {
  firstSlot,
  GROUP_SLOTS,
  lockAt,
  type Slot,
  slotAt,
  tagAt,
} from '../../src/engine/table/layout.ts';
import { breakLock } from '../../src/engine/table/lock.ts';
import { isCounterOf } from '../../src/engine/table/slot.ts';
import { allocateTable } from '../../src/engine/table/table-memory.ts';
import { newCells } from '../../src/engine/windows/rule.ts';
import {
  makeIdentity,
  START_MS,
  type TestCheck,
  type TestIdentity,
} from '../support/limiter-model.ts';
import type { FinalState, MemoryView, ModelMemory, ThreadContext } from './explorer.ts';

export const WINDOW_MS = 1_000;
/** In the middle of a window. */
export const NOW_MS = START_MS + WINDOW_MS / 2;
export const WINDOW = START_MS / WINDOW_MS;

/** An identity in the first two buckets of a group. */
export function testIdentity(h3: number, group = 0, groups = 1): TestIdentity {
  const rest = { h0: h3, h1: h3 };
  return makeIdentity({ shard: 0, group, groups, first: 0, second: 1, h3, rest, namespaceTag: h3 });
}
/** The main identity, a second one, and enough others to fill their two buckets. */
export const X = testIdentity(1);
export const Y = testIdentity(2);
export const NEIGHBORS = Array.from({ length: 16 }, (_, i) => testIdentity(100 + i));

export const fixedWindow = (limit: number, cost = 1, durationMs = WINDOW_MS): CheckParameters => {
  return { limit, durationMs, cost, rule: RULE.fixed, burst: NO_BURST };
};
export const slidingWindow = (limit: number, cost = 1): CheckParameters => {
  return { ...fixedWindow(limit, cost), rule: RULE.sliding };
};

/** The decision that a thread got for a check. */
export interface DecisionResult {
  allowed: boolean;
  window: number;
  remaining: number;
}

export function decide(
  table: CounterTable,
  id: TestIdentity,
  parameters: CheckParameters,
  nowMs = NOW_MS,
): DecisionResult {
  const decision = newDecision();
  table.decide(id, id.namespaceTag, nowMs, parameters, true, decision);
  const { allowed, window, remaining } = decision;
  return { allowed, window, remaining };
}

/** @returns undefined if the peek returns no decision */
export function peek(
  table: CounterTable,
  id: TestIdentity,
  parameters: CheckParameters,
  nowMs = NOW_MS,
): DecisionResult | undefined {
  const decision = newDecision();
  if (!table.peek(id, nowMs, parameters, decision)) return undefined;
  const { allowed, window, remaining } = decision;
  return { allowed, window, remaining };
}

/** The table of a thread on the shared memory. @param owner the owner number in its locks */
export function attachTable(
  { memories: [memory] }: { memories: MemoryView[] },
  owner = 9,
): CounterTable {
  const { buffer, words, doubles } = memory;
  const table = new CounterTable(buffer, 0, owner, 'deny', () => {});
  // The table accesses its memory through the views of the explorer. A prefetch has no result, but
  // each of its reads would add schedules.
  table.group.prefetch = () => {};
  return Object.assign(table, { words, doubles });
}

export function prepareMemory(prepare: (table: CounterTable) => void, groups = 1): ModelMemory {
  const buffer = allocateTable(0, groups);
  prepare(new CounterTable(buffer, 0, 9, 'deny', () => {}));
  return { buffer, waits: 'polled' };
}

/** A thread that runs one action on the table. */
export const tableAction =
  <T>(owner: number, action: (table: CounterTable) => T) =>
  (world: ThreadContext): T =>
    action(attachTable(world, owner));

export const decideAction = (
  owner: number,
  id: TestIdentity,
  parameters: CheckParameters,
  nowMs = NOW_MS,
) => tableAction(owner, (table) => decide(table, id, parameters, nowMs));

export const deductAction = (
  owner: number,
  id: TestIdentity,
  parameters: CheckParameters,
  window = WINDOW,
  nowMs = NOW_MS,
) => tableAction(owner, (table) => table.deduct(id, id.namespaceTag, nowMs, window, parameters));

/** Sweeps all groups once. */
export const sweepAction = (owner: number, nowMs = NOW_MS) =>
  tableAction(owner, (table) => {
    const sweeper = new Sweeper(table, owner);
    while (!sweeper.step(nowMs));
    return sweeper.removedCount;
  });

/** Removes the counters of the namespace of an identity, in one step. */
export const removeNamespaceAction = (id: TestIdentity) =>
  tableAction(9, (table) => {
    const removal = new NamespaceRemoval([table], new Set([id.namespaceTag]));
    removal.step(NOW_MS);
    return removal.removedCount;
  });

/**
 * Decides a batch. @returns whether it passed, and the remaining tokens of each check.
 * The batch object is large, so each thread allocates it once; `begin` clears it.
 */
export function decideBatchAction(owner: number, checks: readonly TestCheck[]) {
  let cached: { table: CounterTable; batch: Batch } | undefined;
  return ({ memories: [memory] }: ThreadContext) => {
    cached ??= newBatch(attachTable({ memories: [memory] }, owner));
    const { words, doubles } = memory;
    const { batch, table } = cached;
    Object.assign(table, { words, doubles });
    batch.begin();
    for (const check of checks) batch.add(check.id, check.id.namespaceTag, check);
    const passed = batch.decide(NOW_MS);
    return { passed, remaining: checks.map((_, i) => batch.decision(i).remaining) };
  };
}

function newBatch(table: CounterTable) {
  return { table, batch: new Batch(Array(SHARDS).fill(table), 'deny') };
}

/** Breaks the locks of a dead worker, as the supervisor does, and starts the next run. */
export const afterLockRecovery = <T>(deadOwner: number, restart: (world: ThreadContext) => T) => {
  return (world: ThreadContext): T => {
    const table = attachTable(world);
    for (let group = 0; group < table.groups; group++) {
      breakLock(table.words, lockAt(group), deadOwner);
    }
    return restart(world);
  };
};

/** The initial state of an exploration, with exactly one token of X left. */
export interface CounterSetup {
  memory: ModelMemory;
  /** At NOW_MS these parameters allow exactly one more token. */
  parameters: CheckParameters;
  /** Tokens used in the window of NOW_MS. */
  used: number;
}

export const consume = (
  table: CounterTable,
  id: TestIdentity,
  cost: number,
  nowMs: number,
  limit = cost,
) => {
  assertHolds(
    decide(table, id, fixedWindow(limit, cost), nowMs).allowed,
    'the limit has tokens left',
  );
};

const setup = (
  parameters: CheckParameters,
  used: number,
  prepare: (table: CounterTable) => void,
): (() => CounterSetup) => {
  return () => ({ memory: prepareMemory(prepare), parameters, used });
};

/** One token left for X, in every state that its counter may have in the table. */
export const SETUPS: Record<string, () => CounterSetup> = {
  'in the active window': setup(fixedWindow(3), 2, (table) => consume(table, X, 2, NOW_MS - 1)),
  'in the active window, sliding': setup(slidingWindow(4), 1, (table) => {
    consume(table, X, 4, NOW_MS - WINDOW_MS);
    consume(table, X, 1, NOW_MS - 1);
  }),
  'in a new window': setup(fixedWindow(1), 0, (table) => {
    consume(table, X, 3, NOW_MS - WINDOW_MS);
  }),
  'in a new window, sliding': setup(slidingWindow(3), 0, (table) => {
    consume(table, X, 6, NOW_MS - 2 * WINDOW_MS);
    consume(table, X, 4, NOW_MS - WINDOW_MS);
  }),
  'two windows later, expired': setup(slidingWindow(1), 0, (table) => {
    consume(table, X, 3, NOW_MS - 2 * WINDOW_MS);
  }),
  'as a new counter': setup(fixedWindow(1), 0, () => {}),
  'as a new counter in the slot of an expired one': setup(fixedWindow(1), 0, (table) => {
    // They occupy the preferred slots of X.
    for (const id of NEIGHBORS.slice(0, 2)) consume(table, id, 1, NOW_MS - 2 * WINDOW_MS);
  }),
  'as a new counter that evicts another': setup(fixedWindow(1), 0, (table) => {
    for (const id of NEIGHBORS) consume(table, id, 1, NOW_MS - 1, 10);
  }),
};

/** The stored counter of an identity, or undefined. */
export function readCounter(at: { memories: MemoryView[] }, id: Identity, durationMs = WINDOW_MS) {
  const table = attachTable(at);
  const slots = occupiedSlots(at).filter((slot) => isCounterOf(table, slot, id, durationMs));
  assertHolds(slots.length <= 1, 'a counter has one slot', slots);
  if (slots.length === 0) return undefined;
  const cells = newCells();
  table.group.readCells(slots[0], cells);
  return cells;
}

function occupiedSlots(at: { memories: MemoryView[] }): Slot[] {
  const { words, groups } = attachTable(at);
  const slots = Array.from({ length: groups * GROUP_SLOTS }, (_, i) => {
    return slotAt(firstSlot(groups), i);
  });
  return slots.filter((slot) => words[tagAt(slot)] !== 0);
}

/** Whether every occupied slot holds the counter of a known identity. */
export function hasOnlyKnownCounters(at: { memories: MemoryView[] }): boolean {
  const table = attachTable(at);
  const known = [X, Y, ...NEIGHBORS];
  return occupiedSlots(at).every((slot) => {
    return known.some((id) => isCounterOf(table, slot, id, WINDOW_MS));
  });
}

/** The usage of a counter in the window of NOW_MS. */
export function usageNow(ending: FinalState, id: Identity, durationMs = WINDOW_MS): number {
  const cells = readCounter(ending, id, durationMs);
  return cells !== undefined && cells.newest === Math.floor(NOW_MS / durationMs)
    ? cells.current
    : 0;
}

/** The number of allowed checks among threads that ended. */
export function countAllowed(ending: FinalState, ...threads: number[]): number {
  return threads.filter((thread) => (ending.results[thread] as DecisionResult | undefined)?.allowed)
    .length;
}

/** @throws an error with the facts if the condition does not hold */
function assertHolds(holds: boolean, expectation: string, ...facts: unknown[]): void {
  if (!holds) throw new Error(`${expectation}, but ${JSON.stringify(facts)}`);
}

/** @throws an error with the final state if an expectation does not hold */
export function assertEnding(ending: FinalState, expectations: Record<string, boolean>): void {
  for (const [expectation, holds] of Object.entries(expectations)) {
    const { events, results, stuck, deaths } = ending;
    if (!holds)
      assertHolds(false, expectation, { events, results, stuck, deaths }, readCounter(ending, X));
  }
}
