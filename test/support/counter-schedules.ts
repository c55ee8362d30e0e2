/**
 * Counters in a small table, over which two or three threads meet: what the memory holds before,
 * what each of them does, by the real code of tables, and what must hold when all is over.
 */

import { allocateTable } from '../../src/counters/buffer.ts';
import { newDecision } from '../../src/counters/decision.ts';
import { isCounter } from '../../src/counters/find.ts';
import type { Identity } from '../../src/counters/hash.ts';
import { bucketAt, GROUP_SLOTS, lockOf, SLOT_WORD, slotAt } from '../../src/counters/layout.ts';
import { breakLock } from '../../src/counters/lock.ts';
import { Sweeper } from '../../src/counters/sweep.ts';
import { CounterTable } from '../../src/counters/table.ts';
import { Together } from '../../src/counters/together.ts';
import { type Cells, NO_WINDOW, type Terms } from '../../src/counters/window.ts';
import { SHARDS } from '../../src/limits.ts';
import type { Ending, Memory, Shared, World } from './schedules.ts';
import { type Check, type Made, made, START } from './together.ts';

export const WINDOW_MS = 1_000;
/** In the middle of a window. */
export const NOW = START + WINDOW_MS / 2;
export const WINDOW = START / WINDOW_MS;

/** An identity in the first two buckets of a group. */
export function identity(h3: number, group = 0, groups = 1): Made {
  const rest = { h0: h3, h1: h3 };
  return made({ shard: 0, group, groups, first: 0, second: 1, h3, rest, namespaceTag: h3 });
}
/** The one that most of it is about, another, and as many as lie in their buckets. */
export const X = identity(1);
export const Y = identity(2);
export const OTHERS = Array.from({ length: 16 }, (_, i) => identity(100 + i));

export const fixed = (limit: number, cost = 1, durationMs = WINDOW_MS): Terms => {
  return { limit, durationMs, cost, isSliding: false };
};
export const sliding = (limit: number, cost = 1): Terms => {
  return { ...fixed(limit, cost), isSliding: true };
};

/** What a thread was told of a check. */
export interface Told {
  admitted: boolean;
  window: number;
  remaining: number;
}

export function decide(table: CounterTable, id: Made, terms: Terms, nowMs = NOW): Told {
  const decision = newDecision();
  table.decide(id, id.namespaceTag, nowMs, terms, true, decision);
  const { admitted, window, remaining } = decision;
  return { admitted, window, remaining };
}

/** @returns undefined where it is no answer */
export function look(table: CounterTable, id: Made, terms: Terms, nowMs = NOW): Told | undefined {
  const decision = newDecision();
  if (!table.look(id, nowMs, terms, decision)) return undefined;
  const { admitted, window, remaining } = decision;
  return { admitted, window, remaining };
}

/** The memory as the table of a thread. @param owner what its locks carry */
export function tableOf({ memories: [memory] }: { memories: Memory[] }, owner = 9): CounterTable {
  const { buffer, words, doubles } = memory;
  const table = new CounterTable(buffer, 0, owner, 'deny', () => {});
  // It looks at its memory through these, whenever it does. What is read ahead goes nowhere, but
  // would be something else that a thread has read, in every order.
  table.group.fetch = () => {};
  return Object.assign(table, { words, doubles });
}

export function prepared(prepare: (table: CounterTable) => void, groups = 1): Shared {
  const buffer = allocateTable(0, groups);
  prepare(new CounterTable(buffer, 0, 9, 'deny', () => {}));
  return { buffer, waits: 'polled' };
}

/** A thread that does one thing with the table. */
export const does =
  <T>(owner: number, what: (table: CounterTable) => T) =>
  (world: World): T =>
    what(tableOf(world, owner));

export const decides = (owner: number, id: Made, terms: Terms, nowMs = NOW) =>
  does(owner, (table) => decide(table, id, terms, nowMs));

export const deducts = (owner: number, id: Made, terms: Terms, window = WINDOW, nowMs = NOW) =>
  does(owner, (table) => table.deduct(id, id.namespaceTag, nowMs, window, terms));

/** Sweeps all groups once. */
export const sweeps = (owner: number, nowMs = NOW) =>
  does(owner, (table) => {
    const sweeper = new Sweeper(table, owner);
    while (!sweeper.step(nowMs));
    return sweeper.removed;
  });

/**
 * Decides checks together. @returns whether they passed, and what was said to be left of each.
 * What a thread does it with is made once: it is large, and whoever begins with it clears it.
 */
export function decidesTogether(owner: number, checks: readonly Check[]) {
  let own: { table: CounterTable; together: Together } | undefined;
  return ({ memories: [{ buffer, words, doubles }] }: World) => {
    own ??= togetherOver(tableOf({ memories: [{ buffer, words, doubles }] }, owner));
    const { together, table } = own;
    Object.assign(table, { words, doubles });
    together.begin();
    for (const check of checks) together.add(check.id, check.id.namespaceTag, check);
    const passed = together.decide(NOW);
    return { passed, remaining: checks.map((_, i) => together.decision(i).remaining) };
  };
}

