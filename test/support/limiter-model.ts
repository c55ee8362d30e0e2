/**
 * Checks of made-up identities on real tables, and the rules that they follow, said naively: a map
 * of all windows that ever were, in exact integers, and a clock per group that never runs back.
 */

import fc from 'fast-check';
import { SHARDS } from '../../src/core/constants.ts';
import {
  type CheckParameters,
  type FullTablePolicy,
  OUTCOME,
  type TableDecision,
} from '../../src/core/decision.ts';
import type { Identity } from '../../src/core/hash.ts';
import { RULE } from '../../src/core/window-rules.ts';
import { Batch } from '../../src/engine/memory/batch.ts';
import {
  bucketAt,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  LOCK_LINE,
  SLOT_WORD,
  slotAt,
} from '../../src/engine/memory/layout.ts';
import { shardOf } from '../../src/engine/memory/shard.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { allocateTable } from '../../src/engine/memory/table-memory.ts';
import { type Cells, usageBefore, usageIn } from '../../src/engine/memory/windows/window.ts';

/** An identity that is not a hash: it lies where it is told to. */
export interface TestIdentity extends Identity {
  name: string;
  /** Its lock is that of all with the same. */
  group: string;
  namespaceTag: number;
}

export interface IdentityLocation {
  shard: number;
  /** One of so many in each shard. */
  group: number;
  groups: number;
  /** Two different buckets of the group. */
  first: number;
  second: number;
  /** Not 0. */
  h3: number;
  /** What is left of the other words: added to each. */
  rest?: { h0?: number; h1?: number; h2?: number };
  namespaceTag?: number;
}

export function makeIdentity(where: IdentityLocation): TestIdentity {
  const { shard, group, groups, first, second, h3, rest = {}, namespaceTag = 1 } = where;
  const { h0 = 0, h1 = 0, h2 = 0 } = rest;
  const step = (second - first + GROUP_BUCKETS) % GROUP_BUCKETS;
  const words = {
    h0: ((shard << 28) + h0) | 0,
    h1: (Math.ceil((group * 2 ** 32) / groups) + h1) | 0,
    h2: first | ((step - 1) << 5) | (h2 << 21) | 0,
    h3,
  };
  const name = Object.values(words).join();
  return { ...words, name, group: `${shard}/${group}`, namespaceTag };
}

/** A check among others. */
export interface TestCheck extends CheckParameters {
  id: TestIdentity;
}

/** Tokens used at the time of its group: in the window that runs, and in the one before. */
export interface Usage {
  current: bigint;
  previous: bigint;
}

export const counterKey = ({ id, durationMs }: Pick<TestCheck, 'id' | 'durationMs'>) =>
  `${id.name} ${durationMs}`;

export class LimiterModel {
  readonly #usage = new Map<string, Map<bigint, bigint>>();
  readonly #times = new Map<string, number>();

  /** @returns what is answered, and what each counter will have used more if it is consumed */
  judge(checks: TestCheck[], now: number) {
    const taken = new Map<string, bigint>();
    const answers = checks.map((check) => {
      const before = taken.get(counterKey(check)) ?? 0n;
      const answer = this.#judgeCheck(check, now, before);
      if (answer.allowed) taken.set(counterKey(check), before + BigInt(check.cost));
      return answer;
    });
    const passed = answers.every(({ allowed }) => allowed);
    if (!passed) {
      checks.forEach((check, i) => {
        if (answers[i].allowed) answers[i] = this.peek(check);
      });
    }
    return { passed, answers, taken };
  }

  consume(checks: TestCheck[], tokens: ReadonlyMap<string, bigint>): void {
    const added = new Map<string, bigint>();
    for (const check of checks) {
      const key = counterKey(check);
      if (added.has(key)) continue;
      added.set(key, tokens.get(key)!);
      const window = this.#windowOf(check);
      const cells = this.#cells(key);
      cells.set(window, (cells.get(window) ?? 0n) + tokens.get(key)!);
    }
  }

  /** What a check with a cost of 0 is told, by the clock of its group. */
  peek(check: TestCheck): TableDecision {
    return this.#judgeCheck({ ...check, cost: 0 }, 0, 0n);
  }

  usage(of: Pick<TestCheck, 'id' | 'durationMs'>): Usage {
    const window = this.#windowOf(of);
    const cells = this.#cells(counterKey(of));
    return { current: cells.get(window) ?? 0n, previous: cells.get(window - 1n) ?? 0n };
  }

