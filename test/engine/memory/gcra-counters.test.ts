/** Counters of GCRA in their tables, beside those of windows. */

import { beforeEach, describe, expect, test } from 'vitest';
import { COUNTERS_MIN } from '../../../src/core/constants.ts';
import { DEDUCTION_OUTCOME, OUTCOME } from '../../../src/core/decision.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { deniedAt, newestAt } from '../../../src/engine/memory/layout.ts';
import { readCells, writeCells, writeCounter } from '../../../src/engine/memory/slot.ts';
import { BUCKET_SLOTS, bucketAt, type Slot } from '../../../src/engine/table/layout.ts';
import { gcra } from '../../../src/engine/windows/gcra.ts';
import { counterKey } from '../../../src/engine/windows/registry.ts';
import { type Cells, newCells } from '../../../src/engine/windows/rule.ts';
import { TestTables } from '../../support/test-tables.ts';

const NOW = 1_700_000_000_000;
const MINUTE = 60_000;
const bucket = { rule: RULE.gcra, limit: 60, burst: 10 };

let tables: TestTables;
beforeEach(() => {
  tables = new TestTables(COUNTERS_MIN);
});

describe('a counter of GCRA', () => {
  test('is inspected with its usage, and with the windows, and nothing changes', () => {
    const words = () => tables.tables.map((table) => [...(table.words as Int32Array)]);
    expect(tables.inspect('a')).toEqual([]);
    tables.decide('a', { ...bucket, cost: 4 });
    tables.decide('a', { cost: 3, duration: 5_000 });
    tables.decide('a', { cost: 2, limit: 7 });
    const before = words();
    const ofGcra = {
      rule: RULE.gcra,
      durationMs: MINUTE,
      window: NOW,
      used: 4,
      usedBefore: 0,
      endMs: NOW + 4_000,
      cells: { newest: NOW + 4_000, current: 0, previous: 0, limit: 60 },
    };
    const window = Math.floor(NOW / MINUTE);
    const ofMinute = {
      rule: RULE.fixed,
      durationMs: MINUTE,
      window,
      used: 2,
      usedBefore: 0,
      endMs: (window + 1) * MINUTE,
      cells: { newest: window, current: 2, previous: 0, limit: 7 },
    };
    expect(tables.inspect('a', MINUTE, RULE.gcra)).toEqual([ofGcra]);
    expect(tables.inspect('a', MINUTE, RULE.sliding)).toEqual([ofMinute]);
    expect(tables.inspect('a', MINUTE)).toHaveLength(2);
    expect(tables.inspect('a')).toHaveLength(3);
    expect(tables.inspect('a', undefined, RULE.fixed)).toHaveLength(2);
    expect(tables.inspect('a', MINUTE, RULE.gcra, NOW + 1_500)).toMatchObject([{ used: 3 }]);
    expect(tables.inspect('a', MINUTE, RULE.gcra, NOW + 4_000)).toEqual([]);
    expect(tables.inspect('b')).toEqual([]);
    expect(words()).toEqual(before);
  });

  test('is removed by a reset of its rule, its duration, or all', () => {
    const fill = () => {
      for (const duration of [MINUTE, 5_000]) {
        tables.decide('a', { ...bucket, duration });
        tables.decide('a', { duration });
      }
    };
    fill();
    expect(tables.reset('a', MINUTE, RULE.gcra)).toBe(1);
    expect(tables.inspect('a', MINUTE)).toMatchObject([{ rule: RULE.fixed }]);
    expect(tables.reset('a', 5_000)).toBe(2);
    fill();
    expect(tables.reset('a', undefined, RULE.sliding)).toBe(2);
    expect(tables.reset('a')).toBe(2);
    expect(tables.inspect('a')).toEqual([]);
  });

  test('expires when the bucket is full again, and its slot is swept', () => {
    tables.decide('a', { ...bucket, cost: 2 });
    expect(tables.countLive(NOW + 1_999)).toBe(1);
    expect(tables.countLive(NOW + 2_000)).toBe(0);
    expect(tables.decide('a', { ...bucket, cost: 10, now: NOW + 2_000 }).allowed).toBe(true);
  });

  test('is deducted later from the time of its decision', () => {
    const asynchronous = { ...bucket, cost: 3 };
    const { window } = tables.decide('a', { ...asynchronous, isCounted: false });
    expect(tables.decide('a', { ...bucket, cost: 0 }).remaining).toBe(10);
    const later = { ...asynchronous, window, now: NOW + 1_000 };
    expect(tables.deduct('a', later)).toBe(DEDUCTION_OUTCOME.applied);
    expect(tables.decide('a', { ...bucket, cost: 0, now: NOW + 1_000 }).remaining).toBe(8);
    // The tokens of a decision of 3 s ago are back, but only into a bucket that is not in use.
    const old = { ...asynchronous, window, now: NOW + 3_000 };
    expect(tables.deduct('b', old)).toBe(DEDUCTION_OUTCOME.windowEnded);
    tables.decide('c', { ...bucket, cost: 1, now: NOW + 2_900 });
    expect(tables.deduct('c', old)).toBe(DEDUCTION_OUTCOME.applied);
    expect(tables.decide('c', { ...bucket, cost: 0, now: NOW + 3_000 }).remaining).toBe(6);
  });

  test('is peeked at without the lock, and refunds at most what is used', () => {
    tables.decide('a', { ...bucket, cost: 7 });
    expect(tables.peek('a', { ...bucket, cost: 3 })).toMatchObject({ allowed: true, remaining: 0 });
    expect(tables.peek('a', { ...bucket, cost: 4 })).toBeUndefined();
    expect(tables.refund('a', { ...bucket, cost: 2, window: 0 })).toBe(2);
    expect(tables.decide('a', { ...bucket, cost: 0 }).remaining).toBe(5);
    expect(tables.refund('a', { ...bucket, cost: 100, window: 0 })).toBe(5);
    expect(tables.decide('a', { ...bucket, cost: 0 }).remaining).toBe(10);
    expect(tables.refund('a', { ...bucket, cost: 1, window: 0 })).toBe(0);
  });

  test('that was never denied is evicted by its share of the limit', () => {
    const cells = { newest: NOW + MINUTE / 2, current: 0, previous: 0, limit: 60 };
    expect(gcra.usedShare(cells, MINUTE, NOW)).toBe(0.5);
    expect(gcra.usedShare(cells, MINUTE, NOW + MINUTE)).toBe(0);
    const denied = gcra.deniedWord(cells, NOW, 0);
    expect(gcra.isProtected(cells.newest, MINUTE, 0, NOW)).toBe(false);
    expect(gcra.isProtected(cells.newest, MINUTE, denied, NOW)).toBe(true);
    expect(gcra.isProtected(cells.newest, MINUTE, denied, NOW + MINUTE / 2)).toBe(false);
    // Tokens that were used after the denial do not prolong the protection.
    expect(gcra.isProtected(NOW + 10 * MINUTE, MINUTE, denied, NOW + MINUTE)).toBe(false);
    // Also in the year 2100, beyond int32.
    const far = 4_102_444_800_000;
    const word = gcra.deniedWord({ ...cells, newest: far + 1_000 }, far, 0);
    expect(gcra.isProtected(far + 1_000, MINUTE, word | 0, far)).toBe(true);
    const last = gcra.deniedWord({ ...cells, newest: 2 * far }, far, 0);
    expect(gcra.isProtected(2 * far, MINUTE, last | 0, far)).toBe(true);
  });

  test('finds no slot in a table of protected counters, and says when the first is free', () => {
    for (let i = 0; tables.full < 100; i++) {
      tables.decide(`x${i}`, { ...bucket, cost: 10 }, `n${i % 1_000}`);
      tables.decide(`x${i}`, { ...bucket, cost: 10 }, `n${i % 1_000}`);
    }
    let last = tables.decision;
    for (let i = 0; last.outcome !== OUTCOME.full; i++)
      last = tables.decide(`new${i}`, bucket, 'o');
    expect(last).toMatchObject({ allowed: false, remaining: 0, reset: NOW + 10_000 });
  });

  test('cut off at any store has no more tokens than before or after the write', () => {
    const id = { h0: 1, h1: 2, h2: 3, h3: 4 };
    const slot: Slot = bucketAt(0 as Slot, 1);
    const missing = ({ newest, current, limit }: Cells) => (newest - NOW) * limit - current;
    const before = { newest: NOW + 10, current: 5, previous: 5, limit: 7 };
    for (const after of [
      { newest: NOW + 900, current: 3, previous: 3, limit: 7 },
      { newest: NOW + 4, current: 900, previous: 900, limit: 1_000 },
      { newest: NOW + 10, current: 1, previous: 1, limit: 2 },
    ]) {
      for (let stores = 0; stores <= 7; stores++) {
        const doubles = new Float64Array(2 * BUCKET_SLOTS * 8);
        const words = new Int32Array(doubles.buffer);
        writeCounter({ words, doubles }, slot, id, 1, counterKey(RULE.gcra, MINUTE), before);
        let left = stores;
        const dying = new Proxy(doubles, {
          get: (all, at) => all[Number(at)],
          set: (all, at, value) => {
            if (left-- > 0) all[Number(at)] = value;
            return true;
          },
        });
        writeCells({ words, doubles: dying }, slot, RULE.gcra, after);
        const cells = newCells();
        readCells({ words, doubles }, slot, cells);
        const least = Math.min(missing(before), missing(after));
        expect(missing(cells)).toBeGreaterThanOrEqual(least);
        expect(cells.newest).toBeLessThanOrEqual(Math.max(before.newest, after.newest));
        expect([doubles[newestAt(slot)] % 1, words[deniedAt(slot)]]).toEqual([0, 0]);
        if (stores === 7) expect(cells).toEqual(after);
      }
    }
  });
});
