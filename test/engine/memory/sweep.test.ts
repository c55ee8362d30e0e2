import { beforeEach, describe, expect, test } from 'vitest';
import { COUNTERS_MIN } from '../../../src/core/constants.ts';
import { lockAt } from '../../../src/engine/table/layout.ts';
import { TestTables } from '../../support/test-tables.ts';

const NOW = 1_700_000_000_000;
const MINUTE = 60_000;

let tables: TestTables;
beforeEach(() => {
  tables = new TestTables(COUNTERS_MIN);
});

const removed = () => tables.sweepers.reduce((sum, { removedCount }) => sum + removedCount, 0);

describe('a sweep', () => {
  test('removes expired counters and counts live ones, in each round', () => {
    for (let i = 0; i < 500; i++) tables.decide(`short_${i}`, { duration: 1_000 });
    for (let i = 0; i < 300; i++) tables.decide(`long_${i}`);
    expect([tables.countLive(), removed()]).toEqual([800, 0]);
    expect([tables.countLive(NOW + 2_000), removed()]).toEqual([300, 500]);
    tables.decide('one more', { now: NOW + 2_000 });
    expect(tables.countLive(NOW + 2_001)).toBe(301);
    expect([tables.countLive(NOW + 3 * MINUTE), removed()]).toEqual([0, 801]);
  });

  test('counts decisions of the millisecond in which it sweeps', () => {
    for (let i = 0; i < 50; i++) {
      tables.decide(`user_${i}`);
      tables.countLive();
    }
    expect(tables.countLive(NOW + 1)).toBe(50);
  });

  test('does not reopen an exhausted window for a thread with an old time', () => {
    const start = Math.floor(NOW / 1_000) * 1_000;
    tables.decide('a', { duration: 1_000, cost: 10, now: start });
    expect(tables.countLive(start + 2_000)).toBe(0);
    const late = tables.decide('a', { duration: 1_000, cost: 10, now: start });
    expect([late.allowed, late.reset]).toEqual([true, start + 3_000]);
  });

  test('does not wait for locks, and sweeps a locked group in a later round', () => {
    for (let i = 0; i < 500; i++) tables.decide(`user_${i}`, { duration: 1_000 });
    const [{ words }] = tables.tables;
    words[lockAt(0)] = 77;
    const held = 500 - tables.decide('x', { cost: 0 }).remaining;
    expect(held).toBeGreaterThan(0);
    tables.countLive(NOW + 5_000);
    const before = removed();
    expect(before).toBeLessThan(500);
    words[lockAt(0)] = 0;
    expect(tables.countLive(NOW + 5_000)).toBe(0);
    expect(removed()).toBe(500);
  });

  test('skips groups without decisions, and sweeps the rest a few groups in a step', () => {
    tables = new TestTables(262_144);
    for (let i = 0; i < 5_000; i++) tables.decide(`user_${i}`);
    const [sweeper] = tables.sweepers;
    let steps = 1;
    while (!sweeper.step(NOW + 1)) steps++;
    expect(steps).toBeGreaterThan(10);
    while (!sweeper.step(NOW + 2));
    expect(sweeper.step(NOW + 3)).toBe(true);
  });
});
