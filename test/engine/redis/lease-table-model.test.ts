/**
 * Random operations of acceptors and a worker on few counters, beside a ledger of what was spent
 * and of what Redis has deducted.
 */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NEVER, OUTCOME } from '../../../src/core/decision.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import {
  addToLease,
  type LeaseState,
  newLeaseState,
} from '../../../src/engine/redis/counter/lease-state.ts';
import { VERDICT } from '../../../src/engine/redis/lease-table.ts';
import { trialCount } from '../../support/guarantees.ts';
import {
  brokenInvariants,
  MINUTE,
  OFFSET_MS,
  START_MS,
  TestLeases,
  testIdentity,
} from '../../support/lease-tables.ts';

const COUNTERS = 2;
const UNCERTAINTY_MS = 3;

const check = fc.record({
  limit: fc.constantFrom(0, 20, 40, 100),
  cost: fc.constantFrom(0, 1, 2, 5, 30),
  rule: fc.constantFrom(RULE.fixed, RULE.sliding),
});
const answer = fc.record({
  lent: fc.constantFrom(0, 1, 5, 20),
  lentLimit: fc.constantFrom(20, 40, 100),
  coversSliding: fc.boolean(),
  others: fc.constantFrom(-3, 0, 10, 35, 90),
  previousUsage: fc.constantFrom(0, 10, 60),
  unproven: fc.constantFrom(0, 10),
  served: fc.constantFrom(0, 0, 3),
  takesLease: fc.boolean(),
  prefetchBelow: fc.constantFrom(0, 1, 5, 8),
});
const step = fc.record({
  counter: fc.nat(COUNTERS - 1),
  /** Most steps are in one window, so that a reservation has its end there. */
  passedMs: fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 1, 500, 20_000, MINUTE),
  kind: fc.constantFrom(
    ...(['decide', 'decide', 'decide', 'reserve', 'reserve', 'async', 'local'] as const),
    ...(['denied', 'answer', 'answer', 'answer', 'commit', 'commit', 'abort', 'late'] as const),
  ),
  check,
  answer,
});

/** What the test knows of a counter. */
interface Ledger {
  window: number;
  /** Tokens that Redis has deducted for this machine in the window, less those returned. */
  deducted: number;
  /** Tokens that were used in the window, and in the one before. */
  spent: number;
  previousSpent: number;
  reservations: { window: number; cost: number }[];
}

const totalOf = (reservations: Ledger['reservations'], window: number) => {
  return reservations.reduce((sum, one) => sum + (one.window === window ? one.cost : 0), 0);
};

