/**
 * Checks of constructed identities on real tables, and a naive model of the window rules. In
 * BigInt, the model keeps all windows of a counter and the exact time at which a GCRA bucket is
 * full. Each group has a clock that never runs back.
 */

import fc from 'fast-check';
import { AMOUNT_MAX, DURATION_MAX_MS, DURATION_MIN_MS, SHARDS } from '../../src/core/constants.ts';
import {
  type CheckParameters,
  type FullTablePolicy,
  NEVER,
  newDecision,
  OUTCOME,
  type TableDecision,
} from '../../src/core/decision.ts';
import type { Identity } from '../../src/core/hash.ts';
import { RULE } from '../../src/core/window-rules.ts';
import { Batch } from '../../src/engine/memory/batch.ts';
import { CounterTable } from '../../src/engine/memory/table.ts';
import { locate, newLocation } from '../../src/engine/table/group.ts';
import {
  firstSlot,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  latestMsAt,
  NO_SLOT,
  slotAt,
  tagAt,
} from '../../src/engine/table/layout.ts';
import { shardOf } from '../../src/engine/table/shard.ts';
import { find } from '../../src/engine/table/slot.ts';
import { allocateTable } from '../../src/engine/table/table-memory.ts';
import { newCells } from '../../src/engine/windows/rule.ts';
import { usageBefore, usageIn } from '../../src/engine/windows/window.ts';

/** An identity that is not a hash: its words select its shard, group and buckets. */
export interface TestIdentity extends Identity {
  name: string;
  /** All identities of one group share a lock. */
  group: string;
  namespaceTag: number;
}

export interface IdentityLocation {
  shard: number;
  /** The index of the group among the `groups` of a shard. */
  group: number;
  groups: number;
  /** Two different buckets of the group. */
  first: number;
  second: number;
  /** Not 0. */
  h3: number;
  /** Added to the other words. */
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

export interface TestCheck extends CheckParameters {
  id: TestIdentity;
}

/** Tokens used in the active and the previous window, by the clock of the group. */
export interface Usage {
  current: bigint;
  previous: bigint;
}

type TestCounter = Pick<TestCheck, 'id' | 'durationMs'> & Partial<Pick<TestCheck, 'rule'>>;

export const counterKey = ({ id, durationMs, rule }: TestCounter) =>
  `${id.name} ${durationMs}${rule === RULE.gcra ? ' gcra' : ''}`;

/** The time at which a GCRA bucket is full, in units of 1 / limit ms; a token takes a duration. */
interface FullTime {
  units: bigint;
  limit: bigint;
}

const ceilDivide = (dividend: bigint, divisor: bigint) =>
  dividend / divisor + (dividend % divisor > 0n ? 1n : 0n);
const larger = (a: bigint, b: bigint) => (a > b ? a : b);
/** What a bucket misses, in tokens times the duration. */
const missingUnits = (full: FullTime | undefined, now: number) =>
  full === undefined ? 0n : larger(full.units - BigInt(now) * full.limit, 0n);

export class LimiterModel {
  readonly #usage = new Map<string, Map<bigint, bigint>>();
  readonly #fullTimes = new Map<string, FullTime>();
  readonly #times = new Map<string, number>();

  /** @returns the decisions, and per counter the tokens and full time that `consume` adds */
  judge(checks: TestCheck[], now: number) {
    const taken = new Map<string, bigint>();
    const fullTimes = new Map<string, FullTime>();
    const answers = checks.map((check) => {
      const key = counterKey(check);
      const before = taken.get(key) ?? 0n;
      const answer = this.#judgeCheck(check, now, before, fullTimes.get(key));
      if (answer.allowed) {
        taken.set(key, before + BigInt(check.cost));
        if (check.rule === RULE.gcra && check.cost > 0) {
          fullTimes.set(key, this.fullTimeAfter(check, answer.window, fullTimes.get(key)));
        }
      }
      return answer;
    });
    const passed = answers.every(({ allowed }) => allowed);
    if (!passed) {
      checks.forEach((check, i) => {
        if (answers[i].allowed) answers[i] = this.peek(check);
      });
    }
    return { passed, answers, taken, fullTimes };
  }

  /** The time at which a bucket is full after an allowed check: the tokens it misses stay. */
  fullTimeAfter(check: TestCheck, decidedMs: number, from?: FullTime): FullTime {
    const stored = from ?? this.#fullTimes.get(counterKey(check));
    const limit = BigInt(check.limit);
    const usedUnits = BigInt(check.cost) * BigInt(check.durationMs);
    const missing = missingUnits(stored, decidedMs);
    const fits = ceilDivide(missing, BigInt(check.durationMs)) <= limit;
    const rate = fits ? limit : stored!.limit;
    return { units: BigInt(decidedMs) * rate + missing + usedUnits, limit: rate };
  }

