/** Predictions: they equal the decisions that follow, and change nothing. */

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { OUTCOME } from '../../../src/core/decision.ts';
import { NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import { newSeed, trialCount } from '../../support/guarantees.ts';
import { TestTables, tablesOfDeniedCounters } from '../../support/test-tables.ts';

const NOW = 1_700_000_000_000;
const rules = fc.constantFrom(...Object.values(RULE));
const durations = fc.constantFrom(1_000, 1_001, 7_000);

const checks = fc.record({
  identifier: fc.constantFrom('a', 'b'),
  rule: rules,
  duration: durations,
  limit: fc.integer({ min: 0, max: 12 }),
  burst: fc.oneof(fc.constant(NO_BURST), fc.integer({ min: 1, max: 12 })),
  cost: fc.integer({ min: 0, max: 14 }),
  elapsedMs: fc.oneof(fc.integer({ min: 0, max: 400 }), fc.integer({ min: 0, max: 9_000 })),
});

/** A copy of all words of all tables. */
const copyOf = ({ tables }: TestTables) => {
  const views = tables.map(({ words }) => words as unknown as Int32Array);
  return Buffer.concat(views.map((words) => Buffer.from(words.slice().buffer)));
};

describe('a prediction', () => {
  test('equals the decision on a check at the same time, and changes no word of a table', () => {
    const sequence = fc.array(checks, { maxLength: 60 });
    const property = fc.property(sequence, (steps) => {
      const tables = new TestTables(1_024);
      let now = NOW;
      for (const { identifier, elapsedMs, ...check } of steps) {
        now += elapsedMs;
        const before = copyOf(tables);
        const { predictions, allowed, nowMs } = tables.explain(identifier, [check], now);
        expect(copyOf(tables).equals(before)).toBe(true);
        const { remaining, reset, ...decision } = tables.decide(identifier, { ...check, now });
        expect(predictions).toMatchObject([{ allowed: decision.allowed, remaining, reset }]);
        expect([allowed, nowMs]).toEqual([decision.allowed, now]);
      }
    });
    fc.assert(property, { seed: newSeed(), numRuns: 30 });
  });

  test('names the first ms at which a denied check passes, unless it can never pass', () => {
    const sequence = fc.array(checks, { maxLength: 30 });
    const property = fc.property(sequence, checks, (steps, last) => {
      const tables = new TestTables(1_024);
      let now = NOW;
      for (const { identifier, elapsedMs, ...check } of steps) {
        now += elapsedMs;
        tables.decide(identifier, { ...check, now });
      }
      const predict = (at: number) => tables.explain(last.identifier, [last], at).predictions[0];
      const { allowed, cause, passesAt } = predict(now);
      expect(allowed).toBe(cause === 'within_limit');
      expect(passesAt !== undefined).toBe(cause === 'limit_reached');
      expect(cause === 'cost_above_limit').toBe(last.cost > Math.min(last.limit, bucketOf(last)));
      if (passesAt === undefined) return;
      expect(passesAt).toBeGreaterThan(now);
      expect(predict(passesAt - 1).allowed).toBe(false);
      expect(predict(passesAt).allowed).toBe(true);
    });
    fc.assert(property, { seed: newSeed(), numRuns: trialCount(1_000, 2_000) });
  });

  test('of several checks equals the decision on their batch', () => {
    const sequence = fc.array(fc.tuple(checks, checks, checks), { maxLength: 40 });
    const property = fc.property(sequence, (steps) => {
      const tables = new TestTables(1_024);
      let now = NOW;
      for (const batch of steps) {
        now += batch[0].elapsedMs;
        // Each with a counter of its own, as the windows of a policy.
        const [identifier] = batch.map((check) => check.identifier);
        const windows = batch.map((check, i) => ({ ...check, duration: 1_000 * (i + 1) }));
        const { predictions, allowed } = tables.explain(identifier, windows, now);
        const { passed, answers } = tables.decideBatch(
          windows.map((window) => ({ ...window, identifier })),
          now,
        );
        expect(allowed).toBe(passed);
        const decisions = answers.map(({ allowed, remaining, reset }) => {
          return { allowed, remaining, reset };
        });
        expect(predictions).toMatchObject(decisions);
      }
    });
    fc.assert(property, { seed: newSeed(), numRuns: 60 });
  });

  test.each(['deny', 'allow'] as const)('in a full table follows WEIR_ON_FULL=%s', (onFull) => {
    const tables = tablesOfDeniedCounters(onFull, 5);
    let full = 0;
    for (let i = 0; i < 500; i++) {
      const { predictions } = tables.explain(`new${i}`, [{}], undefined, 'ns_0');
      const { allowed, remaining, reset, outcome } = tables.decide(`new${i}`, {}, 'ns_0');
      expect(predictions).toMatchObject([{ allowed, remaining, reset }]);
      expect(predictions[0].cause === 'table_full').toBe(outcome === OUTCOME.full);
      full += Number(outcome === OUTCOME.full);
    }
    expect(full).toBeGreaterThan(0);
  });
});

/** The burst where the rule has one. */
function bucketOf({ rule, burst }: { rule: number; burst: number }): number {
  return rule === RULE.gcra ? burst : NO_BURST;
}
