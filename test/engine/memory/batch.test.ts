import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX, COUNTERS_MIN, MULTI_LIMIT_MAX, SHARDS } from '../../../src/core/constants.ts';
import { OUTCOME, type TableDecision } from '../../../src/core/decision.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import { Batch } from '../../../src/engine/memory/batch.ts';
import { lockAt } from '../../../src/engine/memory/layout.ts';
import type { CounterTable } from '../../../src/engine/memory/table.ts';
import {
  checkLists,
  countOccupiedSlots,
  decideBatch,
  decideSingle,
  LimiterModel,
  makeIdentity,
  newTables,
  START_MS,
  type TestCheck,
} from '../../support/limiter-model.ts';
import { type BatchCheck, TestTables } from '../../support/test-tables.ts';

const MINUTE = 60_000;
const NOW = 1_700_000_000_000;

const sameWindow = { window: Math.floor(NOW / MINUTE), outcome: OUTCOME.decided };
const reset = (sameWindow.window + 1) * MINUTE;
const allowedDecision = (remaining: number) => ({
  allowed: true,
  remaining,
  reset,
  ...sameWindow,
});
const deniedDecision = (remaining: number) => ({
  allowed: false,
  remaining,
  reset,
  ...sameWindow,
});

/** What one compares faster than the object. */
const decisionText = (answer: TableDecision) => Object.values(answer).join(' ');

const countHeldLocks = (tables: readonly CounterTable[]) =>
  tables.flatMap(({ words, groups }) => {
    return Array.from({ length: groups }, (_, group) => words[lockAt(group)]).filter(Boolean);
  });

