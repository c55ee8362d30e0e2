import { expect, test } from 'vitest';
import { NEVER, OUTCOME } from '../../../../src/core/decision.ts';
import { RULE } from '../../../../src/core/window-rules.ts';
import { isReady, recall, wake } from '../../../../src/engine/redis/counter/counter.ts';
import { pauseLeftMs } from '../../../../src/engine/redis/counter/pause.ts';
import { MESSAGE_STATUS, SERVED } from '../../../../src/engine/redis/scripts/protocol.ts';
import { LIMIT, MINUTE, NOW_MS, RECOVERY_PARK_MS, TestCounter, WINDOW } from './exchange.ts';

/** The end of the window, less what clocks may differ by. */
const END_MS = NOW_MS + MINUTE * (1 - 1 / 2_000);
const RESET = (WINDOW + 1) * MINUTE;
const { denied, allowed, unproven, shared } = SERVED;

/** A counter with a message under way that has these checks. */
function sent(...checks: Parameters<TestCounter['add']>[0][]): TestCounter {
  const counter = new TestCounter();
  for (const check of checks) counter.add(check);
  counter.compose();
  return counter;
}

test('an allowed check is spent, and a denied one is not, unless denials count', () => {
  const counter = sent({ cost: 2 }, { cost: 3 }, { cost: 5, countsDenied: true });
  const result = counter.answer({ served: [allowed, denied, denied] });
  expect(result).toMatchObject({ isDone: true, isDirty: false, reserved: 0 });
  expect(result.decisions.map(([, decision]) => decision.allowed)).toEqual([true, false, false]);
  expect(counter.state).toMatchObject({ spent: 7, lastLimit: LIMIT, isPinned: false });
  expect(counter.counter.sent).toBeUndefined();
});

test('a denial that counts, and that Redis has not counted, is reported', () => {
  const counter = sent({ cost: 5, countsDenied: true });
  counter.answer({ served: [unproven] });
  counter.compose(NOW_MS + 10);
  const result = counter.answer({ served: [unproven] }, NOW_MS + 10);
  expect(result).toMatchObject({ unprovenDenials: 1, isDirty: true });
  expect(counter.state.spent).toBe(5);
});

test('a check without a cost sets no limit', () => {
  const counter = sent({ cost: 0, limit: 30 });
  counter.answer({ served: [allowed] });
  expect(counter.state).toMatchObject({ spent: 0, lastLimit: 0 });
});

test('tokens for a batch are reserved, and restrict the lease to what both may serve', () => {
  const counter = sent(
    { cost: 4, limit: 70, isReserve: true },
    { cost: 2, limit: 90, isReserve: true, rule: RULE.sliding },
  );
  const result = counter.answer({ served: [allowed, allowed], othersDeducted: 10 });
  expect(result.reserved).toBe(6);
  expect(counter.state).toMatchObject({
    ...{ reserved: 6, spent: 0, lentLimit: 90, coversSliding: false, lastLimit: 90 },
  });
  expect(result.decisions.map(([, { remaining }]) => remaining)).toEqual([56, 74 - 40]);
  const sliding = sent({ cost: 4, isReserve: true, rule: RULE.sliding });
  sliding.answer({ served: [allowed] });
  expect(sliding.state.coversSliding).toBe(true);
});

test('without a slot, tokens for a batch are spent', () => {
  const counter = sent({ cost: 4, isReserve: true });
  expect(counter.answer({ served: [allowed] }, NOW_MS, { hasSlot: false }).reserved).toBe(0);
  expect(counter.state).toMatchObject({ spent: 4, reserved: 0 });
});

test('a check that its acceptor has withdrawn is not counted, and the next message says so', () => {
  const counter = sent({ cost: 2 }, { cost: 3 });
  counter.counter.sent!.checks[0].isWithdrawn = true;
  const result = counter.answer({ served: [allowed, denied] });
  expect(result.decisions).toHaveLength(1);
  expect(result.isDirty).toBe(true);
  expect(counter.state.spent).toBe(0);
  const other = sent({ cost: 2 });
  other.counter.sent!.checks[0].isWithdrawn = true;
  expect(other.answer({ served: [denied] }).isDirty).toBe(false);
});

