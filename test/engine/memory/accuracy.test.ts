import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  compareLimiters,
  LIMITERS,
  LimiterTrial,
  type LimitRule,
} from '../../../bench/micro/accuracy.ts';
import {
  boundaryBursts,
  boundaryThenDrain,
  burstArrivals,
  DURATION_MS,
  evenArrivals,
  everyMillisecond,
  fullBursts,
  poissonArrivals,
} from '../../../bench/micro/arrivals.ts';

interface Check {
  at: number;
  cost: number;
}

/** Checks in order: many at the same time, near the end of a window, or a duration apart. */
function checksOf({ durationMs }: LimitRule): fc.Arbitrary<Check[]> {
  const wait = fc.oneof(
    fc.constant(() => 0),
    fc.integer({ min: 1, max: 3 }).map((ms) => () => ms),
    fc.integer({ min: 0, max: durationMs }).map((ms) => () => ms),
    fc.integer({ min: -1, max: 1 }).map((ms) => () => durationMs + ms),
    fc.integer({ min: -1, max: 1 }).map((ms) => (at: number) => {
      return Math.max(0, durationMs - (at % durationMs) + ms);
    }),
  );
  const step = fc.record({ wait, times: fc.integer({ min: 1, max: 12 }), cost: costs });
  return fc.array(step, { minLength: 1, maxLength: 40 }).map((steps) => {
    let at = 0;
    return steps.flatMap(({ wait, times, cost }) => {
      at += wait(at);
      return Array.from({ length: times }, () => ({ at, cost }));
    });
  });
}

const rules = fc.record({
  limit: fc.integer({ min: 1, max: 30 }),
  durationMs: fc.integer({ min: 1, max: 10 }).map((n) => n * 60),
});
const costs = fc.integer({ min: 1, max: 12 });
const scenarios = rules.chain((rule) => fc.tuple(fc.constant(rule), checksOf(rule)));

/** The usage of an interval by definition: the sum of the costs allowed within it. */
function usedIn(allowed: readonly Check[], until: number, spanMs: number): number {
  const inside = allowed.filter(({ at }) => at > until - spanMs && at <= until);
  return inside.reduce((sum, { cost }) => sum + cost, 0);
}

describe('a trial', () => {
  test.each(['log', 'fixed', 'sliding'] as const)(
    'reports the wrong decisions of the limiter %s, and the most tokens that it allowed',
    (name) => {
      fc.assert(
        fc.property(scenarios, ([rule, checks]) => {
          const { limit, durationMs } = rule;
          const trial = new LimiterTrial(LIMITERS[name](rule), rule);
          const allowed: Check[] = [];
          const wrong = { allowed: 0, denied: 0 };
          for (const { at, cost } of checks) {
            const fits = usedIn(allowed, at, durationMs) + cost <= limit;
            const passed = trial.check(at, cost);
            if (passed) allowed.push({ at, cost });
            if (passed && !fits) wrong.allowed++;
            if (!passed && fits) wrong.denied++;
          }
          const most = (spanMs: number) => {
            return Math.max(0, ...allowed.map(({ at }) => usedIn(allowed, at, spanMs)));
          };
          expect(trial).toMatchObject({
            tokensAllowed: allowed.reduce((sum, { cost }) => sum + cost, 0),
            maxPerWindow: most(durationMs),
            maxPerSixtieth: most(durationMs / 60),
            wrongAllowed: wrong.allowed,
            wrongDenied: wrong.denied,
          });
        }),
        { numRuns: 200 },
      );
    },
  );
});

describe('on the arrivals of the benchmark', () => {
  const all = { allowed: 1 };
  const once = { allowed: 1, max: 1 };
  const burst = { toLog: 2, max: 2, maxBurst: 2 };
  const spread = { toLog: 2, max: 2, maxBurst: 1.02, wronglyAllowed: 0.5 };
  const exact = { toLog: 1, max: 1, wronglyAllowed: 0, wronglyDenied: 0 };
  test.each([
    ['evenly, 0.5', evenArrivals(0.5), 60, { log: all, fixed: all, sliding: all }],
    ['evenly, 0.9', evenArrivals(0.9), 60, { log: all, fixed: all, sliding: all }],
    ['Poisson, 0.5', poissonArrivals(0.5), 60, { log: all, fixed: all, sliding: all }],
    // Only the fixed window allows twice the limit at once.
    ['end and start', boundaryBursts(), 60, { log: { max: 1 }, fixed: burst, sliding: exact }],
    ['end and through', boundaryThenDrain(), 60, { fixed: { toLog: 2, max: 2 }, sliding: spread }],
    ['greedy', everyMillisecond(), 4, { fixed: { max: 2 }, sliding: { max: 2, maxBurst: 1.02 } }],
    // At worst the sliding window denies all checks of every second window.
    [
      'full bursts',
      fullBursts(DURATION_MS),
      60,
      { log: once, fixed: once, sliding: { allowed: 0.5, wronglyDenied: 1 } },
    ],
  ])('the limiters allow what is published: %s', (name, arrivals, windows, expected) => {
    expect(compareLimiters(name, arrivals, windows)).toMatchObject(expected);
  });

  test.each([
    ['Poisson, 0.9', poissonArrivals(0.9)],
    ['Poisson, 1.2', poissonArrivals(1.2)],
    ['Poisson, 5', poissonArrivals(5)],
    ['random bursts, 0.5', burstArrivals(0.5)],
    ['random bursts, 2', burstArrivals(2)],
  ])('on random arrivals the sliding window is closer to the log: %s', (name, arrivals) => {
    const { log, fixed, sliding } = compareLimiters(name, arrivals, 60);
    const off = ({ toLog }: { toLog: number }) => Math.abs(toLog - 1);
    expect(off(sliding)).toBeLessThanOrEqual(off(fixed));
    expect(sliding.max).toBeLessThan(fixed.max);
    expect(log.max).toBeLessThanOrEqual(1);
    expect([fixed.wronglyDenied, sliding.wronglyDenied! > 0]).toEqual([0, true]);
  });
});
