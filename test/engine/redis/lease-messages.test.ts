import { expect, test } from 'vitest';
import { pauseLeftMs } from '../../../src/engine/redis/lease-layout.ts';
import { applyAnswer, composeMessage } from '../../../src/engine/redis/lease-messages.ts';
import { type LeaseState, newLeaseState } from '../../../src/engine/redis/lease-slot.ts';
import { type CounterAnswer, NO_WINDOW } from '../../../src/engine/redis/scripts/protocol.ts';
import { checkOf } from '../../support/engines.ts';

const DURATION_MS = 60_000;
const LIMIT = 100;
/** Monotonic ms. */
const NOW_MS = 5_000_000;
/** The end of the window, less what clocks may differ by. */
const END_MS = NOW_MS + DURATION_MS * (1 - 1 / 2_000);
const ANSWER: Omit<CounterAnswer, 'sequence'> = {
  ...{ status: 0, window: 7, leftUs: DURATION_MS * 1_000, isStored: true, mayDeny: true },
  ...{ pauseMs: 0, others: 0, othersDeducted: 0, previousUse: 40, previousKnownUse: 40 },
  ...{ lent: 0, lentLimit: LIMIT, recall: 0, refunded: 0, writtenOff: 0 },
  ...{ isUnknown: false, isMissing: false, wasWrittenOff: false, report: 0, served: [] },
};

function exchange(state: LeaseState, answer: Partial<CounterAnswer>, nowMs = NOW_MS): void {
  const purpose = {
    ...{ checks: [], takesLease: false, wantsLease: true, isSliding: true, hasPrevious: false },
    ...{ report: 0, inherits: 0, recalls: false, refund: 0, refundWindow: NO_WINDOW },
  };
  const { identity } = checkOf('a');
  const message = composeMessage(identity, DURATION_MS, state, purpose, nowMs);
  const full = { ...ANSWER, ...answer, sequence: message.sequence };
  expect(applyAnswer(state, message, full, { sentMs: nowMs, nowMs }, true)).toBe(true);
}

test('a lease that comes with a pause ends a second later, and no answer in the window delays that', () => {
  const state = newLeaseState();
  exchange(state, { lent: 4, pauseMs: 150 });
  expect(state.deadlineMs).toBe(NOW_MS + 1_000);
  expect(pauseLeftMs(state.pause, NOW_MS)).toBe(150);
  exchange(state, {}, NOW_MS + 500);
  expect(state).toMatchObject({ deadlineMs: NOW_MS + 1_000, pause: 0 });
});

test('a pause without a lease shortens nothing: known usage denies for as long as before', () => {
  const state = newLeaseState();
  exchange(state, { pauseMs: 150 });
  expect(state.deadlineMs).toBeGreaterThanOrEqual(END_MS);
});

test('a pause for a lower limit than that of the tokens that are held is not kept', () => {
  const state = newLeaseState();
  exchange(state, { lent: 10, lentLimit: 2 * LIMIT });
  exchange(state, { lent: 0, pauseMs: 150 });
  expect(state).toMatchObject({ pause: 0, lentLimit: 2 * LIMIT });
  const reserving = { ...newLeaseState(), window: 7, reserved: 1 };
  exchange(reserving, { pauseMs: 150 });
  expect(reserving.pause).toBe(0);
});
