import { expect, test } from 'vitest';
import {
  CACHE_LINE_BYTES,
  HOLDS_DEFAULT,
  HOLDS_MAX,
  HOLDS_MIN,
  SHARDS,
} from '../../../src/core/constants.ts';
import { MemoryError } from '../../../src/core/errors.ts';
import {
  AT,
  allocateHolds,
  COUNTER,
  COUNTER_DOUBLE,
  DOUBLE_AT,
  flagsWord,
  HOLD_FLAG,
  HOLD_STATE,
  HoldMemory,
  LOCK,
  listLengthOfFlags,
  NONE,
  RECORD,
  RECORD_BYTES,
  RECORD_DOUBLE,
  recordOfReference,
  referenceOf,
  ruleOfFlags,
  shardOfReference,
} from '../../../src/engine/holds/layout.ts';

/** The C library uses these bytes at the beginning of a large mapping. */
const MALLOC_BYTES = 16;
const GROUPS = 7;

test('the layout of the holds is the one that its drawing shows', () => {
  expect(NONE).toBe(0);
  expect([LOCK, AT]).toEqual([
    12,
    {
      ...{ changed: 13, freeRecord: 14, freeCounter: 15, firstEnded: 16, lastEnded: 17 },
      ...{ queueLength: 18, liveReservations: 19, liveLeases: 20, used: 21 },
    },
  ]);
  expect(DOUBLE_AT).toEqual({ latestMs: 11, heldTokens: 12, leasedTokens: 13 });
  expect([COUNTER, COUNTER_DOUBLE]).toEqual([
    { identity: 0, firstLive: 4, firstEnded: 5, lastEnded: 6, next: 7 },
    { inUse: 4, earliestExpiryMs: 5 },
  ]);
  expect([RECORD_BYTES, RECORD]).toEqual([
    128,
    {
      ...{ state: 0, identity: 1, namespace: 5, secret: 7, flags: 10, nextOfList: 11 },
      ...{ counter: 12, previous: 13, next: 14, link: 15 },
    },
  ]);
  expect(RECORD_DOUBLE).toEqual({
    ...{ durationMs: 8, window: 9, limit: 10, amount: 11, expiresAt: 12, endedAt: 13 },
    ...{ charged: 14, released: 15 },
  });
  expect(HOLD_STATE).toEqual({ free: 0, live: 1, ended: 2, expired: 3 });
  expect(HOLD_FLAG).toEqual({ lease: 1, late: 2, voided: 4, member: 8 });
  const flags = flagsWord(HOLD_FLAG.late, 2, 16);
  expect(flags).toBe(0x0010_0202);
  expect([ruleOfFlags(flags), listLengthOfFlags(flags)]).toEqual([2, 16]);
  const reference = referenceOf(15, 2 ** 24);
  expect(reference).toBe(2 ** 28 + 15);
  expect([shardOfReference(reference), recordOfReference(reference)]).toEqual([15, 2 ** 24]);
});

test('the parts of the memory follow one another, each on lines of its own', () => {
  const buffer = allocateHolds(3, HOLDS_MIN, GROUPS);
  const memory = new HoldMemory(buffer, 3);
  const { capacity, groups, bucketsPerGroup, buckets, queue } = memory;
  expect([...memory.words.slice(0, 4)]).toEqual([3, GROUPS, 16, 96]);
  expect([memory.shard, groups, bucketsPerGroup, capacity]).toEqual([3, GROUPS, 16, 96]);
  expect([buckets, queue, memory.counter(1), memory.record(1)]).toEqual([28, 140, 236, 1_772]);
  expect(buffer.byteLength).toBe(4 * memory.record(capacity) + RECORD_BYTES);
  for (const holds of [HOLDS_MIN, HOLDS_MIN + 1, HOLDS_DEFAULT]) {
    for (const groups of [1, 7, 512]) {
      const memory = new HoldMemory(allocateHolds(0, holds, groups), 0);
      const lastBucket = memory.buckets + groups * memory.bucketsPerGroup;
      expect(lastBucket).toBeLessThanOrEqual(memory.queue);
      expect(memory.queue + memory.capacity).toBeLessThanOrEqual(memory.counter(1));
      expect(memory.counter(memory.capacity + 1)).toBe(memory.record(1));
      const parts = [memory.buckets, memory.queue, memory.counter(1), memory.record(1)];
      for (const at of parts) expect((MALLOC_BYTES + 4 * at) % CACHE_LINE_BYTES).toBe(0);
      // A bucket for each record at least, and less than two.
      const bucketCount = groups * memory.bucketsPerGroup;
      expect(bucketCount).toBeGreaterThanOrEqual(memory.capacity);
      expect(bucketCount).toBeLessThan(2 * Math.max(memory.capacity, groups));
    }
  }
});

test('new memory has no hold, and no record or counter in a list', () => {
  const { words } = new HoldMemory(allocateHolds(0, HOLDS_MIN, 1), 0);
  // All but the header is 0, so that memory is used only as holds are recorded.
  expect(words.slice(LOCK).every((word) => word === 0)).toBe(true);
});

test('each shard has more than its share of the records, and a hold costs about 200 bytes', () => {
  const memories = [HOLDS_MIN, HOLDS_DEFAULT, HOLDS_MAX].map((holds) => {
    return new HoldMemory(allocateHolds(0, holds, 512), 0);
  });
  expect(memories.map(({ capacity }) => capacity)).toEqual([96, 8_555, 1_052_672]);
  for (const { words, capacity } of memories.slice(1)) {
    expect(words.byteLength / capacity).toBeLessThan(205);
  }
  const [, , largest] = memories;
  // A word is numbered by an int32, and so is a byte in a part of a table.
  expect(largest.words.byteLength).toBeLessThan(2 ** 31);
  // The number of a record and its shard are 32 bits of an id, and 31 bits of a record.
  expect(referenceOf(SHARDS - 1, largest.capacity)).toBeLessThan(2 ** 31);
});

test('attaching refuses the holds of another shard, and memory of another size', () => {
  const buffer = allocateHolds(3, HOLDS_MIN, GROUPS);
  expect(() => new HoldMemory(buffer, 4)).toThrow(
    new MemoryError('the holds of shard 4: its shard is 3, not 4'),
  );
  for (const field of [1, 2, 3]) {
    const damaged = allocateHolds(3, HOLDS_MIN, GROUPS);
    new Int32Array(damaged)[field] *= 2;
    expect(() => new HoldMemory(damaged, 3)).toThrow(
      /^the holds of shard 3 have 19376 bytes, not \d+$/,
    );
  }
  const shorter = new SharedArrayBuffer(buffer.byteLength - 64);
  new Uint8Array(shorter).set(new Uint8Array(buffer, 0, shorter.byteLength));
  expect(() => new HoldMemory(shorter, 3)).toThrow(MemoryError);
});