  /** What is known of a counter is no longer so: this is. */
  setUsage(of: Pick<TestCheck, 'id' | 'durationMs'>, { current, previous }: Usage): void {
    const window = this.#windowOf(of);
    const cells: [bigint, bigint][] = [
      [window, current],
      [window - 1n, previous],
    ];
    this.#usage.set(counterKey(of), new Map(cells));
  }

  timeOf({ group }: TestIdentity): number {
    return this.#times.get(group) ?? 0;
  }

  #windowOf({ id, durationMs }: Pick<TestCheck, 'id' | 'durationMs'>): bigint {
    return BigInt(this.timeOf(id)) / BigInt(durationMs);
  }

  #cells(key: string): Map<bigint, bigint> {
    const cells = this.#usage.get(key) ?? new Map<bigint, bigint>();
    this.#usage.set(key, cells);
    return cells;
  }

  #judgeCheck(check: TestCheck, now: number, before: bigint): TableDecision {
    const { id, limit, durationMs, cost, rule } = check;
    const isSliding = rule === RULE.sliding;
    const time = Math.max(now, this.timeOf(id));
    this.#times.set(id.group, time);
    const length = BigInt(durationMs);
    const window = this.#windowOf(check);
    const { current, previous } = this.usage(check);
    const elapsed = BigInt(time) - window * length;
    const carried = isSliding ? (previous * (length - elapsed)) / length : 0n;
    const effective = current + before + carried + BigInt(cost);
    const allowed = cost === 0 || effective <= BigInt(limit);
    const told = allowed ? BigInt(limit) - effective : BigInt(limit) - current - before;
    const isTold = allowed || !isSliding;
    return {
      allowed,
      remaining: isTold && told > 0n ? Number(told) : 0,
      reset: Number((window + 1n) * length),
      window: Number(window),
      outcome: OUTCOME.decided,
    };
  }
}

/** Decides made-up checks together. @returns whether they pass, and what is said of each */
export function decideBatch(together: Batch, checks: TestCheck[], now: number) {
  together.begin();
  for (const check of checks) together.add(check.id, check.id.namespaceTag, check);
  const passed = together.decide(now);
  return { passed, answers: checks.map((_, number) => ({ ...together.decision(number) })) };
}

/** Decides one made-up check alone. */
export function decideSingle(tables: CounterTable[], check: TestCheck, now: number): TableDecision {
  const decision = { allowed: false, remaining: 0, reset: 0, window: 0, outcome: 0 };
  const table = tables[shardOf(check.id)];
  table.decide(check.id, check.id.namespaceTag, now, check, true, decision);
  return decision;
}

/** A counter as it lies in its table, at the time of its group; undefined where there is none. */
export function readStoredUsage(
  tables: readonly CounterTable[],
  id: Identity,
  durationMs: number,
): Usage | undefined {
  const table = tables[shardOf(id)];
  const { group, doubles } = table;
  group.locate(id);
  const slot = group.find(id, durationMs);
  if (slot === 0) return undefined;
  const cells: Cells = { newest: 0, current: 0, previous: 0 };
  group.readCells(slot, cells);
  const window = Math.max(
    Math.floor(doubles[group.lock / 2 + LOCK_LINE.latestMs] / durationMs),
    cells.newest,
  );
  const [current, previous] = [usageIn(cells, window), usageBefore(cells, window)];
  return { current: BigInt(current), previous: BigInt(previous) };
}

/** How many slots of tables are not empty. */
export function countOccupiedSlots(tables: readonly CounterTable[]): number {
  let taken = 0;
  for (const { words, groups } of tables) {
    for (let i = 0; i < groups * GROUP_SLOTS; i++) {
      const slot = slotAt(bucketAt(groups, 0), i);
      if (words[slot * 2 + SLOT_WORD.tag] !== 0) taken++;
    }
  }
  return taken;
}

/** Where windows of all durations begin. */
export const START_MS = 1_700_000_400_000;

export function newTables(groups = 1, onFull: FullTablePolicy = 'deny') {
  const tables = Array.from({ length: SHARDS }, (_, shard) => {
    return new CounterTable(allocateTable(shard, groups), shard, 1, onFull, () => {});
  });
  return { tables, together: new Batch(tables, onFull) };
}

/** Requests of one check or a few, up to so many. */
export const checkLists = (check: fc.Arbitrary<TestCheck>, maxLength: number) =>
  fc.oneof(
    fc.array(check, { minLength: 1, maxLength: 3, size: 'max' }),
    fc.array(check, { minLength: 1, maxLength: maxLength, size: 'max' }),
  );
