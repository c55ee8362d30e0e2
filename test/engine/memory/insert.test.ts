import { describe, expect, test } from 'vitest';
import { CACHE_LINE_BYTES } from '../../../src/core/constants.ts';
import { findFreeSlot } from '../../../src/engine/memory/insert.ts';
import { limitAt } from '../../../src/engine/memory/layout.ts';
import { writeCounter } from '../../../src/engine/memory/slot.ts';
import {
  BUCKET_SLOTS,
  bucketAt,
  lockAt,
  type MemoryViews,
  NO_SLOT,
  type Slot,
  slotAt,
  tagAt,
} from '../../../src/engine/table/layout.ts';
import { isCounterOf } from '../../../src/engine/table/slot.ts';

const NOW = 1_000_500;
const SECOND = 1_000;
const [A, B] = [bucketAt(0 as Slot, 1), bucketAt(0 as Slot, 2)];
/** The index of the preferred slot of the new counter in each bucket. */
const PREFERRED = 5;
const WHERE = {
  lock: lockAt(0),
  bucketA: A,
  bucketB: B,
  preferredSlotA: slotAt(A, PREFERRED),
  preferredSlotB: slotAt(B, PREFERRED),
};

function newMemory() {
  const buffer = new ArrayBuffer(3 * BUCKET_SLOTS * CACHE_LINE_BYTES);
  return { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
}

const identity = (h: number) => ({ h0: h, h1: h + 1, h2: h + 2, h3: h + 3 });

function fillTestSlot(memory: MemoryViews, slot: Slot, window = NOW / SECOND, h = 1_000): void {
  const cells = { newest: Math.floor(window), current: 3, previous: 2, limit: 10 };
  writeCounter(memory, slot, identity(h), 7, SECOND, cells);
}

/** The slot of a new counter when these slots are occupied: a0 to a7, b0 to b7, or none. */
function insertPosition(inA: number[], inB: number[], expired: { a?: number; b?: number } = {}) {
  const memory = newMemory();
  for (const index of inA)
    fillTestSlot(memory, slotAt(A, index), expired.a === index ? 1 : undefined);
  for (const index of inB)
    fillTestSlot(memory, slotAt(B, index), expired.b === index ? 1 : undefined);
  const slot = findFreeSlot(memory, WHERE, NOW);
  if (slot === NO_SLOT) return 'none';
  return slot < B
    ? `a${(slot - A) / slotAt(0 as Slot, 1)}`
    : `b${(slot - B) / slotAt(0 as Slot, 1)}`;
}

const ALL = [0, 1, 2, 3, 4, 5, 6, 7];

describe('a new counter', () => {
  test('gets its preferred slot of the first bucket, else of the second', () => {
    expect(insertPosition([], [])).toBe('a5');
    expect(insertPosition([0, 1, 2], [])).toBe('a5');
    expect(insertPosition([5], [])).toBe('b5');
    expect(insertPosition([5], [0, 1, 2])).toBe('b5');
  });

  test('gets a slot in a half full bucket only when the other bucket is no emptier', () => {
    expect(insertPosition([0, 1, 2, 3], [0, 1, 2])).toBe('b5');
    expect(insertPosition([0, 1, 2, 3], [0, 1, 2, 5])).toBe('a5');
    expect(insertPosition([0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 5])).toBe('b4');
    expect(insertPosition([0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 6])).toBe('a4');
  });

  test('with both preferred slots occupied goes to the bucket with more free slots', () => {
    expect(insertPosition([5], [5])).toBe('a0');
    expect(insertPosition([0, 5], [5])).toBe('b0');
    expect(insertPosition(ALL, [0, 1, 2, 3, 4, 5, 6])).toBe('b7');
    expect(insertPosition(ALL, ALL)).toBe('none');
  });

  test('gets the slot of an expired counter like an empty one', () => {
    expect(insertPosition([5], [], { a: 5 })).toBe('a5');
    expect(insertPosition(ALL, ALL, { b: 2 })).toBe('b2');
    // Slots of expired counters count as free. Otherwise the second bucket would be emptier.
    expect(insertPosition([0, 1, 2, 3], [0, 1, 2], { a: 1 })).toBe('a5');
  });
});

test('a slot whose write is interrupted at any store holds no counter or a complete one', () => {
  const whole = newMemory();
  fillTestSlot(whole, A, undefined, 50);
  for (let stores = 0; stores < 13; stores++) {
    const memory = newMemory();
    fillTestSlot(memory, A, 1, 20);
    let storesLeft = stores;
    const dying = <T extends Int32Array | Float64Array>(all: T): T => {
      return new Proxy(all, {
        get: (_, at) => all[Number(at)],
        set: (_, at, value) => {
          if (storesLeft-- <= 0) throw new Error('dead');
          all[Number(at)] = value;
          return true;
        },
      });
    };
    const { words, doubles } = memory;
    let died = false;
    try {
      fillTestSlot({ words: dying(words), doubles: dying(doubles) }, A, undefined, 50);
    } catch (error) {
      expect((error as Error).message).toBe('dead');
      died = true;
    }
    // Before the first store it holds the old counter, after the last store the new one.
    expect([stores, isCounterOf(memory, A, identity(20), SECOND)]).toEqual([stores, stores === 0]);
    expect([stores, isCounterOf(memory, A, identity(50), SECOND)]).toEqual([stores, !died]);
    expect([stores, died]).toEqual([stores, stores < 12]);
    if (stores > 0 && died) expect(words[tagAt(A)]).toBe(0);
    if (!died) expect(doubles.slice(A, A + 8)).toEqual(whole.doubles.slice(A, A + 8));
  }
  expect(whole.doubles[limitAt(A)]).toBe(10);
});
