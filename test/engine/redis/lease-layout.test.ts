import { expect, test } from 'vitest';
import { CACHE_LINE_BYTES } from '../../../src/core/constants.ts';
import {
  BUCKET_SLOTS,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  lockAt,
} from '../../../src/engine/memory/layout.ts';
import {
  boundUntilAt,
  DETAIL_BYTES,
  deadlineAt,
  detailsOffset,
  dirtyAt,
  firstLeaseSlot,
  firstSequenceAt,
  heldAt,
  LEASE_FLAG,
  LEASE_TABLE_HEADER,
  type LeaseSlot,
  lastLimitAt,
  latestLeaseMsAt,
  leaseAt,
  leaseBucketAt,
  leaseFlagsAt,
  leaseHashAt,
  leaseKeyAt,
  leaseNamespaceAt,
  leaseSlotAt,
  leaseSlotNumber,
  leaseTableBytes,
  leaseTagAt,
  lentLimitAt,
  nextDirtySlot,
  othersAt,
  othersDeductedAt,
  PREVIOUS_USE_MAX,
  prefetchBelowOf,
  previousKnownUseAt,
  previousUseAt,
  previousUseOf,
  removedSequenceAt,
  reportedAt,
  reservedAt,
  sequenceAt,
  summaryAt,
  summaryOf,
  totalAt,
  WORKER_NUMBERS,
  windowNumberAt,
  withoutPrefetch,
  workerNumberAt,
} from '../../../src/engine/redis/lease-layout.ts';

/** The C library uses these bytes at the beginning of a large mapping. */
const MALLOC_BYTES = 16;
const FIRST = 0 as LeaseSlot;
const WORDS = [leaseTagAt, windowNumberAt, summaryAt];
const DOUBLES = [leaseKeyAt, leaseAt, deadlineAt, lentLimitAt, heldAt];
const DETAIL_WORDS = [leaseNamespaceAt, leaseFlagsAt];
const DETAILS = [
  ...[reservedAt, othersAt, boundUntilAt, previousUseAt, previousKnownUseAt],
  ...[sequenceAt, lastLimitAt, firstSequenceAt, othersDeductedAt, reportedAt],
];

test('the layout of a lease table is the one that its drawing shows', () => {
  expect(LEASE_TABLE_HEADER).toEqual({ shard: 0, groups: 1 });
  expect(LEASE_FLAG).toEqual({ stored: 1, pinned: 2 });
  expect([latestLeaseMsAt(lockAt(0)), removedSequenceAt(lockAt(0))]).toEqual([7, 12]);
  expect([dirtyAt(lockAt(0), 0), dirtyAt(lockAt(0), 255)]).toEqual([16, 23]);
  expect(WORDS.map((at) => at(FIRST))).toEqual([0, 12, 13]);
  expect([0, 1, 2].map((word) => leaseHashAt(FIRST, word))).toEqual([1, 2, 3]);
  expect(DOUBLES.map((at) => at(FIRST))).toEqual([2, 3, 4, 5, 7]);
  expect(DETAIL_WORDS.map((at) => at(FIRST))).toEqual([0, 1]);
  expect([0, 1].map((parity) => totalAt(FIRST, parity))).toEqual([1, 2]);
  expect(DETAILS.map((at) => at(FIRST))).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 15]);
  expect([0, WORKER_NUMBERS - 1].map((number) => workerNumberAt(FIRST, number))).toEqual([12, 14]);
  expect([leaseSlotAt(FIRST, 1), reservedAt(leaseSlotAt(FIRST, 1))]).toEqual([8, 19]);
});

test('a summary has the bits that the drawing shows', () => {
  expect([summaryOf(true, false, 0, 0), summaryOf(false, true, 0, 0)]).toEqual([1, 2]);
  for (const [below, rounded] of [
    ...[
      [0, 0],
      [-1, 0],
      [0.1, 1],
      [1, 1],
      [2, 2],
      [2.5, 4],
      [5, 8],
      [8, 8],
    ],
    ...[
      [2 ** 29, 2 ** 29],
      [2 ** 40, 2 ** 29],
    ],
  ]) {
    expect(prefetchBelowOf(summaryOf(true, true, below, 9))).toBe(rounded);
  }
  for (const use of [0, 1, 2 ** 24, PREVIOUS_USE_MAX, 2 ** 50]) {
    const summary = summaryOf(true, true, 7, use);
    expect(previousUseOf(summary)).toBe(Math.min(use, PREVIOUS_USE_MAX));
    expect(withoutPrefetch(summary)).toBe(summaryOf(true, true, 0, use));
  }
});

test('lock lines, slots and details are whole lines of memory, and fill the table', () => {
  for (const groups of [1, 7, 512]) {
    const first = firstLeaseSlot(groups);
    expect(first * 8).toBe(lockAt(groups) * 4);
    expect((MALLOC_BYTES + first * 8) % CACHE_LINE_BYTES).toBe(0);
    const bucket = leaseBucketAt(first, groups - 1, GROUP_BUCKETS - 1);
    const last = leaseSlotAt(bucket, BUCKET_SLOTS - 1);
    expect(last * 8 + CACHE_LINE_BYTES).toBe(detailsOffset(groups) + 16 * first);
    const details = detailsOffset(groups) + 16 * last;
    expect((MALLOC_BYTES + details) % CACHE_LINE_BYTES).toBe(0);
    expect(details + DETAIL_BYTES).toBe(leaseTableBytes(groups));
    expect(leaseSlotNumber(first, last)).toBe(groups * GROUP_SLOTS - 1);
  }
});

test('the bits of dirty slots are in their lock line, and are found in order', () => {
  const words = new Int32Array(lockAt(2));
  const lock = lockAt(1);
  const set = [255, 0, 31, 32, 64, 100];
  for (const index of set) words[dirtyAt(lock, index)] |= 1 << (index & 31);
  const found: number[] = [];
  for (let i = nextDirtySlot(words, lock, 0); i < GROUP_SLOTS; ) {
    found.push(i);
    i = nextDirtySlot(words, lock, i + 1);
  }
  expect(found).toEqual(set.toSorted((a, b) => a - b));
  const touched = [...words.keys()].filter((at) => words[at] !== 0);
  expect([touched[0], touched.at(-1)]).toEqual([lock + 4, lock + 11]);
});
