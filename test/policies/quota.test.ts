import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../src/core/constants.ts';
import { NEVER } from '../../src/core/decision.ts';
import {
  legacyHeaders,
  policyItem,
  type Quota,
  type QuotaState,
  quotaExceeded,
  quotaItems,
  retryAfter,
  tightestQuota,
  windowName,
} from '../../src/policies/quota.ts';

const quota = (more: Partial<Quota> = {}): Quota => ({
  ...{ name: 'a', limit: 10, durationMs: 60_000, remaining: 4, reset: 60_000 },
  ...{ isAllowed: true, passesAt: 0 },
  ...more,
});
const stateOf = (nowMs: number, ...quotas: Quota[]): QuotaState => ({
  quotas,
  nowMs,
  isFromPolicy: true,
});

describe('a quota', () => {
  test('is written in whole seconds, rounded up', () => {
    expect(policyItem('login', 100, 60_000)).toBe('"login";q=100;w=60');
    expect(policyItem('login', 100, 1_500)).toBe('"login";q=100;w=2');
    expect(quotaItems(stateOf(30_000, quota()))).toBe('"a";r=4;t=30');
    expect(quotaItems(stateOf(59_999, quota()))).toBe('"a";r=4;t=1');
    expect(quotaItems(stateOf(60_000, quota()))).toBe('"a";r=4;t=0');
    // The clock of another thread may be a little ahead.
    expect(quotaItems(stateOf(60_001, quota()))).toBe('"a";r=4;t=0');
    expect(quotaItems(stateOf(0, quota(), quota({ name: 'b', remaining: 0 })))).toBe(
      '"a";r=4;t=60, "b";r=0;t=60',
    );
  });

  test('is at most the largest integer of a structured field', () => {
    expect(policyItem('a', AMOUNT_MAX, 1_000)).toBe('"a";q=999999999999999;w=1');
    expect(quotaItems(stateOf(0, quota({ remaining: AMOUNT_MAX })))).toContain(
      'r=999999999999999;',
    );
  });

  test('that denies gives the time at which the request passes all denying windows', () => {
    const denied = { isAllowed: false, reset: 120_000 };
    const late = quota({ ...denied, name: 'b', remaining: 1, passesAt: 90_000 });
    const soon = quota({ ...denied, name: 'c', remaining: 0, passesAt: 61_000 });
    const all = stateOf(60_500, quota(), late, soon);
    expect(retryAfter(all)).toBe(30);
    expect(quotaItems(all)).toBe('"a";r=4;t=0, "b";r=1;t=30, "c";r=0;t=1');
    expect(retryAfter(stateOf(90_500, late))).toBe(1);
    expect(JSON.parse(quotaExceeded(all))).toMatchObject({
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      status: 429,
      detail: 'retry after 30 s',
      'violated-policies': ['b', 'c'],
    });
    expect(tightestQuota(all.quotas)).toBe(late);
  });

  test.each([
    [0, 'all requests are denied: the limit is 0'],
    [10, 'this request can never pass: its cost is above the limit or the burst'],
  ])('of %i that can never be met gives no time to retry', (limit, detail) => {
    const never = quota({ limit, isAllowed: false, passesAt: NEVER });
    const soon = quota({ isAllowed: false, passesAt: 61_000 });
    const state = stateOf(60_500, soon, never);
    expect(retryAfter(state)).toBeUndefined();
    expect(quotaItems(state)).toBe('"a";r=4;t=1, "a";r=4');
    expect(JSON.parse(quotaExceeded(state))).toMatchObject({ detail });
  });

  test('in the X-RateLimit headers is the tightest one', () => {
    const few = quota({ name: 'b', remaining: 1, limit: 3, reset: 61_500 });
    expect(legacyHeaders(tightestQuota([quota(), few]))).toEqual([
      ['X-RateLimit-Limit', '3'],
      ['X-RateLimit-Remaining', '1'],
      ['X-RateLimit-Reset', '62'],
    ]);
  });
});

test.each([
  [1_000, 'x-1s'],
  [90_000, 'x-90s'],
  [60_000, 'x-1m'],
  [7_200_000, 'x-2h'],
  [86_400_000, 'x-1d'],
  [1_234, 'x-1234ms'],
])('a window of %i ms is called %s', (durationMs, name) => {
  expect(windowName('x', durationMs)).toBe(name);
});
