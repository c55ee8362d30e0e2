import fc from 'fast-check';
import { expect, test } from 'vitest';
import { HOLDS_MIN } from '../../../src/core/constants.ts';
import { ExpiryQueue } from '../../../src/engine/holds/expiry-queue.ts';
import {
  AT,
  allocateHolds,
  HoldMemory,
  NONE,
  RECORD,
  RECORD_DOUBLE,
} from '../../../src/engine/holds/layout.ts';
import { trialCount } from '../../support/guarantees.ts';

const buffer = allocateHolds(0, HOLDS_MIN, 1);
const memory = new HoldMemory(buffer, 0);
const initial = memory.words.slice();

/** Few different times, so that many records expire at once. */
const expiryMs = fc.oneof(fc.nat(10), fc.nat(1_000), fc.nat(2 ** 45));
const step = fc.record({
  kind: fc.constantFrom('add', 'add', 'add', 'remove', 'removeFirst', 'move'),
  which: fc.nat(1_000_000),
  expiryMs,
});

/** The records of the queue. Each knows its place. */
function queued(): number[] {
  const length = memory.words[AT.queueLength];
  return Array.from({ length }, (_, place) => {
    const record = memory.words[memory.queue + place];
    expect(memory.word(record, RECORD.link)).toBe(place);
    return record;
  });
}

test('the queue has its records, and the one that expires first at its beginning', () => {
  let longest = 0;
  const property = fc.property(fc.array(step, { maxLength: 250, size: 'max' }), (steps) => {
    memory.words.set(initial);
    const queue = new ExpiryQueue(memory);
    const model = new Map<number, number>();
    const setExpiry = (record: number, ms: number) => {
      model.set(record, ms);
      memory.setDouble(record, RECORD_DOUBLE.expiresAt, ms);
    };
    for (const { kind, which, expiryMs } of steps) {
      const records = [...model.keys()];
      const record = records[which % records.length];
      if (kind === 'add') {
        const free = Array.from({ length: memory.capacity }, (_, index) => index + 1).filter(
          (record) => !model.has(record),
        );
        if (free.length === 0) continue;
        const added = free[which % free.length];
        setExpiry(added, expiryMs);
        queue.add(added);
      } else if (record === undefined) continue;
      else if (kind === 'move') {
        setExpiry(record, expiryMs);
        queue.move(record);
      } else {
        const removed = kind === 'remove' ? record : queue.first;
        model.delete(removed);
        queue.remove(removed);
      }
      longest = Math.max(longest, model.size);
      const sorted = [...model.values()].toSorted((a, b) => a - b);
      expect(queue.firstMs).toBe(sorted[0] ?? Number.POSITIVE_INFINITY);
      if (model.size === 0) expect(queue.first).toBe(NONE);
      else expect(model.get(queue.first)).toBe(sorted[0]);
      expect(queued().toSorted((a, b) => a - b)).toEqual(
        [...model.keys()].toSorted((a, b) => a - b),
      );
    }
    // Removed from its beginning, the records come in the order of their expiry.
    const order = [];
    while (queue.first !== NONE) {
      order.push(queue.firstMs);
      queue.remove(queue.first);
    }
    expect(order).toEqual([...model.values()].toSorted((a, b) => a - b));
  });
  fc.assert(property, { numRuns: trialCount(60, 3_000) });
  expect(longest).toBeGreaterThan(30);
});

test('a full queue has a place for each record', () => {
  memory.words.set(initial);
  const queue = new ExpiryQueue(memory);
  for (let record = 1; record <= memory.capacity; record++) {
    memory.setDouble(record, RECORD_DOUBLE.expiresAt, memory.capacity - record);
    queue.add(record);
  }
  expect([queue.first, queue.firstMs]).toEqual([memory.capacity, 0]);
  expect(queued()).toHaveLength(memory.capacity);
  // The word after the queue is of another part.
  expect(memory.queue + memory.capacity).toBeLessThanOrEqual(memory.counter(1));
});