test('a denial without proof is parked for 10 ms, and sent again every 4', () => {
  const counter = sent({});
  expect(counter.answer({ served: [unproven] }).decisions).toEqual([]);
  expect(counter.counter).toMatchObject({ retryMs: NOW_MS + 4 });
  expect(isReady(counter.counter, NOW_MS + 3.9)).toBe(false);
  expect(isReady(counter.counter, NOW_MS + 4)).toBe(true);
  counter.compose(NOW_MS + 8);
  expect(counter.answer({ served: [unproven] }, NOW_MS + 8).decisions).toEqual([]);
  expect(counter.counter.retryMs).toBe(NOW_MS + 10);
  counter.compose(NOW_MS + 10);
  const result = counter.answer({ served: [unproven] }, NOW_MS + 10);
  expect(result).toMatchObject({ unprovenDenials: 1, recoveryDenials: 0 });
  expect(result.decisions).toMatchObject([[{}, { allowed: false, outcome: OUTCOME.decided }]]);
});

test('parked checks keep their place before new ones', () => {
  const counter = sent({ cost: 1 }, { cost: 2 }, { cost: 3 });
  counter.add({ cost: 4 });
  counter.answer({ served: [unproven, allowed, unproven] });
  expect(counter.counter.waiting.map(({ check }) => check.cost)).toEqual([1, 3, 4]);
});

test('while usage is lost checks wait for the time of a recovery, and are sent less often', () => {
  const counter = sent({});
  const lost = { served: [unproven], isUnknown: true };
  expect(counter.answer(lost)).toMatchObject({ isUnknown: false, decisions: [] });
  expect(counter.counter.retryMs).toBe(NOW_MS + 4);
  counter.compose(NOW_MS + 50);
  expect(counter.answer(lost, NOW_MS + 50)).toMatchObject({ isUnknown: true, decisions: [] });
  expect(counter.counter.retryMs).toBe(NOW_MS + 54);
  counter.compose(NOW_MS + 51);
  counter.answer(lost, NOW_MS + 51);
  expect(counter.counter.retryMs).toBe(NOW_MS + RECOVERY_PARK_MS);
  counter.compose(NOW_MS + RECOVERY_PARK_MS);
  const result = counter.answer(lost, NOW_MS + RECOVERY_PARK_MS);
  expect(result).toMatchObject({ recoveryDenials: 1, unprovenDenials: 0 });
  expect(result.decisions).toMatchObject([[{}, { allowed: false }]]);
});

test('without an answer, and after a stale one, checks are sent again and the slot is dirty', () => {
  const unanswered = [undefined, { sequence: 1 }, { window: WINDOW - 1 }];
  for (const answer of [...unanswered, { status: MESSAGE_STATUS.stale }]) {
    const counter = sent({ cost: 2 });
    counter.state.window = WINDOW;
    counter.add({ cost: 3 });
    const result = counter.answer(answer && { served: [allowed], lent: 9, ...answer });
    expect(result).toMatchObject({ isDone: false, isDirty: true, decisions: [] });
    expect(counter.counter.waiting.map(({ check }) => check.cost)).toEqual([2, 3]);
    expect(counter.counter.retryMs).toBe(NOW_MS + 4);
    expect(counter.state).toMatchObject({ spent: 0, lease: 0, isPinned: false });
  }
  const withdrawn = sent({});
  withdrawn.counter.sent!.checks[0].isWithdrawn = true;
  withdrawn.answer(undefined);
  expect(withdrawn.counter.waiting).toEqual([]);
});