test('a lease is spent once, under its limit, in its window, and no token is lost', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 60, size: 'max' }), (steps) => {
      const leases = new TestLeases();
      leases.state.setClock(0, OFFSET_MS, UNCERTAINTY_MS);
      const { table } = leases;
      const ids = Array.from({ length: COUNTERS }, (_, i) => testIdentity(i));
      const ledgers = ids.map((): Ledger => {
        const nothing = { deducted: 0, spent: 0, previousSpent: 0 };
        return { window: -1, ...nothing, reservations: [] };
      });
      let nowMs = START_MS;
      for (const { counter, passedMs, kind, check, answer } of steps) {
        nowMs += passedMs;
        const id = ids[counter];
        const ledger = ledgers[counter];
        const before = leases.read(id);
        const enterWindow = (window: number) => {
          if (window <= ledger.window) return;
          const isNext = window === ledger.window + 1 && ledger.window !== -1;
          const reserved = totalOf(ledger.reservations, ledger.window);
          ledger.previousSpent = isNext ? ledger.spent + reserved : 0;
          Object.assign(ledger, { window, deducted: 0, spent: 0 });
        };
        switch (kind) {
          case 'decide':
          case 'reserve': {
            const wasDirty = leases.isDirty(id);
            const { verdict, ...decided } = leases[kind](id, nowMs, check);
            const expected = before && expectedDecision(before, check, nowMs);
            expect(verdict).toBe(expected?.verdict ?? VERDICT.needsTokens);
            expect(leases.isDirty(id)).toBe(wasDirty);
            if (expected === undefined) break;
            expect(decided).toEqual({ ...expected.decision, outcome: OUTCOME.decided });
            if (!decided.allowed || check.cost === 0) break;
            expect(leases.read(id)!.lastLimit).toBe(check.limit);
            if (kind === 'reserve') {
              ledger.reservations.push({ window: decided.window, cost: check.cost });
            } else ledger.spent += check.cost;
            break;
          }
          case 'async': {
            const decided = leases.decideAsync(id, nowMs, check);
            expect(decided.verdict === VERDICT.needsTokens).toBe(before === undefined);
            if (before === undefined) break;
            enterWindow(decided.window);
            if (decided.allowed) ledger.spent += check.cost;
            break;
          }
          case 'local': {
            const decided = leases.decideLocally(id, nowMs, check);
            expect(decided.verdict).toBe(VERDICT.decided);
            if (!decided.allowed || check.cost === 0) break;
            enterWindow(decided.window);
            ledger.spent += check.cost;
            break;
          }
          case 'denied': {
            const counts = table.countDenied(id, nowMs, { ...check, durationMs: MINUTE, burst: 1 });
            expect(counts).toBe(before !== undefined);
            if (!counts) break;
            enterWindow(leases.read(id)!.window);
            ledger.spent += check.cost;
            break;
          }
          case 'commit':
          case 'abort': {
            const reservation = ledger.reservations.shift();
            if (reservation === undefined) break;
            const { window, cost } = reservation;
            table[kind](id, MINUTE, window, cost);
            if (kind === 'commit' && window === ledger.window) ledger.spent += cost;
            else if (kind === 'abort' && window === ledger.window - 1) ledger.previousSpent -= cost;
            break;
          }
          case 'answer': {
            const slot = leases.work(id, nowMs, (state) => {
              enterWindow(state.window);
              if (answer.takesLease) state.lease = 0;
              addToLease(state, answer.lent, answer.lentLimit, answer.coversSliding);
              state.spent += answer.served;
              state.prefetchBelow = answer.prefetchBelow;
              ledger.spent += answer.served;
              state.others = answer.others;
              state.othersDeducted = answer.others + answer.unproven;
              state.previousUsage = answer.previousUsage + answer.unproven;
              state.previousKnownUsage = answer.previousUsage;
              ledger.deducted = state.spent + state.lease + state.reserved;
            });
            table.setDirty(table.lockFor(id), slot, false);
            break;
          }
          case 'late':
            // A thread with an old time. Its decision is in the newest window.
            expect(leases.decideAsync(id, START_MS - MINUTE, { ...check, cost: 0 }).window).toBe(
              before === undefined ? 0 : before.window,
            );
            break;
        }
        const after = leases.read(id);
        if (after === undefined) continue;
        const { window, spent, previousSpent, lease, reserved } = after;
        expect({ spent, previousSpent, reserved }).toEqual({
          spent: ledger.spent,
          previousSpent: ledger.previousSpent,
          reserved: totalOf(ledger.reservations, window),
        });
        // Tokens beyond what Redis has deducted are reported.
        if (spent + lease + reserved > ledger.deducted) expect(leases.isDirty(id)).toBe(true);
        expect(spent + lease + reserved).toBeGreaterThanOrEqual(ledger.deducted);
      }
      expect(brokenInvariants(table)).toEqual([]);
    }),
    { numRuns: trialCount(150, 1_000) },
  );
});

