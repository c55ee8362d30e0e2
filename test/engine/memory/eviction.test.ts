import { describe, expect, test } from 'vitest';
import { CACHE_LINE_BYTES } from '../../../src/core/constants.ts';
import { findEviction } from '../../../src/engine/memory/eviction.ts';
import { deniedAt } from '../../../src/engine/memory/layout.ts';
import { writeCounter } from '../../../src/engine/memory/slot.ts';
import {
  BUCKET_SLOTS,
  bucketAt,
  lockAt,
  NO_SLOT,
  type Slot,
  slotAt,
} from '../../../src/engine/table/layout.ts';

const NOW = 1_000_500;
const [MINE, MAJORITY, OTHER] = [1, 2, 3];
/** The identity of the new counter. */
const NEW_COUNTER = { h0: 0, h1: 0, h2: 0, h3: 5 };

interface CounterCase {
  namespace: number;
  used: number;
  denied?: boolean;
  /** The number of the window; 1,000 with the default duration of 1,000 ms is the active one. */
  window?: number;
  duration?: number;
  /** Whether it has the identity of the new counter. */
  isOwn?: boolean;
}

const NO_COUNTER = -1;

/**
 * Fills two buckets with sixteen counters of limit 100, the first eight in the first bucket.
 * @returns the index of the evicted counter, or NO_COUNTER
 */
function evictedIndex(counters: CounterCase[], namespaceTag: number): number {
  expect(counters.length).toBe(2 * BUCKET_SLOTS);
  const [a, b] = [bucketAt(0 as Slot, 1), bucketAt(0 as Slot, 2)];
  const buffer = new ArrayBuffer(3 * BUCKET_SLOTS * CACHE_LINE_BYTES);
  const memory = { words: new Int32Array(buffer), doubles: new Float64Array(buffer) };
  counters.forEach((counter, i) => {
    const { namespace, used, denied, window = 1_000, duration = 1_000, isOwn } = counter;
    const slot = slotAt(a, i);
    const id = isOwn ? NEW_COUNTER : { ...NEW_COUNTER, h3: 7 };
    const cells = { newest: window, current: used, previous: 0, limit: 100 };
    writeCounter(memory, slot, id, namespace, duration, cells);
    memory.words[deniedAt(slot)] = denied ? 1 << (window & 1) : 0;
  });
  const evicted = findEviction(
    memory,
    { lock: lockAt(0), bucketA: a, bucketB: b, preferredSlotA: a, preferredSlotB: b },
    NEW_COUNTER,
    namespaceTag,
    NOW,
  );
  return evicted === NO_SLOT ? NO_COUNTER : counters.findIndex((_, i) => slotAt(a, i) === evicted);
}

/** Sixteen half-used counters of the given namespaces in turn, with changes by index. */
function counters(
  namespaces: number[],
  changes: Record<number, Partial<CounterCase>> = {},
): CounterCase[] {
  return Array.from({ length: 2 * BUCKET_SLOTS }, (_, i) => {
    return { namespace: namespaces[i % namespaces.length], used: 50, ...changes[i] };
  });
}

const counterSetWithMajority = (changes: Record<number, Partial<CounterCase>>) => {
  const set = counters([OTHER], changes);
  for (let i = 0; i < 9; i++) set[i].namespace = MAJORITY;
  return set;
};

describe('the evicted counter', () => {
  type Changes = Record<number, Partial<CounterCase>>;
  const ofTwo = (changes: Changes) => evictedIndex(counters([MINE, OTHER], changes), MINE);
  const ALL_PROTECTED: Changes = Object.fromEntries(
    Array.from({ length: 2 * BUCKET_SLOTS }, (_, i) => [i, { denied: true }]),
  );

  test('is the unprotected counter with the smallest used share of its limit', () => {
    expect(ofTwo({ 3: { used: 9 }, 12: { used: 8 } })).toBe(12);
    expect(ofTwo({ 3: { used: 9 }, 12: { used: 10 } })).toBe(3);
  });

  test('of equal shares is the one whose window ends first', () => {
    const set = counters([MINE, OTHER], { 5: { duration: 60_000, window: 16 } });
    for (const [i, counter] of set.entries()) {
      if (i !== 5 && i !== 11) Object.assign(counter, { duration: 90_000, window: 11 });
      if (i === 11) Object.assign(counter, { duration: 30_000, window: 33 });
    }
    // Windows end at 1,020,000 for 5 and 11, at 1,080,000 for others. The first of equals is evicted.
    expect(evictedIndex(set, MINE)).toBe(5);
  });

  test('is of the identity of the new counter only when there is no other', () => {
    const own = { namespace: MINE, used: 1, isOwn: true };
    const other = { ...ALL_PROTECTED, 2: own, 9: { used: 99 } };
    expect(ofTwo({ 2: own, 7: { used: 49 } })).toBe(7);
    expect(ofTwo({ ...ALL_PROTECTED, 2: own })).toBe(2);
    expect(ofTwo(other)).toBe(9);
    expect(evictedIndex(counters([MINE], other), MINE)).toBe(9);
  });

  test('is never one that denied a check in its active window, but may be after that', () => {
    expect(ofTwo({ 4: { used: 1, denied: true }, 6: { used: 30 } })).toBe(6);
    // Its share counts as 0.
    expect(ofTwo({ 2: { used: 1 }, 4: { used: 100, denied: true, window: 999 } })).toBe(4);
  });

  test('does not exist when all are protected and no namespace holds more than half', () => {
    const set = counters([MINE, OTHER], ALL_PROTECTED);
    expect(evictedIndex(set, MINE)).toBe(NO_COUNTER);
    expect(evictedIndex(set, MAJORITY)).toBe(NO_COUNTER);
  });

  test('is of a namespace with more than half of the slots, even if others used less', () => {
    const changes = { 2: { used: 20 }, 12: { used: 1 } };
    expect(evictedIndex(counterSetWithMajority(changes), MAJORITY)).toBe(2);
    expect(evictedIndex(counterSetWithMajority(changes), MINE)).toBe(2);
    // Exactly half is not more than half.
    const half = counterSetWithMajority(changes);
    half[8].namespace = OTHER;
    expect(evictedIndex(half, MINE)).toBe(12);
  });

  test('is a protected one of such a namespace only for a new counter of another', () => {
    const set = counterSetWithMajority({ 12: { used: 1 } });
    for (let i = 0; i < 9; i++) Object.assign(set[i], { denied: true, used: i === 7 ? 60 : 90 });
    expect(evictedIndex(set, MINE)).toBe(7);
    expect(evictedIndex(set, MAJORITY)).toBe(12);
    for (const counter of set) counter.denied = true;
    expect(evictedIndex(set, MAJORITY)).toBe(NO_COUNTER);
  });
});
