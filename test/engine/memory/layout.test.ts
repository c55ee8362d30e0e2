import { expect, test } from 'vitest';
import {
  BUCKET_BYTES,
  BUCKET_SLOTS,
  bucketAt,
  bucketsOffset,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  groupsPerShard,
  LOCK_LINE,
  lockAt,
  markSlotEmpty,
  markSlotUsed,
  nextUsedSlot,
  SLOT,
  SLOT_BYTES,
  SLOT_WORD,
  slotAt,
  TABLE_HEADER,
  TABLE_VERSION,
  tableBytes,
} from '../../../src/engine/memory/layout.ts';

/** What the C library keeps to itself at the beginning of a large mapping. */
const KEPT = 16;
const LINE = 64;

test('the numbers of the layout are those of version 3', () => {
  expect(TABLE_VERSION).toBe(3);
  expect(TABLE_HEADER).toEqual({ magic: 0, version: 1, shard: 2, groups: 3, checkpoint: 4 });
  expect(LOCK_LINE).toEqual({ owner: 0, latestMs: 1, used: 4, isChanged: 12 });
  expect(SLOT_WORD).toEqual({ tag: 0, hash0: 1, hash1: 2, hash2: 3, namespace: 4, denied: 5 });
  expect(SLOT).toEqual({ duration: 3, newest: 4, cells: 5, limit: 7 });
  expect([BUCKET_SLOTS, SLOT_BYTES, BUCKET_BYTES, GROUP_BUCKETS]).toEqual([8, 64, 512, 32]);
});

test('a slot costs 64 bytes', () => {
  const slots = 2_097_152;
  const groups = groupsPerShard(slots, 16);
  expect(groups * 16 * GROUP_SLOTS).toBe(slots);
  // Locks are the rest: one line for 256 slots.
  expect((16 * tableBytes(groups)) / slots).toBeLessThan(64.3);
});

test('locks and slots are whole lines of memory, and no bucket lies in two pages', () => {
  for (const groups of [1, 7, 512]) {
    expect(bucketsOffset(groups)).toBeGreaterThanOrEqual(lockAt(groups) * 4);
    expect((KEPT + bucketsOffset(groups)) % BUCKET_BYTES).toBe(0);
    expect(bucketAt(groups, 0) * 8).toBe(bucketsOffset(groups));
    const last = slotAt(bucketAt(groups, groups * GROUP_BUCKETS - 1), BUCKET_SLOTS - 1);
    expect(last * 8 + SLOT_BYTES).toBe(tableBytes(groups));
  }
  // The header ends before the first lock.
  expect(lockAt(0) * 4).toBeGreaterThanOrEqual((TABLE_HEADER.checkpoint + 1) * 4);
  for (const group of [0, 1, 511]) expect((KEPT + lockAt(group) * 4) % LINE).toBe(0);
});

test('the bits of used slots fit their lock line, and are found one after the other', () => {
  const words = new Int32Array(lockAt(2));
  const lock = lockAt(1);
  const found = () => {
    const indexes = [];
    for (
      let i = nextUsedSlot(words, lock, 0);
      i < GROUP_SLOTS;
      i = nextUsedSlot(words, lock, i + 1)
    ) {
      indexes.push(i);
    }
    return indexes;
  };
  expect(found()).toEqual([]);
  for (const index of [255, 0, 31, 32, 64, 100]) markSlotUsed(words, lock, index);
  expect(found()).toEqual([0, 31, 32, 64, 100, 255]);
  for (const index of [31, 255]) markSlotEmpty(words, lock, index);
  expect(found()).toEqual([0, 32, 64, 100]);
  for (let index = 0; index < GROUP_SLOTS; index++) markSlotUsed(words, lock, index);
  expect(found()).toEqual([...Array(GROUP_SLOTS).keys()]);
  // Neither the owner nor the time is touched, nor anybody else's line.
  const touched = [...words.keys()].filter((at) => words[at] !== 0);
  expect([touched[0], touched.at(-1)]).toEqual([lock + LOCK_LINE.used, lock + LOCK_LINE.used + 7]);
});

test('the fields of a slot fill it, none over another', () => {
  const bytes = new Set<number>();
  const take = (at: number, length: number) => {
    for (let i = 0; i < length; i++) bytes.add(at + i);
  };
  for (const word of Object.values(SLOT_WORD)) take(word * 4, 4);
  for (const double of [...Object.values(SLOT), SLOT.cells + 1]) take(double * 8, 8);
  expect([...bytes].sort((a, b) => a - b)).toEqual([...Array(SLOT_BYTES).keys()]);
});
