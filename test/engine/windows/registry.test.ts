import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DURATION_MAX_MS, DURATION_MIN_MS } from '../../../src/core/constants.ts';
import { newDecision } from '../../../src/core/decision.ts';
import { isRule, NO_BURST, RULE } from '../../../src/core/window-rules.ts';
import {
  count,
  counterKey,
  durationOfKey,
  expiryMs,
  isCounterKey,
  judge,
  ruleOf,
  ruleOfKey,
  storesNewestLast,
  usesLastLimit,
} from '../../../src/engine/windows/registry.ts';
import { newCells } from '../../../src/engine/windows/rule.ts';

const rules = Object.values(RULE);
const rule = fc.constantFrom(...rules);
const duration = fc.integer({ min: DURATION_MIN_MS, max: DURATION_MAX_MS });

test('a key is one for each duration and kind of counter; only window rules share counters', () => {
  fc.assert(
    fc.property(rule, rule, duration, duration, (a, b, durationA, durationB) => {
      const [keyA, keyB] = [counterKey(a, durationA), counterKey(b, durationB)];
      const isShared = a === b || (a !== RULE.gcra && b !== RULE.gcra);
      expect(keyA === keyB).toBe(isShared && durationA === durationB);
      expect(durationOfKey(keyA)).toBe(durationA);
      expect(ruleOfKey(keyA).counterRule).toBe(ruleOf(a).counterRule);
      expect([isCounterKey(keyA), isRule(ruleOfKey(keyA).counterRule)]).toEqual([true, true]);
    }),
  );
  // The sliding window has no counters of its own, and there is no fourth rule.
  for (const unused of [1, 3, -1]) expect(isCounterKey(unused * 2 ** 42 + 1_000)).toBe(false);
});

test('only rules that use the last limit decide by it', () => {
  for (const number of rules) {
    const decide = (limit: number) => {
      const cells = { newest: 1_001, current: 6, previous: 6, limit };
      const parameters = { limit: 7, durationMs: 1_000, cost: 1, rule: number, burst: NO_BURST };
      const decision = newDecision();
      judge(cells, 1_000, parameters, decision);
      return decision;
    };
    const differs = JSON.stringify(decide(7)) !== JSON.stringify(decide(1_000));
    expect([number, differs]).toEqual([number, usesLastLimit(number)]);
  }
});

test('the functions that dispatch on a rule do what its object does', () => {
  const amount = fc.integer({ min: 0, max: 20 });
  fc.assert(
    fc.property(rule, duration, amount, amount, amount, (number, durationMs, used, cost, limit) => {
      const now = 1_700_000_000_000;
      const parameters = { limit: limit + 1, durationMs, cost, rule: number, burst: 5 };
      const object = ruleOf(number);
      const [cells, expected] = [newCells(), newCells()];
      count(cells, now, used, parameters);
      object.count(expected, now, used, parameters);
      expect(cells).toEqual(expected);
      const [decision, expectedDecision] = [newDecision(), newDecision()];
      judge(cells, now, parameters, decision);
      object.judge(cells, now, parameters, expectedDecision);
      expect(decision).toEqual(expectedDecision);
      const key = counterKey(number, durationMs);
      expect(expiryMs(key, cells.newest)).toBe(object.expiryMs(cells.newest, durationMs));
      expect(storesNewestLast(number)).toBe(object.storesNewestLast);
    }),
  );
});
