import { beforeEach, describe, expect, test } from 'vitest';
import { AMOUNT_MAX, COUNTERS_MIN } from '../../../src/core/constants.ts';
import { DEDUCTION_OUTCOME, OUTCOME } from '../../../src/core/decision.ts';
import type { Identity } from '../../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { CounterTable } from '../../../src/engine/memory/table.ts';
import { atomicWords, lockAt, TABLE_HEADER, tableBytes } from '../../../src/engine/table/layout.ts';
import { allocateTable } from '../../../src/engine/table/table-memory.ts';
import { IS_LONG } from '../../support/guarantees.ts';
import { TestTables, tablesOfDeniedCounters } from '../../support/test-tables.ts';

const NOW = 1_700_000_000_000;
const MINUTE = 60_000;

let tables: TestTables;
beforeEach(() => {
  tables = new TestTables(COUNTERS_MIN);
});

test('a counter is not inserted by a check of cost 0 or a denied check', () => {
  expect(tables.decide('a', { cost: 0 })).toMatchObject({ allowed: true, remaining: 10 });
  expect(tables.decide('a', { cost: 11 })).toMatchObject({ allowed: false, remaining: 10 });
  expect(tables.countLive()).toBe(0);
});

describe('a table', () => {
  test.each([COUNTERS_MIN, 65_536, ...(IS_LONG ? [1_048_576] : [])])(
    'of %i counters holds that many without an eviction',
    (capacity) => {
      tables = new TestTables(capacity);
      for (let i = 0; i < capacity; i++) tables.decide(`user_${i}`);
      expect(tables.evicted + tables.full).toBe(0);
      expect(tables.countLive()).toBe(capacity);
      for (let i = 0; i < capacity; i += 97) {
        expect(tables.decide(`user_${i}`, { cost: 0 }).remaining).toBe(9);
      }
    },
  );

  test('under ten times its capacity evicts the least used counters, and none that denies checks', () => {
    const capacity = 2_048;
    tables = new TestTables(capacity);
    const denied = Array.from({ length: 100 }, (_, i) => `denied_${i}`);
    const busy = Array.from({ length: 100 }, (_, i) => `busy_${i}`);
    for (const id of denied) {
      tables.decide(id, { limit: 5, cost: 5 });
      expect(tables.decide(id, { limit: 5 }).allowed).toBe(false);
    }
    for (const id of busy) tables.decide(id, { limit: 100, cost: 90 });
    for (let i = 0; i < 10 * capacity; i++) tables.decide(`spray_${i}`, { limit: 100 });
    expect(tables.evicted).toBeGreaterThan(7 * capacity);
    for (const id of denied) expect(tables.decide(id, { limit: 5 }).allowed).toBe(false);
    for (const id of busy) expect(tables.decide(id, { limit: 100, cost: 0 }).remaining).toBe(10);
    expect(tables.full).toBe(0);
  });

  test.each(['deny', 'allow'] as const)(
    'without a free slot decides about a new counter by the policy %s',
    (policy) => {
      tables = tablesOfDeniedCounters(policy, 1_000);
      const reset = Math.floor(NOW / MINUTE) * MINUTE + MINUTE;
      // Where it denies, until the earliest reset. What it allows is not counted.
      const expected = {
        deny: { allowed: false, remaining: 0, reset },
        allow: { allowed: true, remaining: 5 },
      }[policy];
      const before = tables.full;
      for (let i = 1; i <= 2; i++) {
        const answer = tables.decide('new', { limit: 7, cost: 2, duration: 3_600_000 }, 'fresh');
        expect(answer).toMatchObject({ ...expected, outcome: OUTCOME.full });
        expect(tables.full).toBe(before + i);
      }
    },
  );
});

describe('a peek without the lock', () => {
  test('returns the decision that a check would get, and changes nothing', () => {
    expect(tables.peek('a')).toBeUndefined();
    tables.decide('a', { cost: 7 });
    const words = tables.tables.map((table) => [...atomicWords(table.words)]);
    for (const cost of [0, 1, 3]) {
      const seen = { ...tables.peek('a', { cost }) };
      expect(seen).toEqual({ ...tables.decide('a', { cost, isCounted: false }) });
    }
    expect(tables.peek('a', { now: NOW + MINUTE })).toMatchObject({ allowed: true, remaining: 9 });
    // A denial needs the lock, because the table records it.
    expect(tables.peek('a', { cost: 4 })).toBeUndefined();
    expect(tables.tables.map((table) => [...atomicWords(table.words)])).toEqual(words);
  });

  test('does not wait for a thread that holds the lock', () => {
    tables.decide('a', { cost: 2 });
    for (const { words, groups } of tables.tables) {
      for (let group = 0; group < groups; group++) words[lockAt(group)] = 77;
    }
    expect(tables.peek('a')).toMatchObject({ allowed: true, remaining: 7 });
  });
});

