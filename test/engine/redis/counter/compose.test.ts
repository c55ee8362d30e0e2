import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../../src/core/constants.ts';
import { RULE } from '../../../../src/core/window-rules.ts';
import { composeEmptyReport } from '../../../../src/engine/redis/counter/compose.ts';
import { isIdle, isReady, recall, wake } from '../../../../src/engine/redis/counter/counter.ts';
import { moveStateToWindow } from '../../../../src/engine/redis/counter/lease-state.ts';
import { NO_WINDOW, SERVED } from '../../../../src/engine/redis/scripts/protocol.ts';
import {
  CHECKS_PER_MESSAGE,
  LEASED_LIMIT_MIN,
} from '../../../../src/engine/redis/scripts/protocol-constants.ts';
import { LIMIT, MINUTE, NOW_MS, TestCounter, WINDOW } from './exchange.ts';

/** A counter with a lease of 10 tokens, of which pending batches have reserved 2. */
function leased(): TestCounter {
  const counter = new TestCounter();
  counter.exchange({ lent: 10 });
  counter.state.reserved = 2;
  return counter;
}

test('a message with checks takes the lease, and keeps what batches have reserved', () => {
  const counter = leased();
  counter.add();
  expect(counter.compose()).toMatchObject({ kept: 2, wantsLease: true, window: WINDOW });
  expect(counter.state).toMatchObject({ lease: 0, reserved: 2, isPinned: true });
});

test('a report keeps the lease, a return and a correction take it', () => {
  const reporting = leased();
  reporting.counter.mustSync = true;
  expect(reporting.compose()).toMatchObject({ kept: 12, wantsLease: false });
  expect(reporting.counter.sent).toMatchObject({ isReturn: false });
  const returning = leased();
  returning.counter.mustReturn = true;
  expect(returning.compose()).toMatchObject({ kept: 2, wantsLease: false });
  expect(returning.counter.sent).toMatchObject({ isReturn: true });
  const correcting = leased();
  const correction = { refund: 3, refundWindow: WINDOW, recalls: true };
  correcting.counter.corrections.push(correction);
  correcting.add();
  expect(correcting.compose()).toMatchObject({
    kept: 2,
    wantsLease: false,
    checks: [],
    ...correction,
  });
  expect(correcting.counter.sent).toMatchObject({ correction });
  expect(correcting.counter.waiting).toHaveLength(1);
});

test('corrections and checks that wait take turns', () => {
  const counter = new TestCounter();
  const correction = { refund: 1, refundWindow: WINDOW, recalls: false };
  counter.counter.corrections.push(correction, correction, correction);
  counter.add();
  const next = () => {
    const { refund, checks } = counter.compose();
    counter.answer({ served: checks.map(() => SERVED.allowed) });
    return { refund, checks: checks.length };
  };
  expect(next()).toEqual({ refund: 1, checks: 0 });
  expect(next()).toEqual({ refund: 0, checks: 1 });
  expect(next()).toEqual({ refund: 1, checks: 0 });
  expect(next()).toEqual({ refund: 1, checks: 0 });
});

test('a message without a refund names no window for it', () => {
  const counter = new TestCounter();
  counter.add();
  expect(counter.compose()).toMatchObject({ refund: 0, refundWindow: NO_WINDOW, recalls: false });
});

test('a lease is wanted by checks and prefetches, with limits that have leases', () => {
  const wants = (prepare: (counter: TestCounter) => void) => {
    const counter = leased();
    prepare(counter);
    return counter.compose().wantsLease;
  };
  expect(wants((c) => c.add())).toBe(true);
  expect(wants((c) => c.add({ limit: LEASED_LIMIT_MIN }))).toBe(true);
  expect(wants((c) => c.add({ limit: LEASED_LIMIT_MIN - 1 }))).toBe(false);
  const prefetch = { limit: LEASED_LIMIT_MIN, isSliding: false };
  expect(wants((c) => Object.assign(c.counter, { prefetch }))).toBe(true);
  const small = { ...prefetch, limit: LEASED_LIMIT_MIN - 1 };
  expect(wants((c) => Object.assign(c.counter, { prefetch: small }))).toBe(false);
  expect(wants((c) => Object.assign(c.counter, { prefetch, mustReturn: true }))).toBe(false);
  expect(wants((c) => Object.assign(c.counter, { mustSync: true }))).toBe(false);
  expect(
    wants((c) => {
      c.add();
      c.hasSlot = false;
    }),
  ).toBe(false);
  expect(
    wants((c) => {
      c.add();
      c.usesLeases = false;
    }),
  ).toBe(false);
});

