/** What a request adds to the hits of its limit. */

import { describe, expect, test } from 'vitest';
import { RLS_HIT_PATHS_MAX } from '../../src/core/constants.ts';
import { HIT_COUNTS, HitCounts, OTHER_PATH } from '../../src/rls/hit-counts.ts';

type Counts = Partial<Record<(typeof HIT_COUNTS)[number], number>>;

function addedBy(count: (counts: HitCounts) => void): [path: string, counts: Counts][] {
  const counts = new HitCounts();
  count(counts);
  return (counts.take() ?? []).map(([path, numbers]) => {
    const named = numbers.map((number, i) => [HIT_COUNTS[i], number] as const);
    return [path, Object.fromEntries(named.filter(([, number]) => number !== 0))];
  });
}

/** Hits and usage as envoyproxy/ratelimit states its own cases: `after` is with the hits. */
const HIT_CASES: readonly {
  name: string;
  limit: number;
  hits: number;
  after: number;
  added: Counts;
}[] = [
  { name: 'case 23', limit: 15, hits: 1, after: 11, added: {} },
  { name: 'case 24', limit: 15, hits: 1, after: 13, added: { near_limit: 1 } },
  { name: 'case 25', limit: 15, hits: 1, after: 16, added: { over_limit: 1 } },
  { name: 'case 26', limit: 20, hits: 3, after: 5, added: {} },
  { name: 'case 27', limit: 8, hits: 2, after: 7, added: { near_limit: 1 } },
  { name: 'case 28', limit: 20, hits: 3, after: 19, added: { near_limit: 3 } },
  { name: 'case 29', limit: 20, hits: 3, after: 22, added: { over_limit: 2, near_limit: 1 } },
  { name: 'case 30', limit: 20, hits: 7, after: 22, added: { over_limit: 2, near_limit: 4 } },
  { name: 'case 31', limit: 10, hits: 3, after: 30, added: { over_limit: 3 } },
  { name: 'the last hit', limit: 10, hits: 1, after: 10, added: { near_limit: 1 } },
  { name: 'all hits', limit: 10, hits: 10, after: 10, added: { near_limit: 2 } },
  { name: 'a limit of 1', limit: 1, hits: 1, after: 1, added: { near_limit: 1 } },
  // In single precision near is 3,435,973,888; in double precision it would be 52 less.
  { name: 'a large limit', limit: 4_294_967_295, hits: 1, after: 3_435_973_880, added: {} },
];

describe('an allowed request', () => {
  for (const { name, limit, hits, after, added } of HIT_CASES) {
    if (after > limit) continue;
    test(`${name}: ${hits} of ${limit}, after which ${after} are used`, () => {
      const counts = addedBy((it) => it.countAllowed('p', limit, hits, limit - after));
      expect(counts).toEqual([['p', { total_hits: hits, within_limit: hits, ...added }]]);
    });
  }
});

describe('a request over the limit', () => {
  for (const { name, limit, hits, after, added } of HIT_CASES) {
    if (after <= limit) continue;
    const left = Math.max(0, limit - (after - hits));
    test(`${name}: ${hits} of ${limit}, after which ${after} are used`, () => {
      const counts = addedBy((it) => it.countDenied('p', limit, hits, left, false));
      expect(counts).toEqual([['p', { total_hits: hits, ...added }]]);
    });
    test(`${name}, in shadow mode`, () => {
      const counts = addedBy((it) => it.countDenied('p', limit, hits, left, true));
      const shadow = { shadow_mode: added.over_limit };
      expect(counts).toEqual([['p', { total_hits: hits, ...added, ...shadow }]]);
    });
  }
});

describe('hits', () => {
  test('are taken once', () => {
    const counts = new HitCounts();
    expect(counts.take()).toBeUndefined();
    counts.countAllowed('p', 10, 1, 9);
    counts.countAllowed('q', 10, 2, 8);
    expect(counts.take()).toEqual([
      ['p', [1, 1, 0, 0, 0]],
      ['q', [2, 2, 0, 0, 0]],
    ]);
    expect(counts.take()).toBeUndefined();
    counts.countAllowed('q', 10, 3, 5);
    expect(counts.take()).toEqual([['q', [3, 3, 0, 0, 0]]]);
  });

  test('of paths beyond the bound have the path other', () => {
    const counts = new HitCounts();
    for (let n = 0; n < RLS_HIT_PATHS_MAX; n++) counts.countAllowed(`p${n}`, 10, 1, 9);
    counts.take();
    counts.countAllowed('one more', 10, 1, 9);
    counts.countDenied('another', 10, 1, 0, false);
    counts.countAllowed('p0', 10, 1, 9);
    expect(counts.take()).toEqual([
      [OTHER_PATH, [2, 1, 0, 1, 0]],
      ['p0', [1, 1, 0, 0, 0]],
    ]);
  });
});
