import { expect, test } from 'vitest';
import { CACHE_LINE_BYTES } from '../../../src/core/constants.ts';
import {
  BUCKET_SLOTS,
  bucketAt,
  firstSlot,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  groupAt,
  groupsPerShard,
  hashAt,
  indexInBucket,
  indexInGroup,
  isSlotMarked,
  keyAt,
  latestMsAt,
  lockAt,
  markSlot,
  nextMarkedSlot,
  type Slot,
  slotAt,
  TABLE_HEADER,
  tableBytes,
  tagAt,
  unmarkSlot,
} from '../../../src/engine/table/layout.ts';

/** The C library uses these bytes at the beginning of a large mapping. */
const MALLOC_BYTES = 16;
const FIRST = 0 as Slot;

test('the layout of a table is the one that its drawing shows', () => {
  expect(TABLE_HEADER).toEqual({ shard: 0, groups: 1 });
  expect([lockAt(0), latestMsAt(lockAt(0))]).toEqual([12, 7]);
  expect([tagAt(FIRST), keyAt(FIRST)]).toEqual([0, 3]);
  expect([0, 1, 2].map((word) => hashAt(FIRST, word))).toEqual([1, 2, 3]);
  expect([BUCKET_SLOTS, GROUP_BUCKETS, slotAt(FIRST, 1)]).toEqual([8, 32, 8]);
  expect(indexInBucket(FIRST, slotAt(FIRST, 5))).toBe(5);
});

test('a slot costs 64 bytes', () => {
  const slots = 2_097_152;
  const groups = groupsPerShard(slots, 16);
  expect(groups * 16 * GROUP_SLOTS).toBe(slots);
  // Locks are the rest: one line for 256 slots.
  expect((16 * tableBytes(groups)) / slots).toBeLessThan(64.3);
});

test('locks and slots are whole lines of memory, and no bucket is in two pages', () => {
  const bucketBytes = BUCKET_SLOTS * CACHE_LINE_BYTES;
  for (const groups of [1, 7, 512]) {
    const first = firstSlot(groups);
    expect(first * 8).toBeGreaterThanOrEqual(lockAt(groups) * 4);
    expect((MALLOC_BYTES + first * 8) % bucketBytes).toBe(0);
    const last = slotAt(bucketAt(groupAt(first, groups - 1), GROUP_BUCKETS - 1), BUCKET_SLOTS - 1);
    expect(last * 8 + CACHE_LINE_BYTES).toBe(tableBytes(groups));
    expect(indexInGroup(first, last)).toBe(GROUP_SLOTS - 1);
  }
  // The header, with a word of the engine, ends before the first lock.
  expect(lockAt(0)).toBeGreaterThan(TABLE_HEADER.groups + 1);
  for (const group of [0, 1, 511]) {
    expect((MALLOC_BYTES + lockAt(group) * 4) % CACHE_LINE_BYTES).toBe(0);
  }
});

test('the marks of slots are in their lock line, and are found in order', () => {
  const words = new Int32Array(lockAt(2));
  const lock = lockAt(1);
  const found = () => {
    const indexes = [];
    for (
      let i = nextMarkedSlot(words, lock, 0);
      i < GROUP_SLOTS;
      i = nextMarkedSlot(words, lock, i + 1)
    ) {
      indexes.push(i);
    }
    return indexes;
  };
  expect(found()).toEqual([]);
  for (const index of [255, 0, 31, 32, 64, 100]) markSlot(words, lock, index);
  expect(found()).toEqual([0, 31, 32, 64, 100, 255]);
  for (const index of [31, 255]) unmarkSlot(words, lock, index);
  expect(found()).toEqual([0, 32, 64, 100]);
  for (let index = 0; index < GROUP_SLOTS; index++) markSlot(words, lock, index);
  expect(found()).toEqual([...Array(GROUP_SLOTS).keys()]);
  expect([0, 255].every((index) => isSlotMarked(words, lock, index))).toBe(true);
  unmarkSlot(words, lock, 33);
  expect([32, 33, 34].map((index) => isSlotMarked(words, lock, index))).toEqual([
    true,
    false,
    true,
  ]);
  // Neither the owner nor the time is changed, nor another line.
  const touched = [...words.keys()].filter((at) => words[at] !== 0);
  expect([touched[0], touched.at(-1)]).toEqual([lock + 4, lock + 11]);
});
