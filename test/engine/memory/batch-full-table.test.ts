/** Batches in a table that has no free slots for all of their counters. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { COUNTERS_MIN } from '../../../src/core/constants.ts';
import { type FullTablePolicy, OUTCOME, type TableDecision } from '../../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import type { Batch } from '../../../src/engine/memory/batch.ts';
import type { CounterTable } from '../../../src/engine/memory/table.ts';
import { BUCKET_SLOTS } from '../../../src/engine/table/layout.ts';
import {
  checkLists,
  counterKey,
  countOccupiedSlots,
  decideBatch,
  decideSingle,
  LimiterModel,
  makeIdentity,
  newTables,
  readStoredUsage,
  START_MS,
  type TestCheck,
  type TestIdentity,
  type Usage,
} from '../../support/limiter-model.ts';
import { type BatchCheck, TestTables } from '../../support/test-tables.ts';

const MINUTE = 60_000;

/** More identities than slots, in three buckets of one group. Each identity has two buckets. */
function fillingIdentities(namespaces: number): TestIdentity[] {
  return Array.from({ length: 24 }, (_, i) => {
    const [first, second] = [i % 3, (i + 1 + (Math.floor(i / 3) % 2)) % 3];
    const where = { shard: 0, group: 0, groups: 1, first, second, h3: i + 1 };
    return makeIdentity({ ...where, namespaceTag: 1 + (i % namespaces) });
  });
}

/** A check with a low limit, so that many counters are denied and then protected from eviction. */
const lowLimitCheck = (ids: TestIdentity[], durations: number[]) =>
  fc.record<TestCheck>({
    id: fc.constantFrom(...ids),
    limit: fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 10, max: 100 })),
    durationMs: fc.constantFrom(...durations),
    cost: fc.constantFrom(0, 1, 1, 1, 2),
    rule: fc.constantFrom(RULE.fixed, RULE.sliding),
    burst: fc.constant(NO_BURST),
  });

const many = { maxLength: 40, size: 'max' } as const;

/** Checks that exhaust some counters; the second check of each counter is denied. */
const exhaustingChecks = (ids: TestIdentity[], durations: number[]) => {
  const checks = ids.flatMap((id) => {
    return durations.map((durationMs): TestCheck => {
      return { id, durationMs, limit: 1, cost: 1, rule: RULE.fixed, burst: NO_BURST };
    });
  });
  return fc.shuffledSubarray(checks).map((some) => some.flatMap((check) => [check, check]));
};

test('a full table keeps the counters of all windows of an active client, and enforces the limit', () => {
  const tables = new TestTables(COUNTERS_MIN);
  const windows = (identifier: string): BatchCheck[] => [
    { identifier, limit: 100 },
    { identifier, limit: 1_000, duration: 60 * MINUTE },
  ];
  for (let i = 0; i < 2_000; i++) {
    for (let use = 0; use < 3; use++) tables.decideBatch(windows(`sprayed${i}`));
  }
  for (let i = 0; i < 20; i++) {
    const all = Array.from({ length: 200 }, () => tables.decideBatch(windows(`caller${i}`)));
    expect(all.filter(({ passed }) => passed)).toHaveLength(100);
  }
});

test.each(['deny', 'allow'] as const)(
  'batches of one check equal single checks, also with evictions and in a full table (%s)',
  (onFull) => {
    // No counter expires, so both tables use the same slots.
    const [ids, durations] = [fillingIdentities(12), [MINUTE, 2 * MINUTE]];
    const outcomes = [0, 0, 0];
    const uses = (tables: CounterTable[]) =>
      ids.flatMap((id) => durations.map((ms) => readStoredUsage(tables, id, ms)));
    const step = fc.tuple(lowLimitCheck(ids, durations), fc.integer({ min: -50, max: 200 }));
    fc.assert(
      fc.property(exhaustingChecks(ids, durations), fc.array(step, many), (filled, steps) => {
        const [one, other] = [newTables(1, onFull), newTables(1, onFull)];
        let now = START_MS;
        const first = filled.map((check) => [check, 0] as const);
        for (const [check, ms] of [...first, ...steps]) {
          now = Math.max(START_MS, now + ms);
          const alone = decideSingle(one.tables, check, now);
          const { passed, answers } = decideBatch(other.batch, [check], now);
          expect([passed, answers]).toEqual([alone.allowed, [alone]]);
          outcomes[alone.outcome]++;
        }
        expect(uses(other.tables)).toEqual(uses(one.tables));
      }),
      // With 30 runs, once in a hundred no check found its table full.
      { numRuns: 150 },
    );
    for (const times of outcomes) expect(times).toBeGreaterThan(0);
  },
);