function togetherOver(table: CounterTable) {
  return { table, together: new Together(Array(SHARDS).fill(table), 'deny') };
}

/** What the supervisor does when a worker has ended, and then its next run. */
export const thenAgain = <T>(dead: number, again: (world: World) => T) => {
  return (world: World): T => {
    const table = tableOf(world);
    for (let group = 0; group < table.groups; group++) {
      breakLock(table.words, lockOf(group), dead);
    }
    return again(world);
  };
};

/** Tokens of the last check that fits, or of the first one, before anybody meets over it. */
export interface Setup {
  memory: Shared;
  /** One more token is admitted under them at NOW, and no more. */
  terms: Terms;
  /** Used in the window of NOW. */
  used: number;
}

export const spend = (table: CounterTable, id: Made, cost: number, nowMs: number, limit = cost) => {
  must(decide(table, id, fixed(limit, cost), nowMs).admitted, 'there is room');
};

/** Room for one more token, in every way in which the counter may lie in its table. */
export const SETUPS: Record<string, () => Setup> = {
  'in the window that runs': () => ({
    memory: prepared((table) => spend(table, X, 2, NOW - 1)),
    terms: fixed(3),
    used: 2,
  }),
  'in the window that runs, sliding': () => ({
    memory: prepared((table) => {
      spend(table, X, 4, NOW - WINDOW_MS);
      spend(table, X, 1, NOW - 1);
    }),
    terms: sliding(4),
    used: 1,
  }),
  'in a new window': () => ({
    memory: prepared((table) => spend(table, X, 3, NOW - WINDOW_MS)),
    terms: fixed(1),
    used: 0,
  }),
  'in a new window, sliding': () => ({
    memory: prepared((table) => {
      spend(table, X, 6, NOW - 2 * WINDOW_MS);
      spend(table, X, 4, NOW - WINDOW_MS);
    }),
    terms: sliding(3),
    used: 0,
  }),
  'two windows later, where it has expired': () => ({
    memory: prepared((table) => spend(table, X, 3, NOW - 2 * WINDOW_MS)),
    terms: sliding(1),
    used: 0,
  }),
  'as a newcomer': () => ({ memory: prepared(() => {}), terms: fixed(1), used: 0 }),
  'as a newcomer in the place of an expired one': () => ({
    memory: prepared((table) => {
      // They lie in its own places.
      for (const id of OTHERS.slice(0, 2)) spend(table, id, 1, NOW - 2 * WINDOW_MS);
    }),
    terms: fixed(1),
    used: 0,
  }),
  'as a newcomer for which another makes room': () => ({
    memory: prepared((table) => {
      for (const id of OTHERS) spend(table, id, 1, NOW - 1, 10);
    }),
    terms: fixed(1),
    used: 0,
  }),
};

/** The counter of an identity as it lies there; undefined where there is none. */
export function counterOf(at: { memories: Memory[] }, id: Identity, durationMs = WINDOW_MS) {
  const table = tableOf(at);
  const own = slotsTaken(at).filter((slot) => isCounter(table, slot, id, durationMs));
  must(own.length <= 1, 'a counter is there once', own);
  if (own.length === 0) return undefined;
  const cells: Cells = { newest: NO_WINDOW, current: 0, previous: 0 };
  table.group.read(own[0], cells);
  return cells;
}

function slotsTaken(at: { memories: Memory[] }): number[] {
  const { words, groups } = tableOf(at);
  const slots = Array.from({ length: groups * GROUP_SLOTS }, (_, i) => {
    return slotAt(bucketAt(groups, 0), i);
  });
  return slots.filter((slot) => words[slot * 2 + SLOT_WORD.tag] !== 0);
}

/** Whether whatever is found in the table is the counter of somebody who may have one. */
export function isNobodyElse(at: { memories: Memory[] }): boolean {
  const table = tableOf(at);
  const known = [X, Y, ...OTHERS];
  return slotsTaken(at).every((slot) => {
    return known.some((id) => isCounter(table, slot, id, WINDOW_MS));
  });
}

/** Tokens that its counter has in the window of NOW. */
export function usedNow(ending: Ending, id: Identity, durationMs = WINDOW_MS): number {
  const cells = counterOf(ending, id, durationMs);
  return cells !== undefined && cells.newest === Math.floor(NOW / durationMs) ? cells.current : 0;
}

/** How many checks were admitted, of threads that came to their end. */
export function admitted(ending: Ending, ...threads: number[]): number {
  return threads.filter((thread) => (ending.results[thread] as Told | undefined)?.admitted).length;
}

/** @throws with what is there, when it does not hold */
export function must(holds: boolean, what: string, ...facts: unknown[]): void {
  if (!holds) throw new Error(`${what}, but ${JSON.stringify(facts)}`);
}

/** Says what an ending looks like, for a `must`. */
export function told({ events, results, stuck, deaths }: Ending) {
  return { events, results, stuck, deaths };
}
