import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX, COUNTERS_MIN, MULTI_LIMIT_MAX, SHARDS } from '../../../src/core/constants.ts';
import { OUTCOME, type TableDecision } from '../../../src/core/decision.ts';
import { NO_BURST, RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import { Batch } from '../../../src/engine/memory/batch.ts';
import type { CounterTable } from '../../../src/engine/memory/table.ts';
import { BUCKET_SLOTS, lockAt } from '../../../src/engine/table/layout.ts';
import { trialCount } from '../../support/guarantees.ts';
import {
  checkLists,
  counterKey,
  decideBatch,
  decideSingle,
  LimiterModel,
  makeIdentity,
  newTables,
  START_MS,
  type TestCheck,
} from '../../support/limiter-model.ts';
import { TestTables } from '../../support/test-tables.ts';

const MINUTE = 60_000;

/** A decision as text, which compares faster than the object. */
const decisionText = (answer: TableDecision) => Object.values(answer).join(' ');

const countHeldLocks = (tables: readonly CounterTable[]) =>
  tables.flatMap(({ words, groups }) => {
    return Array.from({ length: groups }, (_, group) => words[lockAt(group)]).filter(Boolean);
  });

describe('the checks of a batch', () => {
  test('may be a hundred of one counter, one of each of a hundred counters, or none', () => {
    const tables = new TestTables(COUNTERS_MIN);
    const decideMany = (name: (i: number) => string) =>
      tables.decideBatch(
        Array.from({ length: MULTI_LIMIT_MAX }, (_, i) => ({ identifier: name(i), limit: 100 })),
      );
    const same = decideMany(() => 'a');
    expect(same.passed).toBe(true);
    expect(same.answers.map(({ remaining }) => remaining)).toEqual(
      same.answers.map((_, i) => 99 - i),
    );
    expect(decideMany((i) => (i === 99 ? 'a' : 'b')).passed).toBe(false);
    expect(tables.countLive()).toBe(1);
    expect(decideMany((i) => `x${i}`).passed).toBe(true);
    expect(tables.countLive()).toBe(101);
    expect(tables.decideBatch([])).toEqual({ passed: true, answers: [] });
    expect(countHeldLocks(tables.tables)).toEqual([]);
  });

  test('need a table for each shard', () => {
    const { tables } = newTables();
    expect(() => new Batch(tables.slice(1), 'deny')).toThrow('15 tables for 16 shards');
  });
});

const huge = fc.integer({ min: AMOUNT_MAX - 20, max: AMOUNT_MAX });
describe('batches and single checks', () => {
  const here = { shard: 3, group: 1, groups: 2, first: 4, second: 9, h3: 7 };
  /** Neighbours in the list differ in one word only. All but the last two share their buckets. */
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
  const inspections = ids.flatMap((id) => {
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
    ['GCRA', [RULE.gcra]],
    ['all rules', Object.values(RULE)],
  ])('equal an exact model of %s, also when the clock steps back', (_, rules) => {
    const step = fc.record({
      ms: fc.oneof(
        fc.integer({ min: -1_500, max: 2_500 }),
        fc.constantFrom(0, 1, 500, 1_000, MINUTE, 2 * MINUTE),
      ),
      checks: checkLists(checkOf(rules), 12),
      isBatch: fc.integer({ min: 0, max: 3 }).map((of) => of > 0),
    });
    const seen = { passed: 0, denied: 0, addedUp: 0, movedBack: 0 };
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 20, size: 'max' }), (steps) => {
        const { tables, batch } = newTables(2);
        const model = new LimiterModel();
        const inSharedBuckets = new Set<string>();
        let now = START_MS;
        for (const { ms, checks, isBatch } of steps) {
          now = Math.max(START_MS, now + ms);
          if (ms < 0) seen.movedBack++;
          for (const request of isBatch ? [checks] : checks.map((check) => [check])) {
            const expected = model.judge(request, now);
            if (expected.passed) model.consume(request, expected.taken, expected.fullTimes);
            const { passed, answers } = expected;
            const decided = isBatch
              ? decideBatch(batch, request, now)
              : { passed, answers: [decideSingle(tables, request[0], now)] };
            for (const check of passed ? request : []) {
              const isCounted = check.cost > 0 && check.id.group === ids[0].group;
              if (isCounted) inSharedBuckets.add(counterKey(check));
            }
            if (decided.answers.some(({ outcome }) => outcome === OUTCOME.evicted)) {
              // The model never evicts. Two full buckets are the only reason for a table to do so.
              expect(inSharedBuckets.size).toBeGreaterThan(2 * BUCKET_SLOTS);
              return;
            }
            expect(decided).toEqual({ passed, answers });
            if (!isBatch) continue;
            seen[passed ? 'passed' : 'denied']++;
            if (passed && expected.taken.size < request.length) seen.addedUp++;
          }
          // A check at time 0 does not advance the clock of its group.
          const expected = inspections.map((check) => decisionText(model.peek(check)));
          expect(inspections.map((check) => decisionText(decideSingle(tables, check, 0)))).toEqual(
            expected,
          );
          expect(countHeldLocks(tables)).toEqual([]);
        }
      }),
      { numRuns: trialCount(200, 400) },
    );
    // The rarest, added up costs of GCRA: about 35 in 400 runs.
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(0);
    console.info(`a model and ${JSON.stringify(seen)}`);
  });
});