describe('counters of the same two buckets', () => {
  const identityInBuckets = (h3: number, namespaceTag = h3) =>
    makeIdentity({ shard: 0, group: 0, groups: 1, first: 0, second: 1, h3, namespaceTag });
  const terms = { limit: 10, durationMs: MINUTE, cost: 1, rule: RULE.fixed, burst: NO_BURST };
  const check = (h3: number, more: Partial<TestCheck> = {}): TestCheck => {
    return { id: identityInBuckets(h3), ...terms, ...more };
  };
  const use = (tables: CounterTable[], { id, durationMs }: TestCheck) =>
    readStoredUsage(tables, id, durationMs)?.current;

  /** Fills all but one slot of both buckets with counters that are never evicted. */
  function filled(onFull: FullTablePolicy = 'deny') {
    const { tables, batch } = newTables(1, onFull);
    const others = Array.from({ length: 2 * BUCKET_SLOTS - 1 }, (_, i) =>
      check(100 + i, { cost: 6 }),
    );
    for (const other of [...others, ...others]) decideSingle(tables, other, START_MS);
    const areUnchanged = () => others.every((other) => use(tables, other) === 6n);
    return { tables, batch, areUnchanged };
  }

  const [old, fresh] = [1, 2];

  test('of which none is free say when the first is, for each check of the counter', () => {
    const { tables, batch } = filled();
    for (let i = 0; i < 2; i++) decideSingle(tables, check(old, { cost: 6 }), START_MS);
    const { answers } = decideBatch(batch, [check(fresh), check(fresh)], START_MS);
    const reset = START_MS - (START_MS % MINUTE) + MINUTE;
    const full = { allowed: false, outcome: OUTCOME.full, reset, passesAt: reset };
    expect(answers).toMatchObject([full, full]);
  });

  test.each([
    ['the new counter', [fresh, old]],
    ['the expired counter', [old, fresh]],
  ] as const)(
    'that expired free their slot once, as with single checks, also if %s comes first',
    (_, order) => {
      for (const onFull of ['deny', 'allow'] as const) {
        const [one, other] = [filled(onFull), filled(onFull)];
        const short = check(old, { durationMs: 1_000, cost: 3 });
        const now = START_MS + 2_000;
        for (const { tables } of [one, other]) decideSingle(tables, short, START_MS);
        expect(countOccupiedSlots(one.tables)).toBe(2 * BUCKET_SLOTS);
        const request = order.map((h3) => (h3 === old ? { ...short, cost: 1 } : check(h3)));
        const { passed, answers } = decideBatch(one.batch, request, now);
        expect(passed).toBe(true);
        expect(answers).toEqual(request.map((check) => decideSingle(other.tables, check, now)));
        // The second check can evict only the counter of the first.
        expect(answers.map(({ outcome }) => outcome)).toEqual([OUTCOME.decided, OUTCOME.evicted]);
        expect(request.map((check) => use(one.tables, check))).toEqual([undefined, 1n]);
        expect(request.map((check) => use(other.tables, check))).toEqual([undefined, 1n]);
        expect(one.areUnchanged()).toBe(true);
        expect(countOccupiedSlots(one.tables)).toBe(2 * BUCKET_SLOTS);
      }
    },
  );

  test.each([0, 1])(
    'that are evicted for a new counter of their own batch are inserted again (%i)',
    (at) => {
      const { tables, batch, areUnchanged } = filled();
      decideSingle(tables, check(old, { cost: 3 }), START_MS);
      const request = [check(fresh, { cost: 2 })];
      request.splice(at, 0, check(old, { cost: 1 }));
      const { passed, answers } = decideBatch(batch, request, START_MS);
      expect(passed).toBe(true);
      expect(answers[at]).toMatchObject({ allowed: true, remaining: 6 });
      expect(answers[1 - at]).toMatchObject({ allowed: true, remaining: 8 });
      // One slot is left for the two counters, as with two single checks in turn.
      expect([use(tables, check(old)), use(tables, check(fresh))]).toEqual([1n, undefined]);
      expect(areUnchanged()).toBe(true);
      expect(countOccupiedSlots(tables)).toBe(2 * BUCKET_SLOTS);
    },
  );

  test('that were evicted for a new counter stay evicted when a later check finds no slot', () => {
    const { tables, batch, areUnchanged } = filled();
    decideSingle(tables, check(old, { cost: 3 }), START_MS);
    // All counters of the other two buckets are protected from eviction.
    const elsewhere = Array.from({ length: 2 * BUCKET_SLOTS + 1 }, (_, i) => {
      const where = { shard: 5, group: 0, groups: 1, first: 2, second: 3, h3: i + 1 };
      return { ...terms, cost: 10, id: makeIdentity({ ...where, namespaceTag: i + 1 }) };
    });
    const [unknown, ...known] = elsewhere;
    for (const other of [...known, ...known]) decideSingle(tables, other, START_MS);
    const request = [check(old), check(fresh), { ...unknown, cost: 1 }];
    const { passed, answers } = decideBatch(batch, request, START_MS);
    expect(passed).toBe(false);
    const reset = START_MS + MINUTE;
    expect(answers).toMatchObject([
      { allowed: true, remaining: 10, reset },
      { allowed: true, remaining: 10, reset },
      { allowed: false, remaining: 0, reset, outcome: OUTCOME.full },
    ]);
    expect([use(tables, check(old)), use(tables, check(fresh))]).toEqual([undefined, undefined]);
    expect(areUnchanged()).toBe(true);
    expect(countOccupiedSlots(tables)).toBe(4 * BUCKET_SLOTS - 1);
  });
});