test('a prefetch names its limit, unless checks do', () => {
  const counter = leased();
  counter.counter.prefetch = { limit: 70, isSliding: true };
  expect(counter.compose()).toMatchObject({ lastLimit: 70, isSliding: true, checks: [] });
  const other = leased();
  other.state.lastLimit = 90;
  other.counter.prefetch = { limit: 70, isSliding: false };
  other.add({ limit: 80 });
  expect(other.compose()).toMatchObject({ lastLimit: 90, isSliding: false });
});

test('a message is for sliding windows if a check or the lease is', () => {
  const counter = leased();
  counter.add();
  counter.add({ rule: RULE.sliding });
  expect(counter.compose().isSliding).toBe(true);
  const covering = leased();
  covering.state.coversSliding = true;
  covering.add();
  expect(covering.compose().isSliding).toBe(true);
});

test('reports store the window before where it was used', () => {
  const previous = (changes: object, report: object) => {
    const counter = leased();
    Object.assign(counter.state, { previousSpent: 0, previousKnownUsage: 0, ...changes });
    Object.assign(counter.counter, { mustReturn: true, ...report });
    return counter.compose().hasPrevious;
  };
  expect(previous({ previousSpent: 1 }, { mustSync: true })).toBe(true);
  expect(previous({ previousSpent: -1 }, { report: 5 })).toBe(true);
  expect(previous({ previousKnownUsage: 1 }, { report: 5 })).toBe(true);
  expect(previous({}, { report: 5 })).toBe(false);
  expect(previous({ previousSpent: 1 }, {})).toBe(false);
});

test('sequence numbers rise, by the time or else by one', () => {
  const counter = new TestCounter();
  counter.add();
  const first = counter.compose(NOW_MS).sequence;
  expect(first).toBe(NOW_MS * 1_000);
  counter.answer(undefined);
  expect(counter.compose(NOW_MS).sequence).toBe(first + 1);
  counter.answer(undefined);
  expect(counter.compose(NOW_MS + 1.0005).sequence).toBe(first + 1_000);
});

test('a message carries so many checks, and the others wait for its answer', () => {
  const counter = new TestCounter();
  for (let n = 0; n < CHECKS_PER_MESSAGE + 1; n++) counter.add({ cost: n });
  const { checks } = counter.compose();
  expect(checks.map(({ cost }) => cost)).toEqual([...Array(CHECKS_PER_MESSAGE).keys()]);
  expect(counter.counter.sent!.checks.every(({ wasSent }) => wasSent)).toBe(true);
  expect(counter.counter.waiting.map(({ wasSent }) => wasSent)).toEqual([false]);
  expect(isReady(counter.counter, NOW_MS)).toBe(false);
});

test('a message ends what it was for', () => {
  const { counter } = leased();
  Object.assign(counter, { mustSync: true, mustReturn: true, report: 4, retryMs: 5 });
  counter.prefetch = { limit: LIMIT, isSliding: false };
  const test = leased();
  Object.assign(test.counter, counter);
  test.compose();
  expect(test.counter).toMatchObject({
    ...{ mustSync: false, mustReturn: false, report: 0, prefetch: undefined },
    retryMs: Number.POSITIVE_INFINITY,
  });
});

test('only a counter that goes on from the process before names its worker there', () => {
  const counter = leased();
  counter.add();
  expect(counter.compose(NOW_MS, { inheritsFrom: 3 }).inherits).toBe(0);
  counter.answer(undefined);
  counter.state.isInherited = true;
  expect(counter.compose(NOW_MS, { inheritsFrom: 3 }).inherits).toBe(3);
});

test('the rate follows usage, faster for shorter windows', () => {
  const rateAfter = (durationMs: number, passedMs: number) => {
    const counter = new TestCounter(durationMs);
    counter.exchange();
    counter.state.spent += 1_000;
    counter.counter.mustSync = true;
    return counter.compose(NOW_MS + passedMs).rate;
  };
  // Of 1 000 tokens in 1 s: 1 - 1/e after the averaging time.
  expect(rateAfter(4_000, 1_000)).toBeCloseTo(1_000 * (1 - Math.exp(-1)), 6);
  expect(rateAfter(MINUTE, 1_000)).toBeCloseTo(1_000 * (1 - Math.exp(-1 / 15)), 6);
  expect(rateAfter(60 * MINUTE, 1_000)).toBeCloseTo(1_000 * (1 - Math.exp(-1 / 15)), 6);
});

