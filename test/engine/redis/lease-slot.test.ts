/**
 * A thread may die between any two stores. Each test records the stores of one operation, and looks
 * at the slot after each number of them, as the supervisor leaves it.
 */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { newIdentity } from '../../../src/core/hash.ts';
import {
  type LeaseState,
  moveStateToWindow,
  newLeaseState,
} from '../../../src/engine/redis/counter/lease-state.ts';
import { pauseUntil } from '../../../src/engine/redis/counter/pause.ts';
import type { LeaseViews } from '../../../src/engine/redis/lease-layout.ts';
import {
  addReserved,
  addUnreported,
  clearSlot,
  moveSlotToWindow,
  readLeaseState,
  repairSlot,
  writeLeaseState,
} from '../../../src/engine/redis/lease-slot.ts';
import type { Slot } from '../../../src/engine/table/layout.ts';
import { readIdentity } from '../../../src/engine/table/slot.ts';
import {
  brokenInvariants,
  MINUTE,
  START_MS,
  TestLeases,
  testIdentity,
  WINDOW,
} from '../../support/lease-tables.ts';

const ID = testIdentity(1);

/** What an operation has left after each number of its stores, from none to all. */
function crashStates<T>(
  leases: TestLeases,
  slot: Slot,
  operate: (memory: LeaseViews, slot: Slot) => void,
  look: (memory: LeaseViews) => T,
): T[] {
  const { table, buffer } = leases;
  const before = new Uint8Array(buffer).slice();
  const stores: { views: keyof LeaseViews; at: number; value: number }[] = [];
  const names = ['words', 'doubles', 'detailWords', 'details'] as const;
  const recorded = names.map((views) => {
    const real = table[views] as unknown as Record<string, number>;
    const proxy = new Proxy(real, {
      set: (target, at, value) => {
        stores.push({ views, at: Number(at), value });
        target[String(at)] = value;
        return true;
      },
      get: (target, at) => target[String(at)],
    });
    return [views, proxy];
  });
  operate(Object.fromEntries(recorded) as LeaseViews, slot);
  expect(stores.length).toBeGreaterThan(0);
  return Array.from({ length: stores.length + 1 }, (_, count) => {
    new Uint8Array(buffer).set(before);
    for (const { views, at, value } of stores.slice(0, count)) {
      (table[views] as unknown as number[])[at] = value;
    }
    repairSlot(table, slot);
    expect(brokenInvariants(table)).toEqual([]);
    return look(table);
  });
}

function stateOf(memory: LeaseViews, slot: Slot): LeaseState {
  const state = newLeaseState();
  readLeaseState(memory, slot, state);
  return state;
}

/** The states after each number of stores. */
function statesOf(
  leases: TestLeases,
  slot: Slot,
  operate: (memory: LeaseViews) => void,
): LeaseState[] {
  return crashStates(leases, slot, operate, (memory) => stateOf(memory, slot));
}

const states = fc.record({
  spent: fc.nat({ max: 60 }),
  previousSpent: fc.nat({ max: 60 }),
  lease: fc.constantFrom(0, 3, 7, 20),
  lentLimit: fc.constantFrom(40, 100),
  lastLimit: fc.constantFrom(40, 100),
  coversSliding: fc.boolean(),
  isStored: fc.boolean(),
  others: fc.integer({ min: -20, max: 60 }),
  deadlineMs: fc.constantFrom(START_MS + 5, START_MS + 9),
  boundUntilMs: fc.constantFrom(0, START_MS + 5),
  pause: fc.constantFrom(0, pauseUntil(START_MS + 7), pauseUntil(2 ** 24 - 1)),
  prefetchBelow: fc.constantFrom(0, 1, 8, 32),
  previousUsage: fc.constantFrom(0, 5, 2 ** 30),
});

function slotWith(state: Partial<LeaseState>, reserved: number): [TestLeases, Slot] {
  const leases = new TestLeases();
  const slot = leases.work(ID, START_MS, (into) => Object.assign(into, state));
  leases.table.addReserved(slot, reserved);
  return [leases, slot];
}

test('a worker that dies while it writes leaves no larger lease and no less usage', () => {
  fc.assert(
    fc.property(states, states, fc.constantFrom(0, 4), (old, now, reserved) => {
      const [leases, slot] = slotWith(old, reserved);
      const next = { ...stateOf(leases.table, slot), ...now };
      const after = statesOf(leases, slot, (memory) => writeLeaseState(memory, slot, next));
      for (const [count, state] of after.entries()) {
        expect(state.reserved).toBe(reserved);
        expect(state.spent).toBeGreaterThanOrEqual(Math.min(old.spent, now.spent));
        // The last two stores raise the lease, and allow denials again.
        const isRaised = count >= after.length - 2;
        expect(state.lease).toBeLessThanOrEqual(isRaised ? now.lease : old.lease);
        if (count > 0 && count < after.length - 1) expect(state.boundUntilMs).toBe(0);
        if (state.lease > 0 && isRaised) {
          expect(state.lentLimit).toBeGreaterThanOrEqual(now.lentLimit);
          expect(state.deadlineMs).toBe(now.deadlineMs);
        }
      }
    }),
  );
});

