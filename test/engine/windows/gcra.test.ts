/** GCRA against the exact time at which a bucket is full, as a fraction in BigInt. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { ceilOfQuotient, gcra } from '../../../src/engine/windows/gcra.ts';
import { type Cells, newCells } from '../../../src/engine/windows/rule.ts';
import { trialCount } from '../../support/guarantees.ts';
import {
  amounts,
  durations,
  LimiterModel,
  makeIdentity,
  type TestCheck,
} from '../../support/limiter-model.ts';

const id = makeIdentity({ shard: 0, group: 0, groups: 1, first: 0, second: 1, h3: 1 });

interface Parameters {
  limit: number;
  durationMs: number;
  cost: number;
  burst?: number;
}

const checkOf = ({ burst = NO_BURST, ...check }: Parameters): TestCheck => {
  return { id, rule: RULE.gcra, burst, ...check };
};

/** Decides a check, and counts its cost if it is allowed, as the table does. */
function decide(cells: Cells, now: number, parameters: Parameters) {
  const decision = { allowed: false, remaining: 0, reset: 0, window: 0, passesAt: 0 };
  const check = checkOf(parameters);
  gcra.judge(Object.freeze({ ...cells }), now, check, decision);
  if (decision.allowed && check.cost > 0) gcra.count(cells, decision.window, check.cost, check);
  return decision;
}

/** A part of an amount, so that costs of any limit pass and are denied. */
const share = fc.oneof(
  fc.constantFrom(0, 1),
  fc.double({ min: 0, max: 1.2, noNaN: true }),
  fc.double({ min: 0, max: 1e-3, noNaN: true }),
);
const part = (of: number, share: number) => Math.min(Math.ceil(of * share), AMOUNT_MAX);