describe.each([
  ['deny', 12],
  ['allow', 12],
  ['deny', 2],
] as const)('a table with fewer slots than counters (%s, %i namespaces)', (onFull, namespaces) => {
  const ids = fillingIdentities(namespaces);
  const durations = [10_000, MINUTE];
  const all = ids.flatMap((id) => durations.map((durationMs) => ({ id, durationMs })));
  const none: Usage = { current: 0n, previous: 0n };
  const asBatch = (answer: TableDecision) => ({ passed: answer.allowed, answers: [answer] });
  const isEqual = (a: Usage, b: Usage) => a.current === b.current && a.previous === b.previous;

  /** A run of requests against the tables and the model. It counts the outcomes. */
  class Run {
    readonly #tables: CounterTable[];
    readonly #batch: Batch;
    readonly #model = new LimiterModel();
    /** Per counter: the window of its last denied check. */
    readonly #protectedIn = new Map<string, number>();
    readonly #seen: Record<string, number>;

    constructor(seen: Record<string, number>) {
      const { tables, batch } = newTables(1, onFull);
      this.#tables = tables;
      this.#batch = batch;
      this.#seen = seen;
    }

    decide(request: TestCheck[], now: number, isBatch: boolean): void {
      const model = this.#model;
      const stored = new Set(
        all.filter((of) => readStoredUsage(this.#tables, of.id, of.durationMs)).map(counterKey),
      );
      const expected = model.judge(request, now);
      const before = new Map(all.map((of) => [counterKey(of), model.usage(of)]));
      const { passed, answers } = isBatch
        ? decideBatch(this.#batch, request, now)
        : asBatch(decideSingle(this.#tables, request[0], now));
      const outcomes = answers.map(({ outcome }) => outcome);
      const evicted = outcomes.filter((outcome) => outcome === OUTCOME.evicted).length;
      const full = request.filter((_, i) => outcomes[i] === OUTCOME.full);
      if (!expected.passed) {
        expect({ passed, answers }).toEqual({ passed: false, answers: expected.answers });
        expect(this.#countLost()).toBe(0);
        this.#noteProtected(request, answers);
        this.#seen.denied++;
        return;
      }
      const isUncounted = (key: string) => full.some((check) => counterKey(check) === key);
      for (const check of full) expect(before.get(counterKey(check))).toEqual(none);
      if (passed) {
        this.#seen.passed++;
        if (onFull === 'deny') expect(full).toEqual([]);
        this.#seen.uncounted += full.length;
        const plain = answers.map((answer) => ({ ...answer, outcome: OUTCOME.decided }));
        expect(plain).toEqual(expected.answers);
        const counted = request.filter((check) => !isUncounted(counterKey(check)));
        model.consume(counted, expected.taken);
        expect(this.#countLost(expected.taken, before)).toBeLessThanOrEqual(evicted);
        for (const check of full) {
          expect(readStoredUsage(this.#tables, check.id, check.durationMs)).toBeUndefined();
        }
        return;
      }
      // All checks are under their limits, but one counter has no slot.
      expect([onFull, new Set(full.map(counterKey)).size]).toEqual(['deny', 1]);
      this.#seen.full++;
      expect(this.#countLost()).toBeLessThanOrEqual(evicted);
      request.forEach((check, i) => {
        if (isUncounted(counterKey(check)) && check.cost > 0) {
          expect(answers[i]).toMatchObject({ allowed: false, remaining: 0 });
          expect(answers[i].reset).toBeGreaterThan(model.timeOf(check.id));
        } else expect({ ...answers[i], outcome: 0 }).toEqual(model.peek(check));
        const isStored = readStoredUsage(this.#tables, check.id, check.durationMs) !== undefined;
        if (isStored) expect(stored.has(counterKey(check))).toBe(true);
      });
    }

    #noteProtected(request: TestCheck[], answers: { allowed: boolean; window: number }[]): void {
      request.forEach((check, i) => {
        const { current, previous } = this.#model.usage(check);
        const hasUsage = current > 0n || (check.rule === RULE.sliding && previous > 0n);
        if (!answers[i].allowed && hasUsage)
          this.#protectedIn.set(counterKey(check), answers[i].window);
      });
    }

    /**
     * Compares all counters with the model, and removes evicted counters from the model.
     * @param taken tokens by counter of this request; an evicted counter may hold only these
     * @returns how many counters were evicted
     */
    #countLost(
      taken: ReadonlyMap<string, bigint> = new Map(),
      before?: Map<string, Usage>,
    ): number {
      let lost = 0;
      let storedCount = 0;
      for (const of of all) {
        const key = counterKey(of);
        const actual = readStoredUsage(this.#tables, of.id, of.durationMs);
        if (actual !== undefined) storedCount++;
        const expected = this.#model.usage(of);
        if (isEqual(actual ?? none, expected)) continue;
        if (actual === undefined) lost++;
        else {
          // It was evicted for another counter of its request, and inserted again.
          expect(actual).toEqual({ current: taken.get(key), previous: 0n });
          expect(isEqual(before!.get(key)!, none)).toBe(false);
          this.#seen.anew++;
          lost++;
        }
        const window = this.#protectedIn.get(key);
        if (namespaces > 8 && window !== undefined) {
          expect((window + 1) * of.durationMs).toBeLessThanOrEqual(this.#model.timeOf(of.id));
        }
        this.#protectedIn.delete(key);
        this.#model.setUsage(of, actual ?? none);
      }
      // No counter occupies two slots, and every occupied slot can be found by its identity.
      expect(countOccupiedSlots(this.#tables.slice(0, 1))).toBe(storedCount);
      this.#seen.lost += lost;
      return lost;
    }
  }

  test('keeps or evicts each counter as a whole, never a part of it', () => {
    expect(all.length).toBe(2 * 3 * BUCKET_SLOTS);
    const step = fc.record({
      ms: fc.oneof(
        { weight: 9, arbitrary: fc.integer({ min: -20, max: 60 }) },
        { weight: 1, arbitrary: fc.integer({ min: 1_000, max: 20_000 }) },
      ),
      checks: checkLists(lowLimitCheck(ids, durations), 8),
      isBatch: fc.integer({ min: 0, max: 3 }).map((of) => of > 0),
    });
    const seen = { passed: 0, denied: 0, full: 0, uncounted: 0, lost: 0, anew: 0 };
    fc.assert(
      fc.property(exhaustingChecks(ids, durations), fc.array(step, many), (filled, steps) => {
        const run = new Run(seen);
        let now = START_MS;
        for (const check of filled) run.decide([check], now, false);
        for (const { ms, checks, isBatch } of steps) {
          now = Math.max(START_MS, now + ms);
          for (const request of isBatch ? [checks] : checks.map((check) => [check])) {
            run.decide(request, now, isBatch);
          }
        }
      }),
      { numRuns: 100 },
    );
    console.info(`${onFull}, ${namespaces} namespaces: ${JSON.stringify(seen)}`);
    // Too rare for this number of runs: a counter that is evicted and inserted again.
    const { full, uncounted, anew: _, ...always } = seen;
    for (const times of Object.values(always)) expect(times).toBeGreaterThan(0);
    expect(onFull === 'deny' ? full : uncounted).toBeGreaterThan(0);
  });
});