test('a worker that dies while it enters a window leaves no lease of the window before', () => {
  fc.assert(
    fc.property(
      states,
      states,
      fc.constantFrom(0, 4),
      fc.constantFrom(1, 2, 5),
      (old, now, reserved, ahead) => {
        const [leases, slot] = slotWith(old, reserved);
        const next = stateOf(leases.table, slot);
        moveStateToWindow(next, WINDOW + ahead);
        const { previousSpent } = next;
        Object.assign(next, now, { previousSpent, previousKnownUsage: 0 });
        const after = statesOf(leases, slot, (memory) => writeLeaseState(memory, slot, next));
        for (const [count, state] of after.entries()) {
          if (state.window === WINDOW) {
            // After two windows nothing looks at it.
            if (ahead === 1) expect(state.spent).toBeGreaterThanOrEqual(old.spent);
            expect(state.lease).toBeLessThanOrEqual(old.lease);
            continue;
          }
          expect(state.window).toBe(WINDOW + ahead);
          expect(state.spent).toBeGreaterThanOrEqual(now.spent);
          expect(state.previousSpent).toBe(previousSpent);
          if (count < after.length - 2) expect(state.lease).toBe(0);
          if (count < after.length - 1) expect(state.boundUntilMs).toBe(0);
        }
        expect(after.at(-1)).toMatchObject({
          ...now,
          previousSpent,
          window: WINDOW + ahead,
          boundUntilMs: Math.min(now.boundUntilMs, now.deadlineMs),
        });
      },
    ),
  );
});

test('a thread that dies while it moves a counter to a window loses no usage that counts', () => {
  fc.assert(
    fc.property(states, fc.constantFrom(0, 4), fc.constantFrom(1, 2), (old, reserved, ahead) => {
      const [leases, slot] = slotWith(old, reserved);
      const after = statesOf(leases, slot, (memory) =>
        moveSlotToWindow(memory, slot, WINDOW + ahead),
      );
      for (const state of after) {
        const { window, lease, spent, boundUntilMs } = state;
        if (window === WINDOW) {
          // After two windows nothing looks at it.
          const used = spent + state.reserved;
          if (ahead === 1) expect(used).toBeGreaterThanOrEqual(old.spent + reserved);
          expect(lease).toBeLessThanOrEqual(old.lease);
        } else {
          expect({ window, lease, boundUntilMs, spent }).toEqual({
            ...{ window: WINDOW + ahead, lease: 0, boundUntilMs: 0, spent: 0 },
          });
          expect(state.previousSpent).toBe(ahead === 1 ? old.spent + reserved : 0);
          expect(state.isStored).toBe(false);
        }
      }
    }),
  );
});

test('the rate counts on from the window that a slot has left', () => {
  const [leases, slot] = slotWith({ spent: 50, rate: 3, rateSpent: 40 }, 0);
  moveSlotToWindow(leases.table, slot, WINDOW + 1);
  expect(stateOf(leases.table, slot)).toMatchObject({ spent: 0, rate: 3, rateSpent: -10 });
});

test('a thread that dies while it replaces a counter leaves an empty slot or the new counter', () => {
  const [leases, slot] = slotWith({ spent: 5, lease: 3, lentLimit: 40, others: 9 }, 2);
  // One whose buckets are the same.
  const other = { ...ID, h0: 99 };
  const after = crashStates(
    leases,
    slot,
    (memory) => clearSlot(memory, slot, other, 1, 2 * MINUTE, 77),
    (memory) => {
      const { h0, h3 } = readIdentity(memory, slot, newIdentity());
      return h3 === 0
        ? undefined
        : { h0, key: leases.table.readKey(slot), ...stateOf(memory, slot) };
    },
  );
  expect(after[0]).toMatchObject({ h0: ID.h0, spent: 5 });
  expect(after.slice(1, -1).filter((state) => state !== undefined)).toEqual([]);
  const clear = { spent: 0, previousSpent: 0, lease: 0, reserved: 0, others: 0, window: -1 };
  const sequences = { sequence: 77, firstSequence: 78 };
  expect(after.at(-1)).toMatchObject({ h0: 99, key: 2 * MINUTE, ...clear, ...sequences });
});

test('usage is never lower than before a store that is cut off', () => {
  for (const operate of [addUnreported, addReserved]) {
    const [leases, slot] = slotWith({ spent: 5, lease: 3, lentLimit: 40, others: 9 }, 2);
    const after = statesOf(leases, slot, (memory) => operate(memory, slot, 6));
    for (const { spent, lease, reserved } of after) {
      expect(spent).toBeGreaterThanOrEqual(5);
      expect({ lease, isReserved: reserved >= 2 }).toEqual({ lease: 3, isReserved: true });
    }
  }
});