test('a correction gets the answer of any status, but none that is stale', () => {
  const correct = (answer: Parameters<TestCounter['answer']>[0]) => {
    const counter = new TestCounter();
    counter.state.window = WINDOW;
    counter.counter.corrections.push({ refund: 1, refundWindow: WINDOW, recalls: false });
    counter.compose();
    return counter.answer(answer);
  };
  expect(correct({ refunded: 1 })).toMatchObject({ isDone: true, answer: { refunded: 1 } });
  const retry = { status: MESSAGE_STATUS.retryRefund };
  expect(correct(retry)).toMatchObject({ isDone: true, answer: retry });
  const full = { status: MESSAGE_STATUS.full };
  expect(correct(full)).toMatchObject({ isDone: false, answer: full });
  expect(correct({ window: WINDOW - 1 }).answer).toBeUndefined();
  expect(correct(undefined).answer).toBeUndefined();
});

test('a refund lowers what is spent', () => {
  const counter = sent({ cost: 5 });
  counter.answer({ served: [allowed] });
  counter.exchange({ refunded: 2 });
  expect(counter.state.spent).toBe(3);
});

test('checks of a window that Redis has not reached are denied after 10 ms', () => {
  const behind = { status: MESSAGE_STATUS.recovering };
  const counter = sent({}, { rule: RULE.sliding }, { cost: LIMIT + 1 });
  expect(counter.answer(behind).decisions).toEqual([]);
  expect(counter.counter.waiting.map(({ parkedMs }) => parkedMs)).toEqual([NOW_MS, NOW_MS, NOW_MS]);
  counter.compose(NOW_MS + 9);
  expect(counter.answer(behind, NOW_MS + 9).decisions).toEqual([]);
  counter.compose(NOW_MS + 10);
  const { decisions, recoveryDenials } = counter.answer(behind, NOW_MS + 10);
  expect(recoveryDenials).toBe(3);
  const denial = { allowed: false, remaining: 0, reset: RESET, outcome: OUTCOME.decided };
  expect(decisions.map(([, decision]) => decision)).toEqual([
    { ...denial, passesAt: RESET },
    { ...denial, passesAt: RESET + MINUTE },
    { ...denial, passesAt: NEVER },
  ]);
  expect(counter.counter.waiting).toEqual([]);
});

test('an answer of the next window ends the lease, and remembers what was spent before', () => {
  const counter = sent({ cost: 5 });
  counter.answer({ served: [allowed], lent: 10, others: 3, othersDeducted: 4 });
  counter.state.reserved = 2;
  counter.state.lease = 8;
  counter.counter.mustSync = true;
  counter.compose();
  counter.answer({ window: WINDOW + 1, others: 1, othersDeducted: 2, previousUsage: 20 });
  expect(counter.state).toMatchObject({
    ...{ window: WINDOW + 1, spent: 0, previousSpent: 7, lease: 0, reserved: 0, reported: 0 },
    ...{ others: 1, othersDeducted: 2, previousUsage: 20 },
  });
});

test('a lease ends with its window, and one that is kept ends no later than before', () => {
  const counter = sent({});
  counter.answer({ served: [allowed], lent: 10 });
  expect(counter.state).toMatchObject({ deadlineMs: END_MS, lease: 10, lentLimit: LIMIT });
  counter.counter.mustSync = true;
  counter.compose(NOW_MS + 10);
  counter.answer({}, NOW_MS + 10);
  expect(counter.state.deadlineMs).toBe(END_MS);
  counter.state.lease = 0;
  counter.exchange({}, NOW_MS + 20);
  expect(counter.state.deadlineMs).toBe(END_MS + 20);
  counter.state.lease = 5;
  counter.counter.mustSync = true;
  counter.compose(NOW_MS + 30);
  counter.answer({ leftUs: 1_000_000 }, NOW_MS + 30);
  expect(counter.state.deadlineMs).toBeCloseTo(NOW_MS + 30 + 999.5, 6);
});

test('the deadline counts from when the message was sent', () => {
  const counter = sent({});
  counter.answer({ served: [allowed], lent: 1 }, NOW_MS + 5, { sentMs: NOW_MS });
  expect(counter.state.deadlineMs).toBe(END_MS);
});