describe('checks that are decided together', () => {
  const used = (tables: TestTables, identifier: string, options: Partial<BatchCheck> = {}) => {
    const { namespace, ...rest } = options;
    return 10 - tables.decide(identifier, { ...rest, cost: 0 }, namespace).remaining;
  };

  test('are all counted when all pass, each after those before it', () => {
    const tables = new TestTables(COUNTERS_MIN);
    tables.decide('a', { cost: 2 });
    const ask = [
      { identifier: 'a', cost: 3 },
      { identifier: 'b', cost: 10 },
      { identifier: 'a', cost: 4 },
      { identifier: 'a', cost: 2, limit: 20 },
    ];
    const { passed, answers } = tables.decideBatch(ask);
    expect(passed).toBe(true);
    expect(answers).toEqual([
      allowedDecision(5),
      allowedDecision(0),
      allowedDecision(1),
      allowedDecision(9),
    ]);
    expect([used(tables, 'a', { limit: 11 }), used(tables, 'b')]).toEqual([10, 10]);
    expect(tables.countLive()).toBe(2);
  });

  test.each([0, 1, 2, 3])('are not counted when number %i is denied', (refusedOne) => {
    const tables = new TestTables(COUNTERS_MIN);
    for (const identifier of ['a', 'b']) tables.decide(identifier, { cost: 4 });
    const ask = ['a', 'new', 'b', 'newer'].map((identifier, i) => {
      return { identifier, cost: i === refusedOne ? 11 : 1 };
    });
    const { passed, answers } = tables.decideBatch(ask);
    expect(passed).toBe(false);
    const before = [6, 10, 6, 10];
    expect(answers).toEqual(
      before.map((left, i) => (i === refusedOne ? deniedDecision(left) : allowedDecision(left))),
    );
    expect(ask.map(({ identifier }) => used(tables, identifier))).toEqual([4, 0, 4, 0]);
    expect(tables.countLive()).toBe(2);
  });

  test('are judged in their order: a denied one takes no tokens from those after it', () => {
    const tables = new TestTables(COUNTERS_MIN);
    tables.decide('a', { cost: 1 });
    const ask = [4, 6, 5, 1].map((cost) => ({ identifier: 'a', cost }));
    const { passed, answers } = tables.decideBatch(ask);
    expect(passed).toBe(false);
    // 1 + 4, then 6 is too much, then + 5 is 10, then 1 is too much. Fixed windows say what is left.
    expect(answers).toEqual([
      allowedDecision(9),
      deniedDecision(5),
      allowedDecision(9),
      deniedDecision(0),
    ]);
    expect(used(tables, 'a')).toBe(1);
    const reversed = [5, 6, 4].map((cost) => ({ identifier: 'a', cost }));
    expect(tables.decideBatch(reversed).answers.map((one) => one.allowed)).toEqual([
      true,
      false,
      true,
    ]);
  });

  test('report the remaining tokens without the batch when not all pass, and 0 when denied', () => {
    const tables = new TestTables(COUNTERS_MIN);
    tables.decide('a', { cost: 2 });
    const ask = [3, 6, 5, 0].map((cost) => ({ identifier: 'a', cost, rule: RULE.sliding }));
    const { passed, answers } = tables.decideBatch([...ask, { identifier: 'b', cost: 7 }]);
    expect(passed).toBe(false);
    expect(answers).toEqual([
      allowedDecision(8),
      deniedDecision(0),
      allowedDecision(8),
      allowedDecision(8),
      allowedDecision(10),
    ]);
  });

  test('share a counter by namespace, identifier and duration, with any limit', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const { passed, answers } = tables.decideBatch([
      { identifier: 'a', cost: 4 },
      { identifier: 'a', cost: 1, limit: 20 },
      { identifier: 'a', cost: 7, namespace: 'other' },
      { identifier: 'a', cost: 8, duration: 2 * MINUTE },
      { identifier: 'b', cost: 9 },
      { identifier: 'a', cost: 1, limit: 100, rule: RULE.sliding },
    ]);
    expect(passed).toBe(true);
    expect(answers.map(({ remaining }) => remaining)).toEqual([6, 15, 3, 2, 1, 94]);
    expect(used(tables, 'a')).toBe(6);
    expect(used(tables, 'a', { namespace: 'other' })).toBe(7);
    expect(used(tables, 'a', { duration: 2 * MINUTE })).toBe(8);
    expect(tables.countLive()).toBe(4);
  });

  test('with a cost of 0 always pass, see the checks before them, and insert no counter', () => {
    const tables = new TestTables(COUNTERS_MIN);
    tables.decide('spent', { cost: 10 });
    const { passed, answers } = tables.decideBatch([
      { identifier: 'spent', cost: 0 },
      { identifier: 'spent', cost: 0, limit: 5 },
      { identifier: 'none', cost: 0, limit: 0 },
      { identifier: 'new', cost: 0 },
      { identifier: 'new', cost: 3 },
      { identifier: 'new', cost: 0 },
    ]);
    expect(passed).toBe(true);
    expect(answers.map(({ remaining }) => remaining)).toEqual([0, 0, 0, 10, 7, 7]);
    expect(tables.countLive()).toBe(2);
  });

  test('are exact up to 2^53-1, also in their sum', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const huge = { identifier: 'a', limit: AMOUNT_MAX };
    expect(tables.decideBatch([{ ...huge, cost: AMOUNT_MAX - 3 }]).passed).toBe(true);
    const ask = [1, 3, AMOUNT_MAX, 1, 2, 1].map((cost) => ({ ...huge, cost }));
    const { passed, answers } = tables.decideBatch(ask);
    expect(passed).toBe(false);
    const verdicts = answers.map((one) => [one.allowed, one.remaining]);
    expect(verdicts).toEqual([
      [true, 3],
      [false, 2],
      [false, 2],
      [true, 3],
      [false, 1],
      [true, 3],
    ]);
    const fits = [1, 1, 1].map((cost) => ({ ...huge, cost }));
    expect(tables.decideBatch(fits).answers.map(({ remaining }) => remaining)).toEqual([2, 1, 0]);
  });

  test('may be a hundred of one counter, one of each of a hundred counters, or none', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const ask = (name: (i: number) => string) =>
      tables.decideBatch(
        Array.from({ length: MULTI_LIMIT_MAX }, (_, i) => ({ identifier: name(i), limit: 100 })),
      );
    const same = ask(() => 'a');
    expect(same.passed).toBe(true);
    expect(same.answers.map(({ remaining }) => remaining)).toEqual(
      same.answers.map((_, i) => 99 - i),
    );
    expect(ask((i) => (i === 99 ? 'a' : 'b')).passed).toBe(false);
    expect(tables.countLive()).toBe(1);
    expect(ask((i) => `x${i}`).passed).toBe(true);
    expect(tables.countLive()).toBe(101);
    expect(tables.decideBatch([])).toEqual({ passed: true, answers: [] });
    expect(countHeldLocks(tables.tables)).toEqual([]);
  });

  test('start again each time: no state of a request remains for the next', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const ask = (...names: string[]) =>
      tables.decideBatch(names.map((identifier) => ({ identifier, cost: 4 })));
    expect(ask('a', 'a', 'b').passed).toBe(true);
    expect(ask('b', 'c').answers).toEqual([allowedDecision(2), allowedDecision(6)]);
    expect(ask('a', 'b', 'c').passed).toBe(false);
    expect(ask('c').answers).toEqual([allowedDecision(2)]);
    expect(['a', 'b', 'c'].map((name) => used(tables, name))).toEqual([8, 8, 8]);
  });

  test('move their counters into a new window, by the later of two clocks', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const ask = [
      { identifier: 'a', cost: 6, rule: RULE.sliding },
      { identifier: 'a', cost: 2, rule: RULE.sliding },
    ];
    expect(tables.decideBatch(ask, START_MS).answers.map((one) => one.remaining)).toEqual([4, 2]);
    const half = START_MS + 1.5 * MINUTE;
    const later = tables.decideBatch(ask.slice(1), half).answers;
    expect(later).toMatchObject([{ allowed: true, remaining: 4, reset: START_MS + 2 * MINUTE }]);
    // A thread whose clock is behind is decided in the window that began.
    const late = tables.decideBatch(ask.slice(1), START_MS).answers;
    expect(late).toMatchObject([{ allowed: true, remaining: 2, reset: START_MS + 2 * MINUTE }]);
    const expired = tables.decideBatch(ask, START_MS + 3 * MINUTE).answers;
    expect(expired.map((one) => one.remaining)).toEqual([4, 2]);
    expect(tables.countLive(START_MS + 3 * MINUTE)).toBe(1);
  });

  test('take a table for each shard', () => {
    const { tables } = newTables();
    expect(() => new Batch(tables.slice(1), 'deny')).toThrow('15 tables for 16 shards');
  });
});

