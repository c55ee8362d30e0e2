/** The table of the places of an identifier. */

import { expect, test } from 'vitest';
import { type FoundPlace, placesTable } from '../../src/commands/find-identifier.ts';

const usage = (used: number) => ({ used, remaining: 80 - used, reset: 0 });
const counter = {
  ...{ duration: 60_000, limit: 80 },
  algorithms: { fixed: usage(26), sliding: usage(52) },
};
const check: NonNullable<FoundPlace['last']> = {
  ...{ time: 0, until: 0, decision: 'allowed', count: 1, cost: 1, source: 'request' },
  ...{ duration: 60_000, algorithm: 'fixed' },
};

test('a counter of fixed and sliding windows shows what the last check counted', () => {
  const namespace = { id: 'rlns_1', name: 'api' };
  const usedAfter = (last?: FoundPlace['last']) => {
    return placesTable([{ namespace, counters: [counter], ...(last && { last }) }]);
  };
  expect(usedAfter(check)).toContain('  26 of 80 used per 1m');
  expect(usedAfter({ ...check, algorithm: 'sliding' })).toContain('  52 of 80 used per 1m');
  // Of another counter, and unknown: the largest.
  expect(usedAfter({ ...check, duration: 1_000 })).toContain('  52 of 80 used per 1m');
  expect(usedAfter()).toContain('  52 of 80 used per 1m');
});
