/** What the holds of a shard are, by its records, and by the lists and sums beside them. */

import { expect } from 'vitest';
import { SHARDS } from '../../src/core/constants.ts';
import type { Identity } from '../../src/core/hash.ts';
import { HoldTable } from '../../src/engine/holds/hold-table.ts';
import {
  AT,
  allocateHolds,
  COUNTER,
  COUNTER_DOUBLE,
  DOUBLE_AT,
  HOLD_STATE,
  NONE,
  RECORD,
  RECORD_DOUBLE,
} from '../../src/engine/holds/layout.ts';
import { Batch } from '../../src/engine/memory/batch.ts';
import type { CounterTable } from '../../src/engine/memory/table.ts';
import { groupOfIdentity } from '../../src/engine/table/group.ts';

export const HOLDS_SHARD = 3;

/** A table of few records. @param holds 16 for each share: 16 make 5 records, 32 make 8 */
export function newHoldTable(holds: number, groups: number): HoldTable {
  return new HoldTable(allocateHolds(HOLDS_SHARD, holds, groups), HOLDS_SHARD, 1, () => {});
}

/** A batch, and tables of holds by shard, where the tables of one shard are those of all. */
export function oneShardBatch(counters: CounterTable, table: HoldTable) {
  const ofShards = <T>(own: T) => Array.from({ length: SHARDS }, () => own);
  return { batch: new Batch(ofShards(counters), 'deny'), tables: ofShards(table) };
}

export function copyHoldTable({ memory }: HoldTable): HoldTable {
  const copy = new SharedArrayBuffer(memory.words.byteLength);
  new Int32Array(copy).set(memory.words);
  return new HoldTable(copy, memory.shard, 1, () => {});
}

/** An identity by its group among `groups`, and by what it adds to the other words. */
export function holdIdentity(group: number, groups: number, h0: number, h3: number): Identity {
  const h1 = Math.ceil((group * 2 ** 32) / groups) | 0;
  return { h0: (HOLDS_SHARD << 28) | h0, h1, h2: h3 * 7, h3 };
}

/** The records that have a hold, live ones and ended ones. */
export function recordsOf({ memory }: HoldTable): number[] {
  return allOf(memory.capacity).filter((of) => memory.word(of, RECORD.state) !== HOLD_STATE.free);
}

/** The records that have ended, the oldest first, as the table is going to forget them. */
export function endedOrder({ memory }: HoldTable): number[] {
  return listFrom(memory.words[AT.firstEnded], (of) => memory.word(of, RECORD.link));
}

/**
 * Fails unless each record and each counter is once where its state says, and all sums are those of
 * the records. What else the table answers follows from that. Records and counters that were never
 * used are in no list.
 */
export function expectConsistent(table: HoldTable): void {
  const { memory } = table;
  const { words, doubles, capacity, groups } = memory;
  const used = words[AT.used];
  const ofState = (isOfState: (state: number) => boolean) => {
    return allOf(used).filter((of) => isOfState(memory.word(of, RECORD.state)));
  };
  for (const unused of allOf(capacity).slice(used)) {
    expect(memory.word(unused, RECORD.state)).toBe(HOLD_STATE.free);
  }
  const live = ofState((state) => state === HOLD_STATE.live);
  const ended = ofState((state) => state === HOLD_STATE.ended || state === HOLD_STATE.expired);
  const free = ofState((state) => state === HOLD_STATE.free);
  const queued = [...words.slice(memory.queue, memory.queue + words[AT.queueLength])];
  for (const [place, record] of queued.entries()) {
    expect(memory.word(record, RECORD.link)).toBe(place);
  }
  expect(sorted(queued)).toEqual(live);
  const expiries = live.map((of) => memory.double(of, RECORD_DOUBLE.expiresAt));
  expect(table.queue.firstMs).toBe(Math.min(...expiries));
  const order = endedOrder(table);
  expect(sorted(order)).toEqual(ended);
  expect(words[AT.lastEnded]).toBe(order.at(-1) ?? NONE);
  const ends = order.map((of) => memory.double(of, RECORD_DOUBLE.endedAt));
  expect(ends).toEqual(sorted(ends));
  const freeRecords = listFrom(words[AT.freeRecord], (of) => memory.word(of, RECORD.link));
  expect(sorted(freeRecords)).toEqual(free);

  const counters: number[] = [];
  for (let group = 0; group < groups; group++) {
    const ofGroup = [...table.recordsOfGroup(group)];
    for (const record of ofGroup) {
      expect(groupOfIdentity(table.identityOf(record), groups)).toBe(group);
    }
    counters.push(...new Set(ofGroup.map((record) => memory.word(record, RECORD.counter))));
  }
  const nextCounter = (of: number) => words[memory.counter(of) + COUNTER.next];
  const freeCounters = listFrom(words[AT.freeCounter], nextCounter);
  expect(sorted([...counters, ...freeCounters])).toEqual(allOf(used));
  for (const counter of counters) {
    const at = memory.counter(counter);
    const nextRecord = (of: number) => memory.word(of, RECORD.next);
    const ownLive = listFrom(words[at + COUNTER.firstLive], nextRecord);
    const ownEnded = listFrom(words[at + COUNTER.firstEnded], nextRecord);
    for (const [place, record] of ownLive.entries()) {
      expect(memory.word(record, RECORD.previous)).toBe(ownLive[place - 1] ?? NONE);
    }
    expect(words[at + COUNTER.lastEnded]).toBe(ownEnded.at(-1) ?? NONE);
    const own = recordsOf(table).filter((of) => memory.word(of, RECORD.counter) === counter);
    expect(sorted([...ownLive, ...ownEnded])).toEqual(own);
    expect(ownEnded).toEqual(order.filter((record) => own.includes(record)));
    for (const record of own) expect(table.findCounter(table.identityOf(record))).toBe(counter);
    expect(sorted(ownLive)).toEqual(own.filter((record) => table.isLive(record)));
    expect([...table.liveOf(counter)]).toEqual(ownLive);
    expect([...table.recordsOf(counter)]).toEqual([...ownLive, ...ownEnded]);
    const leases = own.filter((record) => table.isLive(record) && table.isLease(record));
    expect(doubles[at / 2 + COUNTER_DOUBLE.inUse]).toBe(amountOf(table, leases));
    const expiries = leases.map((of) => memory.double(of, RECORD_DOUBLE.expiresAt));
    const earliestMs = doubles[at / 2 + COUNTER_DOUBLE.earliestExpiryMs];
    expect(earliestMs).toBeLessThanOrEqual(Math.min(...expiries));
  }

  const leases = live.filter((record) => table.isLease(record));
  const reservations = live.filter((record) => !table.isLease(record));
  expect([words[AT.liveLeases], words[AT.liveReservations]]).toEqual([
    leases.length,
    reservations.length,
  ]);
  expect([doubles[DOUBLE_AT.leasedTokens], doubles[DOUBLE_AT.heldTokens]]).toEqual([
    amountOf(table, leases),
    amountOf(table, reservations),
  ]);
}

function amountOf({ memory }: HoldTable, records: readonly number[]): number {
  return records.reduce((sum, record) => sum + memory.double(record, RECORD_DOUBLE.amount), 0);
}

function allOf(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index + 1);
}

function listFrom(first: number, next: (number: number) => number): number[] {
  const list: number[] = [];
  for (let number = first; number !== NONE; number = next(number)) {
    if (list.includes(number)) throw new Error(`a list has ${number} twice: ${list.join()}`);
    list.push(number);
  }
  return list;
}

function sorted(numbers: readonly number[]): number[] {
  return numbers.toSorted((a, b) => a - b);
}
