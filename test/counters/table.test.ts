import { describe, expect, test } from 'vitest';
import { countLive } from '../../src/counters/census.ts';
import { shardOf } from '../../src/counters/counters.ts';
import { Hasher } from '../../src/counters/hash.ts';
import { groupsPerShard, HEADER, LINE_WORDS, tableBytes } from '../../src/counters/layout.ts';
import {
  allocateTable,
  CounterTable,
  newDecision,
  type OnFull,
  OUTCOME,
} from '../../src/counters/table.ts';
import { COUNTERS_MIN, SHARDS, SLOTS_PER_COUNTER } from '../../src/limits.ts';

const NOW = 1_700_000_000_000;
const MINUTE = 60_000;

/** All shards' tables for a capacity, as an acceptor has them, without clock and statistics. */
class Tables {
  readonly hasher = new Hasher(Buffer.from('0123456789abcdef'));
  readonly tables: CounterTable[];
  readonly decision = newDecision();
  evicted = 0;
  full = 0;

  constructor(counters: number, onFull: OnFull = 'deny') {
    const groups = groupsPerShard(counters * SLOTS_PER_COUNTER, SHARDS);
    this.tables = Array.from({ length: SHARDS }, (_, shard) => {
      return new CounterTable(allocateTable(shard, groups), shard, 1, onFull);
    });
  }

  decide(
    identifier: string,
    options: Partial<Record<'limit' | 'duration' | 'cost' | 'now', number>> = {},
    namespace = 'default',
  ) {
    const { limit = 10, duration = MINUTE, cost = 1, now = NOW } = options;
    const state = this.namespace(namespace);
    this.hasher.hash(state, identifier);
    const table = this.tables[shardOf(this.hasher)];
    table.decide(this.hasher, state, now, limit, duration, cost, this.decision);
    if (this.decision.outcome === OUTCOME.evicted) this.evicted++;
    if (this.decision.outcome === OUTCOME.full) this.full++;
    return this.decision;
  }

  live(now = NOW): number {
    return this.tables.reduce((sum, table) => sum + countLive(table, now), 0);
  }

  readonly #states = new Map<string, Int32Array>();

  namespace(name: string): Int32Array {
    let state = this.#states.get(name);
    if (state === undefined) {
      state = this.hasher.namespace(name);
      this.#states.set(name, state);
    }
    return state;
  }
}

describe('a counter', () => {
  test('is one per namespace, identifier and duration, and not per limit', () => {
    const tables = new Tables(COUNTERS_MIN);
    expect(tables.decide('a', { cost: 4 }).remaining).toBe(6);
    expect(tables.decide('a', { cost: 1, limit: 20 }).remaining).toBe(15);
    expect(tables.decide('b', { cost: 1 }).remaining).toBe(9);
    expect(tables.decide('a', { cost: 1 }, 'other').remaining).toBe(9);
    expect(tables.decide('a', { cost: 1, duration: 2 * MINUTE }).remaining).toBe(9);
    expect(tables.decide('a', { cost: 0 }).remaining).toBe(5);
    expect(tables.live()).toBe(4);
  });

  test('is not made by a cost of 0, nor by a refusal', () => {
    const tables = new Tables(COUNTERS_MIN);
    expect(tables.decide('a', { cost: 0 })).toMatchObject({ admitted: true, remaining: 10 });
    expect(tables.decide('a', { cost: 11 })).toMatchObject({ admitted: false, remaining: 10 });
    expect(tables.live()).toBe(0);
  });

  test('starts anew in the next window, and is expired after the one after', () => {
    const tables = new Tables(COUNTERS_MIN);
    const start = Math.floor(NOW / MINUTE) * MINUTE;
    tables.decide('a', { cost: 10, now: start + MINUTE - 1 });
    expect(tables.decide('a', { now: start + MINUTE - 1 })).toMatchObject({ admitted: false });
    expect(tables.decide('a', { now: start + MINUTE })).toMatchObject({
      admitted: true,
      remaining: 9,
      reset: start + 2 * MINUTE,
    });
    expect(tables.live(start + 3 * MINUTE - 1)).toBe(1);
    expect(tables.live(start + 3 * MINUTE)).toBe(0);
  });

  test('does not give a spent window out again to a thread whose clock reading is old', () => {
    const tables = new Tables(COUNTERS_MIN);
    const old = Math.floor(NOW / 1_000) * 1_000;
    tables.decide('a', { duration: 1_000, cost: 10, now: old });
    // Long after, its expired slot has been reused, as those of all others.
    for (let i = 0; i < 100_000; i++) tables.decide(`x${i}`, { now: old + 10_000 });
    const late = tables.decide('a', { duration: 1_000, cost: 1, now: old });
    expect(late.reset).toBe(old + 11_000);
  });
});