/** The decision without Redis that follows from a state. @returns undefined: Redis must decide */
function expectedDecision(
  state: LeaseState,
  { limit, cost, rule }: { limit: number; cost: number; rule: number },
  nowMs: number,
) {
  const { window, lease, lentLimit, others, othersDeducted, spent, reserved } = state;
  const isSliding = rule === RULE.sliding;
  const end = (window + 1) * MINUTE - OFFSET_MS;
  const carriedOf = (amount: number, aheadMs: number) => {
    const leftMs = Math.max(0, Math.min(end - nowMs - aheadMs, MINUTE));
    return isSliding ? Math.floor((amount * leftMs) / MINUTE) : 0;
  };
  const own = othersDeducted + spent + reserved;
  const used = own + carriedOf(state.previousUsage, 0);
  const reset = (window + 1) * MINUTE;
  /** The first ms at which the check passes, by bisection. */
  const passesAt = () => {
    const passes = (ms: number) => {
      const isNext = ms >= reset;
      const leftMs = Math.min(reset + (isNext ? MINUTE : 0) - ms, MINUTE);
      const carried = Math.floor(((isNext ? own : state.previousUsage) * leftMs) / MINUTE);
      return (isNext ? 0 : own) + (isSliding ? carried : 0) + cost <= limit;
    };
    let [from, to] = [nowMs + OFFSET_MS, reset + MINUTE];
    if (!passes(to)) return NEVER;
    while (to - from > 1) {
      const middle = Math.floor((from + to) / 2);
      if (passes(middle)) to = middle;
      else from = middle;
    }
    return to;
  };
  const decide = (allowed: boolean, remaining: number, verdict: number = VERDICT.decided) => {
    const decision = { allowed, remaining: Math.max(0, remaining), reset, window };
    return { verdict, decision: { ...decision, passesAt: allowed ? 0 : passesAt() } };
  };
  const isCovered = !isSliding || state.previousUsage === 0 || state.coversSliding;
  const isLent = cost <= lease && limit >= lentLimit && nowMs < state.deadlineMs && isCovered;
  if (cost > 0 && isLent) {
    const isSmall = lease - cost < state.prefetchBelow;
    const verdict = isSmall ? VERDICT.decidedPrefetch : VERDICT.decided;
    return decide(true, limit - used - cost, verdict);
  }
  if (nowMs >= state.boundUntilMs) return undefined;
  if (cost === 0) return decide(true, limit - used);
  const known = others + spent + carriedOf(state.previousKnownUsage, UNCERTAINTY_MS + 1);
  return known + cost > limit ? decide(false, isSliding ? 0 : limit - used) : undefined;
}

test('the state that is read is the one that was written', () => {
  const state = fc.record({
    window: fc.constantFrom(0, 1, 28_333_333, 2 ** 31, 2 ** 32 - 2),
    spent: fc.integer({ min: -1_000, max: 2 ** 50 }),
    previousSpent: fc.integer({ min: -1_000, max: 2 ** 50 }),
    lease: fc.nat({ max: 2 ** 30 }),
    lentLimit: fc.nat({ max: Number.MAX_SAFE_INTEGER }),
    others: fc.integer({ min: -1_000, max: 2 ** 50 }),
    coversSliding: fc.boolean(),
    isStored: fc.boolean(),
    isPinned: fc.boolean(),
    prefetchBelow: fc.constantFrom(0, 1, 2, 64, 2 ** 20),
    previousUsage: fc.constantFrom(0, 1, 2 ** 25 - 2, 2 ** 25, 2 ** 50),
    reported: fc.constantFrom(0, 7, Number.POSITIVE_INFINITY),
    lastLimit: fc.nat({ max: Number.MAX_SAFE_INTEGER }),
  });
  fc.assert(
    fc.property(fc.array(state, { minLength: 1, maxLength: 5 }), (states) => {
      const { table } = new TestLeases();
      const id = testIdentity(1);
      const lock = table.lockFor(id);
      table.acquire(lock);
      const slot = table.insert(id, 1, MINUTE, START_MS);
      for (const written of states) {
        const whole = { ...newLeaseState(), ...written, deadlineMs: 9, boundUntilMs: 8 };
        table.write(slot, whole);
        const read = newLeaseState();
        table.read(slot, read);
        expect(read).toEqual(whole);
      }
      table.release(lock);
    }),
  );
});