test('a lease that comes with a pause ends a second later, and no answer in the window delays that', () => {
  const counter = new TestCounter();
  counter.counter.prefetch = { limit: LIMIT, isSliding: true };
  expect(counter.exchange({ lent: 4, pauseMs: 150 }).slidingLeaseEndMs).toBe(NOW_MS + 1_000);
  expect(counter.state.deadlineMs).toBe(NOW_MS + 1_000);
  expect(pauseLeftMs(counter.state.pause, NOW_MS)).toBe(150);
  expect(counter.exchange({}, NOW_MS + 500).slidingLeaseEndMs).toBe(0);
  expect(counter.state).toMatchObject({ deadlineMs: NOW_MS + 1_000, pause: 0 });
});

test('a pause without a lease shortens nothing: known usage denies for as long as before', () => {
  const counter = new TestCounter();
  expect(counter.exchange({ pauseMs: 150, lentLimit: 60 }).slidingLeaseEndMs).toBe(0);
  expect(counter.state.deadlineMs).toBe(END_MS);
  expect(counter.state.lentLimit).toBe(60);
});

test('a pause for a lower limit than that of the tokens that are held is not kept', () => {
  const counter = new TestCounter();
  counter.exchange({ lent: 10, lentLimit: 2 * LIMIT });
  counter.exchange({ pauseMs: 150 });
  expect(counter.state).toMatchObject({ pause: 0, lentLimit: 2 * LIMIT });
  const reserving = new TestCounter();
  Object.assign(reserving.state, { window: WINDOW, reserved: 1 });
  reserving.exchange({ pauseMs: 150 });
  expect(reserving.state.pause).toBe(0);
});

test('the end of a lease for sliding windows is told, also where it ends sooner', () => {
  const counter = sent({ rule: RULE.sliding });
  expect(counter.answer({ served: [allowed], lent: 5 }).slidingLeaseEndMs).toBe(END_MS);
  counter.counter.mustSync = true;
  counter.compose();
  expect(counter.answer({ pauseMs: 100 }).slidingLeaseEndMs).toBe(NOW_MS + 1_000);
  const fixed = sent({});
  expect(fixed.answer({ served: [allowed], lent: 5 }).slidingLeaseEndMs).toBe(0);
});

test('a lease of one token and a pause of 1 ms are told, but not a pause without a lease', () => {
  const endMs = (lease: number, answer: object) => {
    const counter = new TestCounter();
    counter.state.window = WINDOW;
    Object.assign(counter.state, { lease, deadlineMs: END_MS, coversSliding: true });
    counter.counter.mustSync = true;
    return counter.exchange(answer).slidingLeaseEndMs;
  };
  expect(endMs(0, { lent: 1 })).toBe(END_MS);
  expect(endMs(1, { pauseMs: 1 })).toBe(NOW_MS + 1_000);
  expect(endMs(0, { pauseMs: 1 })).toBe(0);
  expect(endMs(1, {})).toBe(0);
});

test('without leases nothing is kept for later checks', () => {
  const counter = sent({});
  counter.answer({ served: [allowed], lent: 5, pauseMs: 9 }, NOW_MS, { usesLeases: false });
  expect(counter.state).toMatchObject({ lease: 0, pause: 0, boundUntilMs: 0, prefetchBelow: 0 });
});

test('known usage denies for a twelfth of the window, for 1 to 5 s, where Redis allows it', () => {
  const boundMs = (durationMs: number, mayDeny = true) => {
    const counter = new TestCounter(durationMs);
    counter.exchange({ mayDeny });
    return counter.state.boundUntilMs;
  };
  expect(boundMs(2_000)).toBe(NOW_MS + 1_000);
  expect(boundMs(24_000)).toBe(NOW_MS + 2_000);
  expect(boundMs(MINUTE * 60)).toBe(NOW_MS + 5_000);
  expect(boundMs(MINUTE, false)).toBe(0);
});

