import { expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import type { HoldTable } from '../../../src/engine/holds/hold-table.ts';
import { AT, HOLD_STATE, LOCK } from '../../../src/engine/holds/layout.ts';
import { rebuild, recoverHolds } from '../../../src/engine/holds/rebuild.ts';
import {
  endedOrder,
  expectConsistent,
  HOLDS_SHARD,
  holdIdentity,
  newHoldTable,
} from '../../support/hold-tables.ts';

const WORKER = 1_000;
const NOW_MS = 1_700_000_000_000;

/** Live holds and ended ones of three identities, in a table that has room. */
function prepare(): { table: HoldTable; buffer: SharedArrayBuffer; records: number[] } {
  const table = newHoldTable(32, 1);
  const records = Array.from({ length: 7 }, (_, number) => {
    const hold = {
      ...{ isLease: number % 2 === 0, identity: holdIdentity(0, 1, 0, 1 + (number % 3)) },
      ...{ namespace: [1, 2], rule: RULE.fixed, durationMs: 1_000, window: 1, limit: 10 },
      ...{ amount: number, expiresAt: NOW_MS + 100 - number },
    };
    const { record } = table.add(hold, NOW_MS);
    return record;
  });
  table.end(records[4], HOLD_STATE.ended, NOW_MS);
  table.end(records[1], HOLD_STATE.expired, NOW_MS + 1);
  table.end(records[2], HOLD_STATE.ended, NOW_MS + 2);
  return { table, buffer: table.memory.words.buffer as SharedArrayBuffer, records };
}

/** Worse than what a thread that dies in a change leaves: no list and no sum is right. */
function damage({ memory }: HoldTable): void {
  const { words, doubles } = memory;
  const { buckets, queue } = memory;
  words.fill(3, AT.freeRecord, AT.liveLeases + 1);
  doubles.fill(0.5, 12, 14);
  words.fill(2, buckets, queue + memory.capacity);
  words.fill(1, memory.counter(1), memory.record(1));
  for (let record = 1; record <= memory.capacity; record++) {
    words.fill(6, memory.record(record) + 12, memory.record(record) + 16);
  }
}

test('all beside the records is derived from them, whatever it was', () => {
  const { table, records } = prepare();
  expectConsistent(table);
  damage(table);
  rebuild(table);
  expectConsistent(table);
  const live = [0, 3, 5, 6].map((number) => records[number]);
  expect(records.filter((record) => table.isLive(record))).toEqual(live);
  expect(table.queue.first).toBe(records[6]);
  // The end that is the longest ago is forgotten first.
  expect(endedOrder(table)).toEqual([4, 1, 2].map((number) => records[number]));
});

test('the holds whose lock an ended worker holds are mended, and the lock is free', () => {
  const { table, buffer } = prepare();
  damage(table);
  table.memory.words[LOCK] = WORKER;
  recoverHolds(buffer, HOLDS_SHARD, WORKER);
  expectConsistent(table);
  expect(table.memory.words[LOCK]).toBe(0);
});

test('holds whose lock is free, or held by another thread, stay as they are', () => {
  for (const owner of [0, 1, WORKER + 1]) {
    const { table, buffer } = prepare();
    damage(table);
    table.memory.words[LOCK] = owner;
    const before = table.memory.words.slice();
    recoverHolds(buffer, HOLDS_SHARD, WORKER);
    expect(table.memory.words).toEqual(before);
  }
});

test('a rebuild without any hold has room for as many as there are records', () => {
  const table = newHoldTable(32, 4);
  damage(table);
  rebuild(table);
  expectConsistent(table);
  expect([table.room, table.queue.firstMs]).toEqual([8, Number.POSITIVE_INFINITY]);
});
