import { expect, test } from 'vitest';
import { CACHE_LINE_BYTES } from '../../../src/core/constants.ts';
import {
  BUCKET_SLOTS,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  lockAt,
} from '../../../src/engine/memory/layout.ts';
import { pauseLeftMs, pauseUntil } from '../../../src/engine/redis/counter/pause.ts';
import * as layout from '../../../src/engine/redis/lease-layout.ts';

/** The C library uses these bytes at the beginning of a large mapping. */
const MALLOC_BYTES = 16;
const FIRST = 0 as layout.LeaseSlot;
/** Of the fields of the first slot, in the view that has them. */
const PLACES = {
  ...{ leaseTag: 0, windowNumber: 12, summary: 13 },
  ...{ leaseKey: 2, lease: 3, deadline: 4, lentLimit: 5, held: 7 },
  ...{ leaseNamespace: 0, leaseFlags: 1 },
  ...{ reserved: 3, others: 4, boundUntil: 5, previousUse: 6, previousKnownUse: 7, sequence: 8 },
  ...{ lastLimit: 9, firstSequence: 10, othersDeducted: 11, reported: 15 },
} as const;

test('the layout of a lease table is the one that its drawing shows', () => {
  const names = Object.keys(PLACES) as (keyof typeof PLACES)[];
  const functions = { ...layout };
  const places = names.map((name) => [name, functions[`${name}At`](FIRST)]);
  expect(Object.fromEntries(places)).toEqual(PLACES);
  expect(layout.LEASE_TABLE_HEADER).toEqual({ shard: 0, groups: 1 });
  expect(layout.LEASE_FLAG).toEqual({ stored: 1, pinned: 2, doubted: 4, inherited: 8 });
  expect([layout.latestLeaseMsAt(lockAt(0)), layout.removedSequenceAt(lockAt(0))]).toEqual([7, 12]);
  expect([layout.dirtyAt(lockAt(0), 0), layout.dirtyAt(lockAt(0), 255)]).toEqual([16, 23]);
  expect([0, 1, 2].map((word) => layout.leaseHashAt(FIRST, word))).toEqual([1, 2, 3]);
  expect([0, 1].map((parity) => layout.totalAt(FIRST, parity))).toEqual([1, 2]);
  expect(
    [0, layout.WORKER_NUMBERS - 1].map((number) => layout.workerNumberAt(FIRST, number)),
  ).toEqual([12, 14]);
  expect([layout.leaseSlotAt(FIRST, 1), layout.reservedAt(layout.leaseSlotAt(FIRST, 1))]).toEqual([
    8, 19,
  ]);
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

test('lock lines, slots and details are whole lines of memory, and fill the table', () => {
  for (const groups of [1, 7, 512]) {
    const first = layout.firstLeaseSlot(groups);
    expect(first * 8).toBe(lockAt(groups) * 4);
    expect((MALLOC_BYTES + first * 8) % CACHE_LINE_BYTES).toBe(0);
    const bucket = layout.leaseBucketAt(first, groups - 1, GROUP_BUCKETS - 1);
    const last = layout.leaseSlotAt(bucket, BUCKET_SLOTS - 1);
    expect(last * 8 + CACHE_LINE_BYTES).toBe(layout.detailsOffset(groups) + 16 * first);
    const details = layout.detailsOffset(groups) + 16 * last;
    expect((MALLOC_BYTES + details) % CACHE_LINE_BYTES).toBe(0);
    expect(details + layout.DETAIL_BYTES).toBe(layout.leaseTableBytes(groups));
    expect(layout.leaseSlotNumber(first, last)).toBe(groups * GROUP_SLOTS - 1);
  }
});

test('the bits of dirty slots are in their lock line, and are found in order', () => {
  const words = new Int32Array(lockAt(2));
  const lock = lockAt(1);
  const set = [255, 0, 31, 32, 64, 100];
  for (const index of set) words[layout.dirtyAt(lock, index)] |= 1 << (index & 31);
  const found: number[] = [];
  for (let i = layout.nextDirtySlot(words, lock, 0); i < GROUP_SLOTS; ) {
    found.push(i);
    i = layout.nextDirtySlot(words, lock, i + 1);
  }
  expect(found).toEqual(set.toSorted((a, b) => a - b));
  const touched = [...words.keys()].filter((at) => words[at] !== 0);
  expect([touched[0], touched.at(-1)]).toEqual([lock + 4, lock + 11]);
});
