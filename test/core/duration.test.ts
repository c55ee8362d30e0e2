/** How durations are shown. */

import { expect, test } from 'vitest';
import { formatAge } from '../../src/core/duration.ts';

test('an age has its largest unit, rounded down', () => {
  const ages = [
    0,
    999,
    1_000,
    59_999,
    60_000,
    3_599_999,
    3_600_000,
    86_399_999,
    86_400_000,
    2.5 * 86_400_000,
  ];
  expect(ages.map(formatAge)).toEqual([
    '0ms',
    '999ms',
    '1s',
    '59s',
    '1m',
    '59m',
    '1h',
    '23h',
    '1d',
    '2d',
  ]);
});