describe('the numbers of a message are exact integers', () => {
  const isExact = (numbers: number[]) => numbers.map(Math.floor).every(Number.isSafeInteger);

  test('after usage of any rate', () => {
    const counter = new TestCounter(1_000);
    counter.exchange();
    counter.state.spent = AMOUNT_MAX;
    expect(isExact([counter.compose(NOW_MS + 1).rate])).toBe(true);
  });

  test('in a window after one with more usage than a number can say', () => {
    const { state } = leased();
    Object.assign(state, { spent: AMOUNT_MAX, others: AMOUNT_MAX });
    moveStateToWindow(state, WINDOW + 1);
    expect(isExact([state.previousKnownUsage, state.previousUsage])).toBe(true);
  });

  test('after refunds of what other machines have used', () => {
    const counter = new TestCounter();
    counter.exchange({ refunded: AMOUNT_MAX });
    counter.exchange({ refunded: AMOUNT_MAX });
    expect(isExact([counter.compose().spent])).toBe(true);
  });
});

test('a refund and a first message make no rate', () => {
  const counter = new TestCounter();
  counter.state.spent = 500;
  expect(counter.exchange().isDone).toBe(true);
  expect(counter.state.rate).toBe(0);
  counter.state.spent -= 100;
  counter.exchange({}, NOW_MS + 10);
  expect(counter.state.rate).toBe(0);
});

test('a report of a worker without the counter tells nothing but that', () => {
  const message = composeEmptyReport({ h0: 1, h1: 2, h2: 3, h3: 4 }, MINUTE, 17, NOW_MS);
  expect(message).toMatchObject({
    ...{ report: 17, window: NO_WINDOW, spent: 0, kept: 0, wantsLease: false, checks: [] },
    ...{ sequence: NOW_MS * 1_000 + 1, firstSequence: NOW_MS * 1_000, durationMs: MINUTE },
  });
});

test('a counter is ready for what is new, or due', () => {
  const { counter } = new TestCounter();
  expect(isIdle(counter)).toBe(true);
  expect(isReady(counter, NOW_MS)).toBe(false);
  for (const duty of [{ mustSync: true }, { mustReturn: true }, { report: 1 }]) {
    const other = new TestCounter();
    Object.assign(other.counter, duty);
    expect([isReady(other.counter, NOW_MS), isIdle(other.counter)]).toEqual([true, false]);
  }
  const waiting = new TestCounter();
  waiting.add();
  expect(isReady(waiting.counter, NOW_MS)).toBe(true);
  waiting.compose();
  expect([isReady(waiting.counter, NOW_MS), isIdle(waiting.counter)]).toEqual([false, false]);
  waiting.answer(undefined);
  expect([isReady(waiting.counter, NOW_MS), isIdle(waiting.counter)]).toEqual([false, false]);
  expect(isReady(waiting.counter, NOW_MS + 4)).toBe(true);
});

test('checks that do not fit in a message with parked ones wait until these are due', () => {
  const counter = new TestCounter();
  for (let n = 0; n <= CHECKS_PER_MESSAGE; n++) counter.add();
  counter.exchange({ served: Array(CHECKS_PER_MESSAGE).fill(SERVED.unproven) });
  expect(counter.counter.waiting).toHaveLength(CHECKS_PER_MESSAGE + 1);
  expect(isReady(counter.counter, NOW_MS + 3)).toBe(false);
  expect(isReady(counter.counter, NOW_MS + 4)).toBe(true);
  // One that fits is sent at once, with those that wait.
  counter.counter.waiting.shift();
  expect(isReady(counter.counter, NOW_MS)).toBe(true);
});

test('a recall returns the lease at once, or with the message after the one under way', () => {
  const idle = leased();
  recall(idle.counter);
  expect(idle.counter).toMatchObject({ mustReturn: true, isRecalled: false });
  const sending = leased();
  sending.add();
  sending.compose();
  recall(sending.counter);
  expect(sending.counter).toMatchObject({ mustReturn: false, isRecalled: true });
});

test('a wake-up sends parked checks, and is remembered while a message is under way', () => {
  const counter = new TestCounter();
  counter.add();
  counter.compose();
  counter.answer(undefined);
  wake(counter.counter);
  expect(counter.counter.isWoken).toBe(false);
  expect(isReady(counter.counter, NOW_MS)).toBe(true);
  counter.compose();
  wake(counter.counter);
  expect(counter.counter.isWoken).toBe(true);
});
