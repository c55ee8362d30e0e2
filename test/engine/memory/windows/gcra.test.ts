/** GCRA against the exact time at which a bucket is full, as a fraction in BigInt. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../../src/core/constants.ts';
import { NO_BURST, RULE } from '../../../../src/core/window-rules.ts';
import { ceilOfQuotient, gcra, refundGcra } from '../../../../src/engine/memory/windows/gcra.ts';
import { type Cells, newCells } from '../../../../src/engine/memory/windows/rule.ts';
import { trialCount } from '../../../support/guarantees.ts';
import {
  amounts,
  durations,
  LimiterModel,
  makeIdentity,
  type TestCheck,
} from '../../../support/limiter-model.ts';

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
    action: fc.constantFrom('check', 'check', 'check', 'deduct', 'refund', 'take back'),
    late: fc.double({ min: 0, max: 1, noNaN: true }),
  });

  test('equals an exact model in checks, deductions, refunds and changes of the limit', () => {
    const seen = { allowed: 0, denied: 0, deducted: 0, tooLate: 0, refunded: 0, takenBack: 0 };
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
            } else if (action === 'take back' && limit > 0) {
              const expected = model.refundTokens(check, now, BigInt(cost), check);
              expect(BigInt(refundGcra(cells, now, cost, check))).toBe(expected);
              if (expected > 0n) seen.takenBack++;
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

  test('never allows more because the limit changes to and fro', () => {
    const cells = newCells();
    let allowed = 0;
    for (let i = 0; i < 1_000; i++) {
      const { limit } = [{ limit: 7 }, { limit: 11 }, { limit: 13 }][i % 3];
      if (decide(cells, 1_000, { limit, durationMs: 1_000, burst: 5, cost: 1 }).allowed) allowed++;
    }
    // At the highest rate a token takes 1000 / 13 ms; five tokens at the lowest are 714 ms.
    expect(allowed).toBeLessThanOrEqual(9);
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