describe('GCRA', () => {
  const step = fc.record({
    ms: fc.oneof(
      fc.integer({ min: 0, max: 5 }),
      fc.double({ min: 0, max: 1.5, noNaN: true }).map((of) => -of),
    ),
    /** Else that of the step before. */
    limit: fc.option(amounts(0), { freq: 2 }),
    burst: fc.oneof(fc.constant(NO_BURST), amounts(1)),
    cost: share,
    action: fc.constantFrom('check', 'check', 'check', 'deduct', 'refund', 'giveBack'),
    late: fc.double({ min: 0, max: 1, noNaN: true }),
  });

  test('equals an exact model in checks, deductions, refunds and changes of the limit', () => {
    const seen = { allowed: 0, denied: 0, deducted: 0, tooLate: 0, refunded: 0, givenBack: 0 };
    fc.assert(
      fc.property(
        fc.integer({ min: 1.6e12, max: 4e12 }),
        durations,
        amounts(1),
        fc.array(step, { minLength: 1, maxLength: 60 }),
        (start, durationMs, firstLimit, steps) => {
          const model = new LimiterModel();
          const cells = newCells();
          let now = start;
          let limit = firstLimit;
          for (const { ms, burst, cost: costShare, action, late, ...next } of steps) {
            now += ms < 0 ? Math.floor(-ms * durationMs) : ms;
            limit = next.limit ?? limit;
            const cost = part(Math.min(burst, limit), costShare);
            const check = checkOf({ limit, durationMs, burst, cost });
            if (action === 'check') {
              const expected = model.judge([check], now);
              if (expected.passed) model.consume([check], expected.taken, expected.fullTimes);
              const { outcome: _, ...decision } = expected.answers[0];
              expect(decide(cells, now, check)).toEqual(decision);
              seen[decision.allowed ? 'allowed' : 'denied']++;
            } else if (action === 'deduct' && cost > 0 && cost <= limit) {
              const decidedMs = now;
              now += Math.floor(late * durationMs);
              const expected = model.fullTimeAfter(check, decidedMs);
              const matters = expected.units > BigInt(now) * expected.limit;
              const after = { ...cells };
              expect(gcra.deduct(after, decidedMs, now, check)).toBe(matters);
              if (matters) {
                model.setFullTime(check, expected);
                Object.assign(cells, after);
              }
              seen[matters ? 'deducted' : 'tooLate']++;
            } else if (action === 'refund') {
              const expected = model.refundTokens(check, now, BigInt(cost));
              expect(BigInt(gcra.refund(cells, 0, now, durationMs, cost))).toBe(expected);
              if (expected > 0n) seen.refunded++;
            } else if (action === 'giveBack' && limit > 0) {
              // Tokens that have refilled under the higher limit are there already.
              const elapsedMs = Math.floor(late * late * late * durationMs);
              const reserved = { window: now - elapsedMs, durationMs, limit };
              const rate = BigInt(Math.max(limit, cells.limit));
              const refilled = (BigInt(elapsedMs) * rate) / BigInt(durationMs);
              const left = BigInt(cost) > refilled ? BigInt(cost) - refilled : 0n;
              const expected = model.refundTokens(check, now, left);
              expect(BigInt(gcra.giveBack(cells, reserved, now, cost))).toBe(expected);
              if (expected > 0n) seen.givenBack++;
            }
            expect(cells.current).toBeGreaterThanOrEqual(0);
            expect(cells.current).toBeLessThan(Math.max(1, cells.limit));
            expect(cells.previous).toBe(cells.current);
            const missing = BigInt(gcra.usage(cells, durationMs, now).used);
            const expected = model.missingTokens(check, now);
            expect(missing).toBe(expected < BigInt(AMOUNT_MAX) ? expected : BigInt(AMOUNT_MAX));
          }
        },
      ),
      { numRuns: trialCount(600, 5_000) },
    );
    console.info(`GCRA and a model: ${JSON.stringify(seen)}`);
    for (const times of Object.values(seen)) expect(times).toBeGreaterThan(0);
  });

  const HOUR = 3_600_000;
  const allowedOf = (cells: Cells, now: number, limit: number, burst = limit) => {
    let allowed = 0;
    while (decide(cells, now, { limit, burst, durationMs: HOUR, cost: 1 }).allowed) allowed++;
    return allowed;
  };

  test('a raised limit leaves all tokens that are not used', () => {
    const cells = newCells();
    expect(allowedOf(cells, 0, 2)).toBe(2);
    expect(allowedOf(cells, 0, 100)).toBe(98);
  });

  test('a lowered limit gives no token to a client that has used more', () => {
    const cells = newCells();
    decide(cells, 0, { limit: 100, durationMs: HOUR, cost: 50 });
    expect(allowedOf(cells, 0, 2)).toBe(0);
    // 49 tokens have come back at the rate at which they were used, and then 1 at the new one.
    const { passesAt } = decide(cells, 0, { limit: 2, durationMs: HOUR, cost: 1 });
    expect(passesAt).toBe(0.49 * HOUR);
    expect(allowedOf(cells, passesAt, 2)).toBe(1);
    expect(decide(cells, passesAt, { limit: 2, durationMs: HOUR, cost: 1 }).passesAt).toBe(
      passesAt + 0.5 * HOUR,
    );
  });

  test('a reservation gives back what has not refilled since', () => {
    const reserved = { window: 1_000, durationMs: 10_000, limit: 10 };
    const giveBack = (nowMs: number, tokens: number) => {
      const cells = newCells();
      expect(decide(cells, 1_000, { limit: 10, durationMs: 10_000, cost: 10 }).allowed).toBe(true);
      const returned = gcra.giveBack(cells, reserved, nowMs, tokens);
      return [returned, gcra.usage(cells, 10_000, nowMs).used];
    };
    // A thread whose clock is behind the reservation returns all.
    expect([500, 1_000, 1_999].map((nowMs) => giveBack(nowMs, 4))).toEqual([
      [4, 7],
      [4, 6],
      [4, 6],
    ]);
    expect([2_000, 4_999, 5_000, 11_000].map((nowMs) => giveBack(nowMs, 4))).toEqual([
      [3, 6],
      [1, 6],
      [0, 6],
      [0, 0],
    ]);
    expect(giveBack(1_000, 40)).toEqual([10, 0]);
    expect(gcra.giveBack(newCells(), reserved, 1_000, 4)).toBe(0);
  });

  test('a reservation gives back no token that has refilled under a raised limit', () => {
    const cells = newCells();
    const durationMs = 10_000;
    expect(decide(cells, 0, { limit: 10, durationMs, cost: 10 }).allowed).toBe(true);
    // All are there again after 120 ms.
    expect(decide(cells, 0, { limit: 1_000, durationMs, cost: 2 }).allowed).toBe(true);
    expect(decide(cells, 120, { limit: 1_000, durationMs, cost: 10 }).allowed).toBe(true);
    expect(gcra.giveBack(cells, { window: 0, durationMs, limit: 10 }, 120, 10)).toBe(0);
    expect(gcra.usage(cells, durationMs, 120).used).toBe(10);
  });

  test('a changed burst keeps what was used', () => {
    const cells = newCells();
    expect(allowedOf(cells, 0, 100, 10)).toBe(10);
    expect(allowedOf(cells, 0, 100, 30)).toBe(20);
    expect(allowedOf(cells, 0, 100, 5)).toBe(0);
  });

  test('a limit that changes to and fro allows no more than the burst', () => {
    const cells = newCells();
    let allowed = 0;
    for (let i = 0; i < 1_000; i++) {
      const { limit } = [{ limit: 7 }, { limit: 11 }, { limit: 13 }][i % 3];
      if (decide(cells, 1_000, { limit, durationMs: 1_000, burst: 5, cost: 1 }).allowed) allowed++;
    }
    expect(allowed).toBe(5);
  });
});

test('a quotient is exact where the product is no exact number any more', () => {
  const factor = fc.oneof(
    amounts(0),
    amounts(0).map((of) => 0 - of),
  );
  fc.assert(
    fc.property(factor, amounts(0), amounts(0), amounts(1), (a, b, minus, divisor) => {
      const dividend = BigInt(a) * BigInt(b) - BigInt(minus);
      const floor = dividend / BigInt(divisor);
      const expected = dividend % BigInt(divisor) > 0n ? floor + 1n : floor;
      // Either 0 will do.
      expect(ceilOfQuotient(a, b, minus, divisor) + 0).toBe(Number(expected));
    }),
    { numRuns: trialCount(4_000, 20_000) },
  );
});
