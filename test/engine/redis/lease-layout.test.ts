import { expect, test } from 'vitest';
import { CACHE_LINE_BYTES } from '../../../src/core/constants.ts';
import { pauseLeftMs, pauseUntil } from '../../../src/engine/redis/counter/pause.ts';
import * as layout from '../../../src/engine/redis/lease-layout.ts';
import {
  firstSlot,
  GROUP_SLOTS,
  lockAt,
  type Slot,
  slotAt,
  tableBytes,
} from '../../../src/engine/table/layout.ts';

/** The C library uses these bytes at the beginning of a large mapping. */
const MALLOC_BYTES = 16;
const FIRST = 0 as Slot;
/** Of the fields of the first slot, in the view that has them. */
const PLACES = {
  ...{ windowNumber: 12, summary: 13 },
  ...{ lease: 2, deadline: 4, lentLimit: 5, held: 7 },
  ...{ leaseNamespace: 0, leaseFlags: 1 },
  ...{
    reserved: 3,
    others: 4,
    boundUntil: 5,
    previousUsage: 6,
    previousKnownUsage: 7,
    sequence: 8,
  },
  ...{ lastLimit: 9, firstSequence: 10, othersDeducted: 11, reported: 15 },
} as const;

test('the layout of a lease table is the one that its drawing shows', () => {
  const names = Object.keys(PLACES) as (keyof typeof PLACES)[];
  const functions = { ...layout };
  const places = names.map((name) => [name, functions[`${name}At`](FIRST)]);
  expect(Object.fromEntries(places)).toEqual(PLACES);
  expect(layout.LEASE_FLAG).toEqual({ stored: 1, pinned: 2, doubted: 4, inherited: 8 });
  expect(layout.removedSequenceAt(lockAt(0))).toBe(12);
  expect([0, 1].map((parity) => layout.totalAt(FIRST, parity))).toEqual([1, 2]);
  expect(
    [0, layout.WORKER_NUMBERS - 1].map((number) => layout.workerNumberAt(FIRST, number)),
  ).toEqual([12, 14]);
  expect(layout.reservedAt(slotAt(FIRST, 1))).toBe(19);
});

test('a summary has the bits that the drawing shows', () => {
  expect([layout.summaryOf(true, false, 0, 0), layout.summaryOf(false, true, 0, 0)]).toEqual([
    1, 2,
  ]);
  const below = [0, -1, 0.1, 1, 2, 2.5, 5, 8, 2 ** 29, 2 ** 40];
  const rounded = below.map((tokens) => {
    return layout.prefetchBelowOf(layout.summaryOf(true, true, tokens, 9));
  });
  expect(rounded).toEqual([0, 0, 1, 1, 2, 4, 8, 8, 2 ** 29, 2 ** 29]);
  for (const use of [0, 1, 2 ** 24, layout.PREVIOUS_USE_MAX, 2 ** 50]) {
    const summary = layout.summaryOf(true, true, 7, use);
    expect(layout.previousUseOf(summary)).toBe(Math.min(use, layout.PREVIOUS_USE_MAX));
    expect(layout.withoutPrefetch(summary)).toBe(layout.summaryOf(true, true, 0, use));
  }
});

test('a pause lasts until its end, also where the time in its bits begins anew, and no longer', () => {
  for (const nowMs of [3, 2 ** 24 - 100, 2 ** 31 + 0.25, 2 ** 45 - 30.5]) {
    const flags = (pauseUntil(nowMs + 100) << layout.PAUSE_SHIFT) | layout.LEASE_FLAG.pinned;
    const pause = layout.pauseOf(flags);
    expect(pauseLeftMs(pause, nowMs)).toBeGreaterThanOrEqual(100);
    expect(pauseLeftMs(pause, nowMs)).toBeLessThan(102);
    expect(pauseLeftMs(pause, nowMs + 98)).toBeGreaterThan(0);
    for (const laterMs of [102, 1_000, 2 ** 23]) {
      expect(pauseLeftMs(pause, nowMs + laterMs)).toBe(0);
    }
  }
  expect(pauseLeftMs(layout.pauseOf(layout.LEASE_FLAG.stored), 7)).toBe(0);
});

test('details are whole lines of memory, after the slots, and fill the table', () => {
  for (const groups of [1, 7, 512]) {
    const first = firstSlot(groups);
    expect(layout.detailsOffset(groups) + 16 * first).toBe(tableBytes(groups));
    const last = slotAt(first, groups * GROUP_SLOTS - 1);
    const details = layout.detailsOffset(groups) + 16 * last;
    expect((MALLOC_BYTES + details) % CACHE_LINE_BYTES).toBe(0);
    expect(details + layout.DETAIL_BYTES).toBe(layout.leaseTableBytes(groups));
  }
});