describe('a table', () => {
  test.each([COUNTERS_MIN, 65_536, 1_048_576])(
    'of %i counters holds as many without evicting one',
    (capacity) => {
      const tables = new Tables(capacity);
      for (let i = 0; i < capacity; i++) tables.decide(`user_${i}`);
      expect(tables.evicted + tables.full).toBe(0);
      expect(tables.live()).toBe(capacity);
      for (let i = 0; i < capacity; i += 97) {
        expect(tables.decide(`user_${i}`, { cost: 0 }).remaining).toBe(9);
      }
    },
  );

  test('filled ten times over gives up the least used, and forgets nobody that it refuses', () => {
    const capacity = 16_384;
    const tables = new Tables(capacity);
    const refused = Array.from({ length: 1_000 }, (_, i) => `refused_${i}`);
    const busy = Array.from({ length: 1_000 }, (_, i) => `busy_${i}`);
    for (const id of refused) {
      tables.decide(id, { limit: 5, cost: 5 });
      expect(tables.decide(id, { limit: 5 }).admitted).toBe(false);
    }
    for (const id of busy) tables.decide(id, { limit: 100, cost: 90 });
    for (let i = 0; i < 10 * capacity; i++) tables.decide(`spray_${i}`, { limit: 100 });
    expect(tables.evicted).toBeGreaterThan(7 * capacity);
    for (const id of refused) expect(tables.decide(id, { limit: 5 }).admitted).toBe(false);
    for (const id of busy) expect(tables.decide(id, { limit: 100, cost: 0 }).remaining).toBe(10);
    expect(tables.full).toBe(0);
  });

  test('takes an expired counter before any live one', () => {
    const capacity = 16_384;
    const tables = new Tables(capacity);
    for (let i = 0; i < 3 * capacity; i++)
      tables.decide(`old_${i}`, { limit: 1_000, duration: 1_000 });
    const before = tables.evicted;
    const now = NOW + 2_000;
    for (let i = 0; i < capacity; i++) tables.decide(`new_${i}`, { now });
    expect(tables.evicted).toBe(before);
    expect(tables.live(now)).toBe(capacity);
  });

  /** Fills a table with counters that have all refused someone, of as many namespaces. */
  function guardedTable(onFull: OnFull, namespaces: number): Tables {
    const tables = new Tables(COUNTERS_MIN, onFull);
    for (let i = 0; i < 40 * COUNTERS_MIN; i++) {
      const name = `ns_${i % namespaces}`;
      if (tables.decide(`g${i}`, { limit: 1 }, name).outcome === OUTCOME.full) continue;
      tables.decide(`g${i}`, { limit: 1 }, name);
    }
    return tables;
  }

  test('with room for nobody refuses a newcomer until the earliest reset', () => {
    const tables = guardedTable('deny', 1_000);
    const before = tables.full;
    const answer = { ...tables.decide('newcomer', { limit: 7, duration: 3_600_000 }, 'fresh') };
    expect(tables.full).toBe(before + 1);
    const reset = Math.floor(NOW / MINUTE) * MINUTE + MINUTE;
    expect(answer).toEqual({ admitted: false, remaining: 0, reset, outcome: OUTCOME.full });
  });

  test('with room for nobody admits a newcomer uncounted, where it is told to', () => {
    const tables = guardedTable('allow', 1_000);
    const before = tables.full;
    for (let i = 0; i < 2; i++) {
      const answer = tables.decide('newcomer', { limit: 7, cost: 2 }, 'fresh');
      expect(answer).toMatchObject({ admitted: true, remaining: 5 });
    }
    expect(tables.full).toBe(before + 2);
  });

  test('full of one namespace that refuses all has room for a newcomer of another', () => {
    const tables = guardedTable('deny', 1);
    for (let i = 0; i < 100; i++) {
      expect(tables.decide(`n${i}`, {}, 'other').admitted).toBe(true);
      expect(tables.decide(`n${i}`, { cost: 0 }, 'other').remaining).toBe(9);
    }
    const before = tables.full;
    tables.decide('one more', {}, 'ns_0');
    expect(tables.full).toBe(before + 1);
  });
});

describe('attaching', () => {
  const buffer = () => allocateTable(3, 2);
  const attach = (to: SharedArrayBuffer) => new CounterTable(to, 3, 1, 'deny');
  const corrupted = (at: number) => {
    const damaged = buffer();
    new Int32Array(damaged)[at]++;
    return damaged;
  };

  test('checks magic number, version, shard, shape and owner', () => {
    expect(attach(buffer()).groups).toBe(2);
    expect(() => attach(corrupted(HEADER.magic))).toThrow('magic');
    expect(() => attach(corrupted(HEADER.version))).toThrow('version');
    expect(() => attach(corrupted(HEADER.shard))).toThrow('number of the shard is 4, not 3');
    expect(() => attach(corrupted(HEADER.groups))).toThrow(`${tableBytes(2)} bytes for 3 groups`);
    expect(() => new CounterTable(buffer(), 3, 0, 'deny')).toThrow('own');
  });

  test('a failed assertion inside a decision leaves no lock behind', () => {
    const tables = new Tables(COUNTERS_MIN);
    const [table] = tables.tables;
    let held = 0;
    const broken = {
      h1: 0,
      h2: 0,
      get h3(): number {
        held = Atomics.load(table.words, LINE_WORDS);
        throw new Error('broken');
      },
    } as unknown as Hasher;
    const state = new Int32Array(4);
    expect(() => table.decide(broken, state, NOW, 1, MINUTE, 1, tables.decision)).toThrow('broken');
    expect(held).toBe(1);
    for (let group = 0; group < table.groups; group++) {
      expect(Atomics.load(table.words, (group + 1) * LINE_WORDS)).toBe(0);
    }
  });
});