test('a wake-up during a message ends denials by known usage after 4 ms', () => {
  const counter = sent({});
  wake(counter.counter);
  counter.answer({ served: [denied] });
  expect(counter.state.boundUntilMs).toBe(NOW_MS + 4);
  expect(counter.counter.isWoken).toBe(false);
});

test('a busy counter wants more tokens when the lease suffices for 2.5 ms', () => {
  const counter = new TestCounter();
  counter.state.rate = 2_000;
  counter.exchange();
  expect(counter.state.prefetchBelow).toBe(5);
  counter.state.rate = 100;
  counter.state.rateFromMs = 0;
  counter.exchange();
  expect(counter.state.prefetchBelow).toBe(0.25);
  counter.state.rate = 99;
  counter.state.rateFromMs = 0;
  counter.exchange();
  expect(counter.state.prefetchBelow).toBe(0);
});

test('a recall that came later than the message is answered by the next one', () => {
  const lent = sent({});
  recall(lent.counter);
  lent.answer({ served: [denied], lent: 5 });
  expect(lent.counter).toMatchObject({ mustReturn: true, isRecalled: false });
  const spent = sent({});
  recall(spent.counter);
  spent.answer({ served: [allowed] });
  expect(spent.counter.mustReturn).toBe(true);
  const settled = sent({});
  recall(settled.counter);
  settled.answer({ served: [denied] });
  expect(settled.counter).toMatchObject({ mustReturn: false, isRecalled: false });
  const unanswered = sent({});
  recall(unanswered.counter);
  unanswered.answer(undefined);
  expect(unanswered.counter).toMatchObject({ mustReturn: true, isRecalled: false });
});

test('tokens that a batch kept at a return are returned later', () => {
  const counter = sent({});
  counter.answer({ served: [allowed], lent: 5 });
  counter.counter.mustReturn = true;
  counter.compose();
  expect(counter.answer({}).returnsLater).toBe(false);
  counter.state.reserved = 2;
  counter.counter.mustReturn = true;
  counter.compose();
  expect(counter.answer({}).returnsLater).toBe(true);
  counter.counter.mustSync = true;
  counter.compose();
  expect(counter.answer({}).returnsLater).toBe(false);
});

test('a request for a report in an answer is answered at once', () => {
  const counter = sent({});
  counter.answer({ served: [unproven], isUnknown: true, report: 33 });
  expect(counter.counter).toMatchObject({ report: 33, retryMs: NOW_MS });
});

test('tokens that are allowed while usage may be missing are counted, with those of the lease', () => {
  const counter = sent({ cost: 2 }, { cost: 3 });
  const served = [allowed, denied];
  expect(counter.answer({ served, lent: 5, isMissing: true }).openedTokens).toBe(7);
  const known = sent({ cost: 2 });
  expect(known.answer({ served: [allowed], lent: 5 }).openedTokens).toBe(0);
});

test('an inherited counter is reported as such until its window has ended in Redis', () => {
  const counter = new TestCounter();
  Object.assign(counter.state, { isInherited: true, window: WINDOW });
  const inherits = (answer: Parameters<TestCounter['answer']>[0]) => {
    const { inherits } = counter.compose(NOW_MS, { inheritsFrom: 2 });
    counter.answer(answer);
    return inherits;
  };
  expect(inherits(undefined)).toBe(2);
  expect(inherits({})).toBe(2);
  // Another server may have taken over, which has only the record of the process before.
  expect(inherits({ window: WINDOW + 1 })).toBe(2);
  expect(inherits({ window: WINDOW + 1 })).toBe(0);
});

test('usage after the message, in a window that has ended, is reported for sliding windows', () => {
  const late = (rule: 0 | 1, spentLater: number) => {
    const counter = sent({ rule: rule === 1 ? RULE.sliding : RULE.fixed });
    counter.answer({ served: [denied] });
    counter.add({ rule: rule === 1 ? RULE.sliding : RULE.fixed });
    counter.compose();
    counter.state.spent += spentLater;
    return counter.answer({ window: WINDOW + 1, served: [denied] }).isDirty;
  };
  expect(late(1, 1)).toBe(true);
  expect(late(1, 0)).toBe(false);
  expect(late(0, 1)).toBe(false);
});

