import { beforeEach, expect, test } from 'vitest';
import { NAMESPACES_MAX } from '../../src/core/constants.ts';
import { StatsRows } from '../../src/registry/stats-rows.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import {
  type AcceptorStats,
  countDecision,
  NAMESPACE_STAT,
  OTHER_NAMESPACES_ROW,
} from '../../src/shared-memory/stats.ts';

let acceptors: AcceptorStats[];
let rows: StatsRows;
beforeEach(() => {
  acceptors = new Control(allocateControl(2, 1)).allAcceptorStats();
  rows = new StatsRows(acceptors);
});
const rowOf = (name: string) => rows.rowOf({ name, key: name });
const count = (row: number, cost: number) => {
  for (const stats of acceptors) countDecision(stats.namespaceRow(row), cost, true);
};

test('a namespace keeps its row, and a deleted one leaves it to the next', () => {
  expect(['a', 'b', 'c', 'a'].map(rowOf)).toEqual([0, 1, 2, 0]);
  rows.release('b');
  rows.release('a');
  rows.release('unknown');
  expect(rows.owners.map((owner) => owner?.name)).toEqual([undefined, undefined, 'c']);
  expect(['d', 'e', 'f', 'c'].map(rowOf)).toEqual([0, 1, 3, 2]);
});

test('the next namespace in a row begins at 0, while the sum of the row never falls', () => {
  count(rowOf('a'), 5);
  expect(rows.countOf(0, NAMESPACE_STAT.tokensAllowed)).toBe(10);
  rows.release('a');
  expect(rowOf('b')).toBe(0);
  expect(rows.countOf(0, NAMESPACE_STAT.tokensAllowed)).toBe(0);
  count(0, 1);
  expect(rows.countOf(0, NAMESPACE_STAT.tokensAllowed)).toBe(2);
  expect(rows.sum(0, NAMESPACE_STAT.tokensAllowed)).toBe(12);
  rows.release('b');
  rowOf('c');
  expect(rows.countOf(0, NAMESPACE_STAT.allowed)).toBe(0);
});

test('rows do not run out, however many namespaces are created and deleted', () => {
  for (let i = 0; i < NAMESPACES_MAX; i++) rowOf(`n${i}`);
  // Deleted ones have left room for others, and acceptors may still count in their rows.
  for (let i = NAMESPACES_MAX; i < OTHER_NAMESPACES_ROW; i++) expect(rowOf(`n${i}`)).toBe(i);
  expect(rowOf('one too many')).toBe(OTHER_NAMESPACES_ROW);
  for (let i = 0; i < NAMESPACES_MAX; i++) {
    rows.release(`n${i}`);
    expect(rowOf(`m${i}`)).toBe(i);
  }
});