describe('the locks of a batch', () => {
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

  /** Real tables that record the acquired and the released locks, and can fail at any call. */
  function recordingTables() {
    const { tables, batch } = newTables(groups);
    const acquired: Lock[] = [];
    const released: Lock[] = [];
    const failing = { calls: Number.POSITIVE_INFINITY, made: 0 };
    const mayFail = () => {
      if (failing.made++ === failing.calls) throw new Error('broken');
    };
    tables.forEach((table, shard) => {
      const acquire = table.acquire.bind(table);
      const release = table.release.bind(table);
      table.acquire = (lock) => {
        if (released.length > 0) throw new Error('acquired after a release');
        mayFail();
        acquire(lock);
        acquired.push([shard, lock]);
      };
      table.release = (lock) => {
        if (table.words[lock] !== 1) throw new Error('released without being held');
        release(lock);
        released.push([shard, lock]);
      };
      for (const name of ['advanceTime', 'isExpired', 'insert', 'writeCells'] as const) {
        const work = table.group[name].bind(table.group) as (...of: unknown[]) => unknown;
        const failing = (...of: unknown[]) => {
          mayFail();
          return work(...of);
        };
        Object.assign(table.group, { [name]: failing });
      }
    });
    const start = (calls = Number.POSITIVE_INFINITY) => {
      Object.assign(failing, { calls, made: 0 });
      acquired.length = 0;
      released.length = 0;
    };
    return { tables, batch, acquired, released, failing, start };
  }

  const sorted = (locks: Lock[]) => [...locks].sort(([a, x], [b, y]) => a - b || x - y);

  test('are acquired once each, in one order for all requests, and all released', () => {
    const { tables, batch, acquired, released, start } = recordingTables();
    let now = START_MS;
    const order = fc.property(request, (checks) => {
      start();
      decideBatch(batch, checks, now++);
      // In ascending order, without duplicates and without locks that the batch does not need.
      expect(acquired).toEqual(wanted(checks));
      expect(sorted(released)).toEqual(acquired);
      expect(countHeldLocks(tables)).toEqual([]);
    });
    fc.assert(order, { numRuns: trialCount(500, 1_000) });
  });

  test('are released when the work under them or an acquisition throws', () => {
    const { tables, batch, acquired, released, failing, start } = recordingTables();
    let thrown = 0;
    const failures = fc.property(request, fc.double({ min: 0, max: 1, noNaN: true }), (of, at) => {
      start();
      decideBatch(batch, of, START_MS);
      start(Math.floor(at * failing.made));
      let hasThrown = false;
      try {
        decideBatch(batch, of, START_MS);
      } catch (error) {
        expect((error as Error).message).toBe('broken');
        hasThrown = true;
        thrown++;
      }
      expect(sorted(released)).toEqual(acquired);
      const all = wanted(of);
      expect(acquired).toEqual(hasThrown ? all.slice(0, acquired.length) : all);
      expect(countHeldLocks(tables)).toEqual([]);
    });
    fc.assert(failures, { numRuns: trialCount(150, 500) });
    expect(thrown).toBeGreaterThan(0);
    start();
    const [first] = fc.sample(request, 1);
    const costFree = first.map((one) => ({ ...one, cost: 0 }));
    expect(decideBatch(batch, costFree, START_MS).passed).toBe(true);
  });
});
