import { beforeEach, expect, test } from 'vitest';
import { UsageRows } from '../../src/analytics/usage-rows.ts';
import { USAGE_ROWS } from '../../src/core/constants.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';
import type { UsageCounts } from '../../src/shared-memory/usage-counts.ts';

const UNUSED = { applied: 0, lastAppliedMs: 0 };

let acceptors: UsageCounts[];
let clock: Clock;
let rows: UsageRows;
beforeEach(() => {
  const control = new Control(allocateControl(2, 1));
  new ClockPublisher(control);
  acceptors = control.allAcceptorStats().map(({ usage }) => usage);
  clock = new Clock(control);
  rows = new UsageRows(acceptors, clock);
});
/** Counts a check on an acceptor. @returns its time */
const use = (acceptor: number, id: string): number => {
  const monotonicMs = clock.monotonicMs();
  acceptors[acceptor].record(rows.rowOf(id), monotonicMs);
  return clock.wallMs(monotonicMs);
};

test('an override keeps its row, and a deleted one leaves it to the next', () => {
  expect(['a', 'b', 'c', 'a'].map((id) => rows.rowOf(id))).toEqual([0, 1, 2, 0]);
  rows.release(['b', 'unknown']);
  expect(['d', 'e', 'c'].map((id) => rows.rowOf(id))).toEqual([1, 3, 2]);
});

test('the use of an override is the sum of all acceptors, with the time of the last check', () => {
  expect(rows.usageOf('a')).toEqual(UNUSED);
  expect(use(1, 'a')).toBeGreaterThanOrEqual(rows.sinceMs);
  use(1, 'a');
  const lastAppliedMs = use(0, 'a');
  use(1, 'b');
  expect(rows.usageOf('a')).toEqual({ applied: 3, lastAppliedMs });
});

test('the next override in a row is not used yet', () => {
  for (const acceptor of [0, 1]) use(acceptor, 'a');
  rows.release(['a']);
  expect(rows.usageOf('a')).toEqual(UNUSED);
  expect(rows.rowOf('b')).toBe(0);
  expect(rows.usageOf('b')).toEqual(UNUSED);
  expect(rows.newEntries(1, 1)).toEqual([]);
  const lastAppliedMs = use(0, 'b');
  expect(rows.usageOf('b')).toEqual({ applied: 1, lastAppliedMs });
});

test('each check is in one entry, also if it is counted while entries are written', () => {
  use(0, 'a');
  const [first] = rows.newEntries(9, 9);
  expect(first).toMatchObject({ id: 'a', applied: 1 });
  use(1, 'a');
  use(0, 'a');
  rows.addWritten([first]);
  expect(rows.usageOf('a').applied).toBe(2);
  const [second] = rows.newEntries(9, 9);
  expect(second).toMatchObject({ id: 'a', applied: 2 });
  // Not written: the next entry has the checks again.
  expect(rows.newEntries(9, 9)).toEqual([second]);
  rows.addWritten([second]);
  expect(rows.newEntries(9, 9)).toEqual([]);
});

test('an entry of an override that was deleted meanwhile changes nothing', () => {
  use(0, 'a');
  const entries = rows.newEntries(9, 9);
  rows.release(['a']);
  rows.addWritten(entries);
  use(0, 'b');
  expect(rows.usageOf('b').applied).toBe(1);
});

test('entries are read in turn, at most as many rows and entries as given', () => {
  for (const id of ['a', 'b', 'c', 'd', 'e']) use(0, id);
  const read = (rowsMax: number, entriesMax: number) => {
    const entries = rows.newEntries(rowsMax, entriesMax);
    return entries.map(({ id }) => id).join('');
  };
  expect([read(2, 9), read(2, 9), read(2, 9), read(9, 3), read(9, 9)]).toEqual([
    ...['ab', 'cd', 'ea', 'bcd', 'eabcd'],
  ]);
});

test('there are rows for all overrides and for those that one change replaces', () => {
  for (let i = 0; i < USAGE_ROWS; i++) rows.rowOf(`${i}`);
  expect(() => rows.rowOf('one too many')).toThrow('all usage rows of overrides are in use');
  use(1, `${USAGE_ROWS - 1}`);
  expect(rows.usageOf(`${USAGE_ROWS - 1}`).applied).toBe(1);
  rows.release(['7']);
  expect(rows.rowOf('next')).toBe(7);
});
