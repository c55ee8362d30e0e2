import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  compareLimiters,
  LIMITERS,
  type LimiterName,
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
function checksOf({ durationMs }: LimitRule, costs: fc.Arbitrary<number>): fc.Arbitrary<Check[]> {
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
const scenarios = (costs: fc.Arbitrary<number>) => {
  return rules.chain((rule) => fc.tuple(fc.constant(rule), checksOf(rule, costs)));
};
const anyCost = fc.integer({ min: 1, max: 12 });

/** The usage of an interval by definition: the sum of the costs allowed within it. */
function usedIn(allowed: readonly Check[], until: number, spanMs: number): number {
  const inside = allowed.filter(({ at }) => at > until - spanMs && at <= until);
  return inside.reduce((sum, { cost }) => sum + cost, 0);
}

function trialsOf(rule: LimitRule, checks: readonly Check[]) {
  const trial = (name: LimiterName) => {
    const limiter = new LimiterTrial(LIMITERS[name](rule), rule);
    for (const { at, cost } of checks) limiter.check(at, cost);
    return limiter;
  };
  return { log: trial('log'), fixed: trial('fixed'), sliding: trial('sliding') };
}

describe('a trial', () => {
  test.each(['log', 'fixed', 'sliding'] as const)(
    'reports the wrong decisions of the limiter %s, and the most tokens that it allowed',
    (name) => {
      fc.assert(
        fc.property(scenarios(anyCost), ([rule, checks]) => {
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
        { numRuns: 100 },
      );
    },
  );
});

describe('on any arrivals', () => {
  test('no interval as long as a window allows more than twice the limit', () => {
    fc.assert(
      fc.property(scenarios(anyCost), ([rule, checks]) => {
        const { log, fixed, sliding } = trialsOf(rule, checks);
        expect(log.maxPerWindow).toBeLessThanOrEqual(rule.limit);
        // Such an interval overlaps two windows at most, and each allows at most the limit.
        expect(fixed.maxPerWindow).toBeLessThanOrEqual(2 * rule.limit);
        expect(sliding.maxPerWindow).toBeLessThanOrEqual(2 * rule.limit);
        // A sixtieth after the start of a window, only this share of the old usage is free again.
        const atOnce = rule.limit + Math.ceil(rule.limit / 60);
        expect(sliding.maxPerSixtieth).toBeLessThanOrEqual(atOnce);
        expect([log.wrongAllowed, log.wrongDenied]).toEqual([0, 0]);
        expect(fixed.wrongDenied).toBe(0);
      }),
      { numRuns: 200 },
    );
  });

  test('with costs of 1, the total allowed is between half and twice the total of the log', () => {
    fc.assert(
      fc.property(scenarios(fc.constant(1)), ([rule, checks]) => {
        const { log, fixed, sliding } = trialsOf(rule, checks);
        // The sliding window denies one token only after the limit was allowed in this window and
        // the one before, the fixed window only after the limit in this one. No window allows more.
        expect(fixed.tokensAllowed).toBeGreaterThanOrEqual(log.tokensAllowed);
        expect(fixed.tokensAllowed).toBeLessThanOrEqual(2 * log.tokensAllowed);
        expect(2 * sliding.tokensAllowed).toBeGreaterThanOrEqual(log.tokensAllowed);
        expect(sliding.tokensAllowed).toBeLessThanOrEqual(2 * log.tokensAllowed);
      }),
      { numRuns: 200 },
    );
  });
});

describe('on the arrivals of the benchmark', () => {
  const WINDOWS = 60;

  test.each([
    ['evenly, 0.5 of the limit', () => evenArrivals(0.5)],
    ['evenly, 0.9 of the limit', () => evenArrivals(0.9)],
    ['Poisson, 0.5 of the limit', () => poissonArrivals(0.5)],
  ])('no limiter denies a check: %s', (name, arrivals) => {
    const { log, fixed, sliding } = compareLimiters(name, arrivals(), WINDOWS);
    expect([log.allowed, fixed.allowed, sliding.allowed]).toEqual([1, 1, 1]);
  });

  test.each([
    ['Poisson, 0.9', () => poissonArrivals(0.9)],
    ['Poisson, 1.2', () => poissonArrivals(1.2)],
    ['Poisson, 5', () => poissonArrivals(5)],
    ['random bursts, 0.5', () => burstArrivals(0.5)],
    ['random bursts, 2', () => burstArrivals(2)],
  ])(
    'on random arrivals the total of the sliding window is closer to the log: %s',
    (name, arrivals) => {
      const { log, fixed, sliding } = compareLimiters(name, arrivals(), WINDOWS);
      const off = ({ toLog }: { toLog: number }) => Math.abs(toLog - 1);
      expect(off(sliding)).toBeLessThanOrEqual(off(fixed));
      expect(sliding.max).toBeLessThan(fixed.max);
      expect(log.max).toBeLessThanOrEqual(1);
      expect([fixed.wronglyDenied, sliding.wronglyDenied! > 0]).toEqual([0, true]);
    },
  );

  test('around the end of a window only the fixed window allows twice the limit', () => {
    const { log, fixed, sliding } = compareLimiters('', boundaryBursts(), WINDOWS);
    expect(log).toMatchObject({ allowed: 0.5, max: 1 });
    expect(fixed).toMatchObject({ toLog: 2, max: 2, maxBurst: 2 });
    expect(sliding).toMatchObject({ toLog: 1, max: 1, wronglyAllowed: 0, wronglyDenied: 0 });
  });

  test('the sliding window allows twice the limit at most over a whole window, not at once', () => {
    const { fixed, sliding } = compareLimiters('', boundaryThenDrain(), WINDOWS);
    expect(sliding).toMatchObject({ toLog: 2, max: 2, maxBurst: 1.02, wronglyAllowed: 0.5 });
    expect(fixed).toMatchObject({ toLog: 2, max: 2 });
    const greedy = compareLimiters('', everyMillisecond(), 4);
    expect(greedy.fixed).toMatchObject({ max: 2, maxBurst: 2 });
    expect(greedy.sliding).toMatchObject({ max: 2, maxBurst: 1.02 });
  });

  test('the sliding window wrongly denies at worst all checks of every second window', () => {
    const worst = compareLimiters('', fullBursts(DURATION_MS), WINDOWS);
    expect(worst.log).toMatchObject({ allowed: 1, max: 1 });
    expect(worst.fixed).toMatchObject({ allowed: 1, max: 1 });
    expect(worst.sliding).toMatchObject({ allowed: 0.5, wronglyDenied: 1 });
    const drifting = compareLimiters('', fullBursts(61_000), WINDOWS);
    expect(drifting.fixed.allowed).toBe(1);
    expect(drifting.sliding.allowed).toBeGreaterThan(0.5);
    expect(drifting.sliding.allowed).toBeLessThan(0.75);
  });
});
