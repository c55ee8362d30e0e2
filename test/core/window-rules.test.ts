import { describe, expect, test } from 'vitest';
import { byDenial, usedOf } from '../../src/core/window-rules.ts';

const MINUTE_MS = 60_000;

/** A counter with the usage by two rules. */
function counter(limit: number, fixed: number, sliding: number) {
  const algorithms = { fixed: { used: fixed }, sliding: { used: sliding } };
  return { limit, duration: MINUTE_MS, algorithms };
}

describe('the usage of a counter', () => {
  test('is that of the rule of the last check', () => {
    const last = { duration: MINUTE_MS, algorithm: 'fixed' } as const;
    expect(usedOf(counter(500, 500, 721), last)).toBe(500);
    expect(usedOf(counter(500, 3, 721), { ...last, algorithm: 'sliding' })).toBe(721);
  });

  test.each([
    ['of checks in a fixed window, which have used as much in the window before', 500, 721, 500],
    ['of sliding checks', 3, 480, 480],
    ['after the limit was lowered', 700, 721, 700],
  ])('without a known check is one that a rule can have: %s', (_what, fixed, sliding, used) => {
    expect(usedOf(counter(500, fixed, sliding), undefined)).toBe(used);
    expect(usedOf(counter(500, fixed, sliding), { duration: 1, algorithm: 'gcra' })).toBe(used);
  });
});

describe('the places of an identifier', () => {
  const denied = (until: number) => ({ lastDenied: { until }, counters: [] });

  test('begin with the latest denial', () => {
    const [first, second] = [denied(2), denied(1)];
    const none = { counters: [counter(5, 5, 5)] };
    expect([none, second, first].toSorted(byDenial)).toEqual([first, second, none]);
  });

  test('without a recorded denial begin with a block, and with the fullest counter', () => {
    const blocked = { block: {}, counters: [] };
    const full = { counters: [counter(9, 1, 1), counter(4, 4, 4)] };
    const lowered = { counters: [counter(2, 6, 6)] };
    const half = { counters: [counter(1_000, 500, 500)] };
    const ofZero = { counters: [counter(0, 0, 0)] };
    const places = [ofZero, half, blocked, full, lowered];
    expect(places.toSorted(byDenial)).toEqual([blocked, full, lowered, half, ofZero]);
  });
});