  setFullTime(counter: TestCounter, fullTime: FullTime): void {
    this.#fullTimes.set(counterKey(counter), fullTime);
  }

  /** Tokens that are missing from a bucket. */
  missingTokens(counter: TestCounter, now: number): bigint {
    const missing = missingUnits(this.#fullTimes.get(counterKey(counter)), now);
    return ceilDivide(missing, BigInt(counter.durationMs));
  }

  /** Refunds tokens to a bucket. @returns the number of refunded tokens */
  refundTokens(counter: TestCounter, now: number, cost: bigint): bigint {
    const missing = this.missingTokens(counter, now);
    const refunded = cost < missing ? cost : missing;
    if (refunded === 0n) return 0n;
    const { units, limit } = this.#fullTimes.get(counterKey(counter))!;
    const refundedUnits = refunded === missing ? units : refunded * BigInt(counter.durationMs);
    this.setFullTime(counter, { units: units - refundedUnits, limit });
    return refunded;
  }

  consume(
    checks: TestCheck[],
    tokens: ReadonlyMap<string, bigint>,
    fullTimes: ReadonlyMap<string, FullTime> = new Map(),
  ): void {
    for (const [key, fullTime] of fullTimes) this.#fullTimes.set(key, fullTime);
    const added = new Map<string, bigint>();
    for (const check of checks) {
      const key = counterKey(check);
      if (added.has(key) || check.rule === RULE.gcra) continue;
      added.set(key, tokens.get(key)!);
      const window = this.#windowOf(check);
      const cells = this.#cells(key);
      cells.set(window, (cells.get(window) ?? 0n) + tokens.get(key)!);
    }
  }

  /** The decision of a check with a cost of 0, by the clock of its group. */
  peek(check: TestCheck): TableDecision {
    return this.#judgeCheck({ ...check, cost: 0 }, 0, 0n);
  }

  usage(of: Pick<TestCheck, 'id' | 'durationMs'>): Usage {
    const window = this.#windowOf(of);
    const cells = this.#cells(counterKey(of));
    return { current: cells.get(window) ?? 0n, previous: cells.get(window - 1n) ?? 0n };
  }

  /** Replaces the whole usage of a counter. */
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

  #judgeCheck(check: TestCheck, now: number, before: bigint, from?: FullTime): TableDecision {
    const { id, limit, durationMs, cost, rule } = check;
    const isSliding = rule === RULE.sliding;
    const time = Math.max(now, this.timeOf(id));
    this.#times.set(id.group, time);
    if (rule === RULE.gcra) return this.#judgeGcra(check, time, before, from);
    const length = BigInt(durationMs);
    const window = this.#windowOf(check);
    const { current, previous } = this.usage(check);
    const elapsed = BigInt(time) - window * length;
    const carried = isSliding ? (previous * (length - elapsed)) / length : 0n;
    const effective = current + before + carried + BigInt(cost);
    const allowed = cost === 0 || effective <= BigInt(limit);
    const left = allowed ? BigInt(limit) - effective : BigInt(limit) - current - before;
    const showsRemaining = allowed || !isSliding;
    return {
      allowed,
      remaining: showsRemaining && left > 0n ? Number(left) : 0,
      reset: Number((window + 1n) * length),
      window: Number(window),
      passesAt: allowed ? 0 : this.#passesAt(check, time, before),
      outcome: OUTCOME.decided,
    };
  }

  /** The first ms at which a denied check passes with the tokens before it. */
  #bucketPassesAt(check: TestCheck, before: bigint): number {
    const { limit, durationMs, cost, burst } = check;
    const left = BigInt(Math.min(burst, limit)) - BigInt(cost) - before;
    if (left < 0n) return NEVER;
    const { units, limit: rate } = this.#fullTimes.get(counterKey(check))!;
    return Number(ceilDivide(units - left * BigInt(durationMs), rate));
  }