describe('a deduction', () => {
  const start = Math.floor(NOW / MINUTE) * MINUTE;
  const window = start / MINUTE;
  const used = (now = NOW) => 10 - tables.decide('a', { cost: 0, now }).remaining;

  test('is not counted by its check, which only inserts the counter', () => {
    expect(tables.decide('a', { cost: 4, isCounted: false })).toMatchObject({
      allowed: true,
      remaining: 6,
      reset: start + MINUTE,
    });
    expect([used(), tables.countLive()]).toEqual([0, 1]);
    expect(tables.deduct('a', { cost: 4, window })).toBe(DEDUCTION_OUTCOME.applied);
    expect(used()).toBe(4);
  });

  test('counts in the window of its check only, also after the next window has begun', () => {
    tables.decide('a', { cost: 1 });
    tables.decide('a', { cost: 2, now: NOW + MINUTE });
    const now = NOW + MINUTE;
    expect(tables.deduct('a', { cost: 5, window, now })).toBe(DEDUCTION_OUTCOME.applied);
    expect(used(now)).toBe(2);
    expect(tables.deduct('a', { cost: 3, window: window + 1, now })).toBe(
      DEDUCTION_OUTCOME.applied,
    );
    expect(used(now)).toBe(5);
    expect(tables.deduct('a', { cost: 3, window, now: now + MINUTE })).toBe(
      DEDUCTION_OUTCOME.windowEnded,
    );
  });

  test('inserts its counter again after an eviction', () => {
    tables.decide('a', { cost: 4, isCounted: false });
    for (let i = 0; i < 20 * COUNTERS_MIN; i++) tables.decide(`x${i}`, { cost: 5 });
    expect([DEDUCTION_OUTCOME.applied, DEDUCTION_OUTCOME.evicted]).toContain(
      tables.deduct('a', { cost: 4, window }),
    );
    expect(used()).toBe(4);
  });

  test('may exceed the limit, but never the largest exact integer', () => {
    tables.decide('a', { cost: 10 });
    tables.deduct('a', { cost: 3, window });
    expect(tables.decide('a')).toMatchObject({ allowed: false, remaining: 0 });
    expect(tables.decide('a', { limit: 15 })).toMatchObject({ allowed: true, remaining: 1 });
    for (let i = 0; i < 3; i++) tables.deduct('a', { cost: AMOUNT_MAX, window });
    expect(tables.decide('a', { limit: AMOUNT_MAX })).toMatchObject({
      allowed: false,
      remaining: 0,
    });
  });
});

describe('attaching', () => {
  const buffer = () => allocateTable(3, 2);
  const attach = (to: SharedArrayBuffer) => new CounterTable(to, 3, 1, 'deny', () => {});
  const corrupted = (at: number) => {
    const damaged = buffer();
    new Int32Array(damaged)[at]++;
    return damaged;
  };

  test('checks shard, size and owner', () => {
    expect(attach(buffer()).groups).toBe(2);
    expect(() => attach(corrupted(TABLE_HEADER.shard))).toThrow('shard is 4, not 3');
    expect(() => attach(corrupted(TABLE_HEADER.groups))).toThrow(
      `${tableBytes(2)} bytes for 3 groups`,
    );
    expect(() => new CounterTable(buffer(), 3, 0, 'deny', () => {})).toThrow('own');
  });

  test('a failed assertion inside a decision leaves no lock behind', () => {
    const [table] = tables.tables;
    let held = 0;
    const broken = {
      h1: 0,
      h2: 0,
      get h3(): number {
        held = Atomics.load(atomicWords(table.words), lockAt(0));
        throw new Error('broken');
      },
    } as unknown as Identity;
    const terms = { limit: 1, durationMs: MINUTE, cost: 1, rule: RULE.fixed, burst: NO_BURST };
    expect(() => table.decide(broken, 1, NOW, terms, true, tables.decision)).toThrow('broken');
    expect(held).toBe(1);
    for (let group = 0; group < table.groups; group++) {
      expect(Atomics.load(atomicWords(table.words), lockAt(group))).toBe(0);
    }
  });
});
