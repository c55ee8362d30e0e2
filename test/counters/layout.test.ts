import { expect, test } from 'vitest';
import {
  BUCKET,
  BUCKET_BYTES,
  BUCKET_SLOTS,
  bucketsOffset,
  GROUP_BUCKETS,
  GROUP_SLOTS,
  groupsPerShard,
  HEADER,
  LOCK,
  SLOT,
  SLOT_BYTES,
  SLOT_WORD,
  slotAt,
  TABLE_VERSION,
  tableBytes,
} from '../../src/counters/layout.ts';

test('the numbers of the layout are those of version 1', () => {
  expect(TABLE_VERSION).toBe(1);
  expect(HEADER).toEqual({ magic: 0, version: 1, shard: 2, groups: 3 });
  expect(LOCK).toEqual({ owner: 0, now: 1 });
  expect(BUCKET).toEqual({ tags: 0, namespaces: 8 });
  expect(SLOT).toEqual({ duration: 0, newest: 1, ring: 2, limit: 4 });
  expect(SLOT_WORD).toEqual({ hash0: 10, hash1: 11, hash2: 12, refused: 13 });
  expect([BUCKET_SLOTS, SLOT_BYTES, BUCKET_BYTES, GROUP_BUCKETS]).toEqual([8, 56, 512, 32]);
});

test('a slot costs at most 64 bytes, its share of the bucket line included', () => {
  expect(BUCKET_BYTES / BUCKET_SLOTS).toBe(64);
  const slots = 2_097_152;
  const groups = groupsPerShard(slots, 16);
  expect(groups * 16 * GROUP_SLOTS).toBe(slots);
  // Locks are the rest: one line for 256 slots.
  expect((16 * tableBytes(groups)) / slots).toBeLessThan(64.3);
});

test('buckets are aligned to their size, and their last slot ends where the next begins', () => {
  for (const groups of [1, 7, 512]) {
    expect(bucketsOffset(groups) % BUCKET_BYTES).toBe(0);
    expect(bucketsOffset(groups)).toBeGreaterThanOrEqual(64 + groups * 64);
  }
  expect(slotAt(0, 0) * 8).toBe(64);
  expect(slotAt(0, BUCKET_SLOTS - 1) * 8 + SLOT_BYTES).toBe(BUCKET_BYTES);
  // The words of a slot lie behind its five doubles.
  expect(SLOT_WORD.hash0 * 4).toBe((SLOT.limit + 1) * 8);
  expect((SLOT_WORD.refused + 1) * 4).toBe(SLOT_BYTES);
});