  /** The same in windows, by bisection. */
  #passesAt(check: TestCheck, time: number, before: bigint): number {
    const { limit, durationMs, cost, rule } = check;
    const length = BigInt(durationMs);
    const window = this.#windowOf(check);
    const { current, previous } = this.usage(check);
    const passes = (at: bigint) => {
      const windows = larger(at / length, window) - window;
      const used = windows === 0n ? current : 0n;
      const usedBefore = windows === 0n ? previous : windows === 1n ? current : 0n;
      const elapsed = larger(at - (window + windows) * length, 0n);
      const carried = rule === RULE.sliding ? (usedBefore * (length - elapsed)) / length : 0n;
      return used + carried + before + BigInt(cost) <= BigInt(limit);
    };
    let from = BigInt(time);
    let to = (window + 2n) * length;
    if (!passes(to)) return NEVER;
    while (to - from > 1n) {
      const middle = (from + to) / 2n;
      if (passes(middle)) to = middle;
      else from = middle;
    }
    return Number(to);
  }

  #judgeGcra(check: TestCheck, time: number, before: bigint, from?: FullTime): TableDecision {
    const { limit, durationMs, cost, burst } = check;
    const size = BigInt(Math.min(burst, limit));
    const length = BigInt(durationMs);
    const stored = from ?? this.#fullTimes.get(counterKey(check));
    const missing = missingUnits(stored, time);
    const usedUnits = BigInt(cost) * length;
    const allowed = cost === 0 || missing + usedUnits <= size * length;
    const left = size - ceilDivide(allowed ? missing + usedUnits : missing, length);
    let full = missing > 0n ? stored! : { units: BigInt(time), limit: 1n };
    if (allowed && cost > 0) full = this.fullTimeAfter(check, time, from);
    const beyond = allowed || BigInt(cost) > size ? 0n : size * length - usedUnits;
    const reset = ceilDivide(full.units - beyond, full.limit);
    return {
      allowed,
      remaining: left > 0n ? Number(left) : 0,
      reset: Number(reset),
      window: time,
      passesAt: allowed ? 0 : this.#bucketPassesAt(check, before),
      outcome: OUTCOME.decided,
    };
  }
}

/** Decides a batch of checks. @returns whether it passes, and the decision of each check */
export function decideBatch(batch: Batch, checks: TestCheck[], now: number) {
  batch.begin();
  for (const check of checks) batch.add(check.id, check.id.namespaceTag, check);
  const passed = batch.decide(now);
  return { passed, answers: checks.map((_, number) => ({ ...batch.decision(number) })) };
}

/** Decides a single check. */
export function decideSingle(tables: CounterTable[], check: TestCheck, now: number): TableDecision {
  const decision = newDecision();
  const table = tables[shardOf(check.id)];
  table.decide(check.id, check.id.namespaceTag, now, check, true, decision);
  return decision;
}

/** The stored usage of a counter by the clock of its group, or undefined. */
export function readStoredUsage(
  tables: readonly CounterTable[],
  id: Identity,
  durationMs: number,
): Usage | undefined {
  const table = tables[shardOf(id)];
  const { group, doubles } = table;
  const location = newLocation();
  locate(table, id, location);
  const slot = find(table, location, id, durationMs);
  if (slot === NO_SLOT) return undefined;
  const cells = newCells();
  group.readCells(slot, cells);
  const window = Math.max(
    Math.floor(doubles[latestMsAt(location.lock)] / durationMs),
    cells.newest,
  );
  const [current, previous] = [usageIn(cells, window), usageBefore(cells, window)];
  return { current: BigInt(current), previous: BigInt(previous) };
}

/** The number of slots that are not empty. */
export function countOccupiedSlots(tables: readonly CounterTable[]): number {
  let occupied = 0;
  for (const { words, groups } of tables) {
    for (let i = 0; i < groups * GROUP_SLOTS; i++) {
      if (words[tagAt(slotAt(firstSlot(groups), i))] !== 0) occupied++;
    }
  }
  return occupied;
}

/** A time at which windows of all test durations begin, Unix ms. */
export const START_MS = 1_700_000_400_000;

export function newTables(groups = 1, onFull: FullTablePolicy = 'deny') {
  const tables = Array.from({ length: SHARDS }, (_, shard) => {
    return new CounterTable(allocateTable(shard, groups), shard, 1, onFull, () => {});
  });
  return { tables, batch: new Batch(tables, onFull) };
}

/** Requests of one to `maxLength` checks, often of at most three. */
export const checkLists = (check: fc.Arbitrary<TestCheck>, maxLength: number) =>
  fc.oneof(
    fc.array(check, { minLength: 1, maxLength: 3, size: 'max' }),
    fc.array(check, { minLength: 1, maxLength: maxLength, size: 'max' }),
  );

/** Amounts of every size, often small or next to the largest. */
export const amounts = (minimum: number) =>
  fc.oneof(
    fc.integer({ min: minimum, max: 20 }),
    fc.integer({ min: minimum, max: 1_000_000 }),
    fc.integer({ min: minimum, max: AMOUNT_MAX }),
    fc.integer({ min: AMOUNT_MAX - 20, max: AMOUNT_MAX }),
  );

export const durations = fc.oneof(
  fc.constantFrom(1_000, 1_001, 60_000, 86_400_000, DURATION_MAX_MS),
  fc.integer({ min: DURATION_MIN_MS, max: DURATION_MAX_MS }),
);
