import { beforeEach, expect, test } from 'vitest';
import { COUNTERS_MIN } from '../../../src/core/constants.ts';
import { changedAt } from '../../../src/engine/memory/layout.ts';
import { NamespaceRemoval } from '../../../src/engine/memory/removal.ts';
import { lockAt } from '../../../src/engine/table/layout.ts';
import { TestTables } from '../../support/test-tables.ts';

const NOW = 1_700_000_000_000;

let tables: TestTables;
beforeEach(() => {
  tables = new TestTables(COUNTERS_MIN);
});

const fill = (namespace: string, count: number) => {
  for (let i = 0; i < count; i++) tables.decide(`user_${i}`, {}, namespace);
};
const removalOf = (...namespaces: string[]) => {
  return new NamespaceRemoval(tables.tables, new Set(namespaces.map((one) => tables.tagOf(one))));
};

test('a removal removes all counters of its namespaces, and no others', () => {
  fill('kept', 200);
  for (const name of ['a', 'b']) fill(name, 150);
  expect(tables.countLive()).toBe(500);
  const removal = removalOf('a', 'b', 'unknown');
  while (!removal.step(NOW + 1));
  expect(removal.removedCount).toBe(300);
  expect(tables.countLive(NOW + 1)).toBe(200);
  for (let i = 0; i < 200; i++) {
    expect(tables.decide(`user_${i}`, { cost: 0 }, 'kept').remaining).toBe(9);
    expect(tables.decide(`user_${i}`, { cost: 0 }, 'a').remaining).toBe(10);
  }
});

test('a removal is in the next checkpoint and in the next count of live counters', () => {
  fill('a', 100);
  const { words } = tables.tables[0];
  tables.countLive(NOW + 1);
  words[changedAt(lockAt(0))] = 0;
  const removal = removalOf('a');
  while (!removal.step(NOW + 2));
  expect(words[changedAt(lockAt(0))]).toBe(1);
  expect(tables.countLive(NOW + 3)).toBe(0);
});

test('a removal does not wait for a lock, and takes no lock of a group without its counters', () => {
  fill('a', 300);
  fill('kept', 1);
  const [{ words }] = tables.tables;
  words[lockAt(0)] = 77;
  const removal = removalOf('a');
  for (let i = 0; i < 10; i++) expect(removal.step(NOW)).toBe(false);
  const others = removalOf('unknown');
  while (!others.step(NOW));
  words[lockAt(0)] = 0;
  while (!removal.step(NOW));
  expect(removal.removedCount).toBe(300);
});

test('a removal reads a large table in many short steps', () => {
  tables = new TestTables(262_144);
  fill('a', 10);
  const removal = removalOf('a');
  let steps = 1;
  while (!removal.step(NOW)) steps++;
  expect(steps).toBeGreaterThan(50);
});