const huge = fc.integer({ min: AMOUNT_MAX - 20, max: AMOUNT_MAX });
describe('checks that are decided together, and alone', () => {
  const here = { shard: 3, group: 1, groups: 2, first: 4, second: 9, h3: 7 };
  /** Those next to each other differ in one word only; they lie in three groups. */
  const ids = [
    here,
    { ...here, rest: { h0: 1 } },
    { ...here, rest: { h1: 1 } },
    { ...here, rest: { h2: 1 } },
    { ...here, h3: 8 },
    { ...here, group: 0 },
    { ...here, shard: 12 },
  ].map(makeIdentity);
  const durations = [1_000, 1_500, MINUTE];
  const looks = ids.flatMap((id) => {
    return durations.flatMap((durationMs) => {
      return Object.values(RULE).map((rule) => {
        return { id, durationMs, limit: AMOUNT_MAX, cost: 0, rule, burst: NO_BURST };
      });
    });
  });
  const checkOf = (rules: RuleNumber[]) =>
    fc.record<TestCheck>({
      id: fc.constantFrom(...ids),
      limit: fc.oneof(
        { weight: 12, arbitrary: fc.constantFrom(2, 5, 20, 60) },
        { weight: 2, arbitrary: fc.integer({ min: 0, max: 20 }) },
        { weight: 3, arbitrary: huge },
      ),
      durationMs: fc.constantFrom(...durations),
      cost: fc.oneof(
        { weight: 40, arbitrary: fc.integer({ min: 0, max: 3 }) },
        { weight: 1, arbitrary: huge },
      ),
      rule: fc.constantFrom(...rules),
      burst: fc.constantFrom(NO_BURST, 1, 3, 10),
    });

  test.each([
    ['the window rules', [RULE.fixed, RULE.sliding]],
    ['GCRA', [RULE.gcra]],
  ])('equal an exact model of %s, with a clock that steps both ways', (_, rules) => {
    const step = fc.record({
      ms: fc.oneof(
        fc.integer({ min: -1_500, max: 2_500 }),
        fc.constantFrom(0, 1, 500, 1_000, MINUTE, 2 * MINUTE),
      ),
      checks: checkLists(checkOf(rules), 12),
      areTogether: fc.integer({ min: 0, max: 3 }).map((of) => of > 0),
    });
    const seen = { passed: 0, refused: 0, addedUp: 0, movedBack: 0 };
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 20, size: 'max' }), (steps) => {
        const { tables, together } = newTables(2);
        const model = new LimiterModel();
        let now = START_MS;
        for (const { ms, checks, areTogether } of steps) {
          now = Math.max(START_MS, now + ms);
          if (ms < 0) seen.movedBack++;
          for (const request of areTogether ? [checks] : checks.map((check) => [check])) {
            const said = model.judge(request, now);
            if (said.passed) model.consume(request, said.taken, said.fullTimes);
            const { passed, answers } = said;
            if (!areTogether) {
              expect(decideSingle(tables, request[0], now)).toEqual(answers[0]);
              continue;
            }
            expect(decideBatch(together, request, now)).toEqual({ passed, answers });
            seen[passed ? 'passed' : 'refused']++;
            if (passed && said.taken.size < request.length) seen.addedUp++;
          }
          // At a time before that of its group, which so stays what it is.
          const said = looks.map((look) => decisionText(model.peek(look)));
          expect(looks.map((look) => decisionText(decideSingle(tables, look, 0)))).toEqual(said);
          expect(countHeldLocks(tables)).toEqual([]);
        }
      }),
      { numRuns: 400 },
    );
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(75);
    console.info(`a model and ${JSON.stringify(seen)}`);
  });
});

