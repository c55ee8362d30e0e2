import { expect, test } from 'vitest';
import { REQUEST_IDS_MAX, SHARDS } from '../../../src/core/constants.ts';
import {
  AT,
  allocateRequests,
  DOUBLE_AT,
  LOCK,
  RequestMemory,
  SLOT,
  SLOT_DOUBLE,
} from '../../../src/engine/requests/layout.ts';

test('the layout of stored answers is the one that its drawing shows', () => {
  expect([LOCK, AT, DOUBLE_AT]).toEqual([12, { lastWritten: 13, buckets: 28 }, { latestMs: 7 }]);
  expect(Object.values(SLOT)).toEqual([0, 4, 8, 9, 10, 11, 12]);
  expect(Object.values(SLOT_DOUBLE)).toEqual([8, 9, 10, 11, 12, 13]);
  const memory = new RequestMemory(allocateRequests(1, 3), 1);
  // 28 words before the buckets, and 16 buckets; a slot has 32 words.
  expect([1, 2, 3].map((slot) => memory.slot(slot))).toEqual([44, 76, 108]);
  expect([0, 15, 16, -1].map((word) => memory.bucket(word))).toEqual([28, 43, 28, 43]);
});

test('the stored answers of all shards take 8.3 MiB', () => {
  const { byteLength } = allocateRequests(0, REQUEST_IDS_MAX / SHARDS);
  expect((SHARDS * byteLength) / 2 ** 20).toBeCloseTo(8.25, 2);
});

test('the memory of another shard, and one of another size, are rejected', () => {
  const buffer = allocateRequests(1, 3);
  expect(() => new RequestMemory(buffer, 2)).toThrow(
    'the stored answers of shard 2: its shard is 1, not 2',
  );
  const longer = new SharedArrayBuffer(buffer.byteLength + 128);
  new Int32Array(longer).set(new Int32Array(buffer));
  expect(() => new RequestMemory(longer, 1)).toThrow('the stored answers of shard 1 have');
});