test('the window before is that of the answer where it shows it, else used by somebody', () => {
  const fixed = sent({});
  fixed.state.window = WINDOW;
  fixed.counter.sent!.message.window = WINDOW;
  fixed.answer({ served: [denied], previousUsage: 0, previousKnownUsage: 0 });
  expect(fixed.state).toMatchObject({ previousUsage: 1, previousKnownUsage: 0 });
  const sliding = sent({ rule: RULE.sliding });
  sliding.answer({ served: [denied], previousUsage: 9, previousKnownUsage: 8 });
  expect(sliding.state).toMatchObject({ previousUsage: 9, previousKnownUsage: 8 });

  const reporting = new TestCounter();
  Object.assign(reporting.state, { window: WINDOW, previousSpent: 3 });
  reporting.counter.mustSync = true;
  expect(reporting.compose().hasPrevious).toBe(true);
  reporting.answer({ previousUsage: 9, previousKnownUsage: 8 });
  expect(reporting.state).toMatchObject({ previousUsage: 9, previousKnownUsage: 8 });

  const inheriting = new TestCounter();
  Object.assign(inheriting.state, { window: WINDOW, isInherited: true });
  inheriting.add();
  inheriting.compose(NOW_MS, { inheritsFrom: 2 });
  inheriting.answer({ served: [denied], previousUsage: 9, previousKnownUsage: 8 });
  expect(inheriting.state).toMatchObject({ previousUsage: 9, previousKnownUsage: 8 });
});

test('the decision counts what others hold, and what the window before carries over', () => {
  const counter = sent({ cost: 2 }, { cost: 3, rule: RULE.sliding });
  const left = { leftUs: (MINUTE / 2) * 1_000, previousUsage: 41 };
  const { decisions } = counter.answer({ served: [allowed, allowed], othersDeducted: 10, ...left });
  expect(decisions.map(([, { remaining }]) => remaining)).toEqual([88, 100 - 15 - 20]);
  expect(decisions[0][1]).toMatchObject({ reset: RESET, passesAt: 0, outcome: OUTCOME.decided });
  // Refunds of usage of other machines, of which Redis has lost the usage.
  const refunded = sent({ cost: 2, rule: RULE.sliding });
  const negative = refunded.answer({ ...left, served: [allowed], previousUsage: -50 });
  expect(negative.decisions[0][1].remaining).toBe(98);
});

test('a denial says when the check passes, but not a time before the decision', () => {
  const left = { leftUs: (MINUTE / 2) * 1_000, previousUsage: 40 };
  const decide = (served: number, more: object, rule: 0 | 1 = 0, cost = 60) => {
    const counter = sent({ cost, rule: rule === 1 ? RULE.sliding : RULE.fixed });
    return counter.answer({ served: [served], ...left, ...more }).decisions[0][1];
  };
  expect(decide(denied, { othersDeducted: 50 })).toMatchObject({ passesAt: RESET, remaining: 50 });
  const sliding = decide(denied, { othersDeducted: 30 }, 1);
  expect(sliding.remaining).toBe(0);
  expect(sliding.passesAt).toBeGreaterThanOrEqual(RESET - MINUTE / 2);
  expect(decide(denied, { othersDeducted: 0 }, 1, 10).passesAt).toBe(RESET - MINUTE / 2);
  expect(decide(shared, { othersDeducted: 70 }, 1)).toMatchObject({
    ...{ passesAt: RESET - MINUTE / 2 + 1_000, outcome: OUTCOME.shared },
  });
  const doubted = { wasWrittenOff: true };
  expect(decide(denied, doubted).outcome).toBe(OUTCOME.doubted);
  expect(decide(shared, doubted, 1).outcome).toBe(OUTCOME.doubted);
  expect(decide(allowed, doubted).outcome).toBe(OUTCOME.decided);
});