describe('the locks of checks that are decided together', () => {
  const groups = 8;
  const id = fc
    .record({
      shard: fc.integer({ min: 0, max: SHARDS - 1 }),
      group: fc.integer({ min: 0, max: groups - 1 }),
      h3: fc.integer({ min: 1, max: 4 }),
    })
    .map((where) => makeIdentity({ ...where, groups, first: 0, second: 1 }));
  const check = fc.record<TestCheck>({
    id,
    limit: fc.integer({ min: 0, max: 5 }),
    durationMs: fc.constantFrom(1_000, MINUTE),
    cost: fc.integer({ min: 0, max: 2 }),
    rule: fc.constantFrom(RULE.fixed, RULE.sliding),
    burst: fc.constant(NO_BURST),
  });
  const request = checkLists(check, MULTI_LIMIT_MAX);
  type Lock = [shard: number, lock: number];
  const wanted = (checks: TestCheck[]): Lock[] => {
    const group = ({ id: { group } }: TestCheck) => group.split('/').map(Number);
    const locks = checks.map((one): Lock => [group(one)[0], lockAt(group(one)[1])]);
    const distinct = new Map(locks.map((lock) => [String(lock), lock]));
    return [...distinct.values()].sort(([a, lockA], [b, lockB]) => a - b || lockA - lockB);
  };

  /** Real tables, of which it is seen what is taken and given back. */
  function watched() {
    const { tables, together } = newTables(groups);
    const taken: Lock[] = [];
    const given: Lock[] = [];
    const failing = { calls: Number.POSITIVE_INFINITY, made: 0 };
    const mayFail = () => {
      if (failing.made++ === failing.calls) throw new Error('broken');
    };
    tables.forEach((table, shard) => {
      const { group } = table;
      const acquire = table.acquire.bind(table);
      const release = table.release.bind(table);
      const find = group.find.bind(group);
      const place = group.insert.bind(group);
      const write = group.writeCells.bind(group);
      table.acquire = (lock) => {
        if (given.length > 0) throw new Error('taken late');
        mayFail();
        acquire(lock);
        taken.push([shard, lock]);
      };
      table.release = (lock) => {
        if (table.words[lock] !== 1) throw new Error('given back, not taken');
        release(lock);
        given.push([shard, lock]);
      };
      group.find = (...of) => {
        mayFail();
        return find(...of);
      };
      group.insert = (...of) => {
        mayFail();
        return place(...of);
      };
      group.writeCells = (...of) => {
        mayFail();
        write(...of);
      };
    });
    const start = (calls = Number.POSITIVE_INFINITY) => {
      Object.assign(failing, { calls, made: 0 });
      taken.length = 0;
      given.length = 0;
    };
    return { tables, together, taken, given, failing, start };
  }

  const sorted = (locks: Lock[]) => [...locks].sort(([a, x], [b, y]) => a - b || x - y);

  test('are taken in one order by any two requests, each once, and all released after', () => {
    const { tables, together, taken, given, start } = watched();
    let now = START_MS;
    let shared = 0;
    const orders = fc.property(request, request, (one, other) => {
      const places = [one, other].map((checks) => {
        start();
        decideBatch(together, checks, now++);
        // Ascending, none twice, none that is not needed.
        expect(taken).toEqual(wanted(checks));
        expect(taken.length).toBeLessThanOrEqual(checks.length);
        expect(sorted(given)).toEqual(taken);
        expect(countHeldLocks(tables)).toEqual([]);
        return new Map(taken.map((lock, place) => [String(lock), place]));
      });
      // Two locks that both want are taken in the same order: neither waits for the other's.
      const both = [...places[0].keys()].filter((lock) => places[1].has(lock));
      if (both.length > 1) shared++;
      for (let i = 1; i < both.length; i++) {
        expect(places[1].get(both[i - 1])!).toBeLessThan(places[1].get(both[i])!);
      }
    });
    fc.assert(orders, { numRuns: 500 });
    expect(shared).toBeGreaterThan(100);
  });

  test('are released when the work in between throws, or one cannot be taken', () => {
    const { tables, together, taken, given, failing, start } = watched();
    let thrown = 0;
    const failures = fc.property(request, fc.double({ min: 0, max: 1, noNaN: true }), (of, at) => {
      start();
      decideBatch(together, of, START_MS);
      start(Math.floor(at * failing.made));
      let hasThrown = false;
      try {
        decideBatch(together, of, START_MS);
      } catch (error) {
        expect((error as Error).message).toBe('broken');
        hasThrown = true;
        thrown++;
      }
      expect(sorted(given)).toEqual(taken);
      const all = wanted(of);
      expect(taken).toEqual(hasThrown ? all.slice(0, taken.length) : all);
      expect(countHeldLocks(tables)).toEqual([]);
    });
    fc.assert(failures, { numRuns: 500 });
    expect(thrown).toBeGreaterThan(100);
    start();
    const [first] = fc.sample(request, 1);
    const looks = first.map((one) => ({ ...one, cost: 0 }));
    expect(decideBatch(together, looks, START_MS).passed).toBe(true);
  });

  test('that another thread holds stay held when they cannot be taken', () => {
    const { tables, together, start } = watched();
    const ids = [0, 1, 2].map((shard) => {
      return makeIdentity({ shard, group: 3, groups, first: 0, second: 1, h3: 1 });
    });
    const terms = { limit: 5, durationMs: MINUTE, cost: 1, rule: RULE.sliding, burst: NO_BURST };
    const checks = ids.map((id) => ({ id, ...terms }));
    tables[1].words[lockAt(3)] = 77;
    start(1);
    expect(() => decideBatch(together, checks, START_MS)).toThrow('broken');
    expect(countHeldLocks(tables)).toEqual([77]);
    expect(countOccupiedSlots(tables)).toBe(0);
    tables[1].words[lockAt(3)] = 0;
    start();
    expect(decideBatch(together, checks, START_MS).passed).toBe(true);
  });
});
