import { expect, test } from 'vitest';
import { newLeaseState } from '../../../src/engine/redis/counter/lease-state.ts';
import {
  changeState,
  composeFromSlot,
  takeAnswerIntoSlot,
} from '../../../src/engine/redis/lease-exchange.ts';
import { NO_SLOT } from '../../../src/engine/table/layout.ts';
import { counterKey } from '../../../src/engine/windows/registry.ts';
import {
  brokenInvariants,
  MINUTE,
  START_MS,
  TestLeases,
  WINDOW,
} from '../../support/lease-tables.ts';
import { TestCounter } from './counter/exchange.ts';

const CONTEXT = { nowMs: START_MS, usesLeases: true, inheritsFrom: 0 };

/** A counter whose slot has a lease of 7 tokens. */
function leased() {
  const machine = new TestCounter(MINUTE);
  const { counter } = machine;
  const { table } = new TestLeases();
  const key = counterKey(0, MINUTE);
  const of = { counter, key, namespaceTag: 1 };
  machine.add();
  composeFromSlot(table, of, CONTEXT);
  counter.sent = undefined;
  const lease = { window: WINDOW, lease: 7, lentLimit: 100, deadlineMs: START_MS + MINUTE };
  changeState(table, counter.identity, key, (state) => Object.assign(state, lease));
  return { machine, table, of };
}

test('a message without checks returns the lease, which leaves the slot', () => {
  const { table, of } = leased();
  of.counter.mustReturn = true;
  expect(composeFromSlot(table, of, CONTEXT)).toMatchObject({ returned: 7, message: { kept: 0 } });
  const state = newLeaseState();
  const slot = table.find(of.counter.identity, of.key);
  expect(slot).not.toBe(NO_SLOT);
  table.read(slot, state);
  expect(state.lease).toBe(0);
});

test('a message with checks, and one of a counter that keeps its lease, return none', () => {
  const { machine, table, of } = leased();
  expect(composeFromSlot(table, of, CONTEXT)).toMatchObject({ returned: 0, message: { kept: 7 } });
  of.counter.sent = undefined;
  of.counter.mustReturn = true;
  machine.add();
  expect(composeFromSlot(table, of, CONTEXT).returned).toBe(0);
});

test('a message of a counter without a slot says that nothing is used', () => {
  const { table, of } = leased();
  const other = { ...of, key: counterKey(0, 2 * MINUTE) };
  expect(composeFromSlot(table, other, CONTEXT)).toMatchObject({
    ...{ returned: 0, message: { kept: 0, spent: 0 } },
  });
});

test('no lock is held after a message, an answer, or a change', () => {
  const { table, of } = leased();
  composeFromSlot(table, of, CONTEXT);
  expect(brokenInvariants(table)).toEqual([]);
  takeAnswerIntoSlot(table, of, undefined, {
    ...{ sentMs: START_MS, nowMs: START_MS, redisMs: WINDOW * MINUTE, usesLeases: true },
    ...{ recoveryParkMs: 0, isOpen: () => true, claim: () => true },
  });
  expect(brokenInvariants(table)).toEqual([]);
  changeState(table, of.counter.identity, of.key, () => {});
  expect(brokenInvariants(table)).toEqual([]);
});
