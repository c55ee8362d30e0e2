import { describe, expect, test } from 'vitest';
import {
  durationText,
  formatBytes,
  formatDuration,
  parseDuration,
  percentile,
} from '../../../src/dashboard/common/format.ts';

describe('a duration', () => {
  test.each([
    ['30s', 30_000],
    ['5m', 300_000],
    ['5 min', 300_000],
    ['1H', 3_600_000],
    ['1.5h', 5_400_000],
    ['2d', 172_800_000],
    ['250ms', 250],
    [' 1000 ', 1_000],
  ])('is read from %s', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  test.each(['', 'x', '1w', '-1s', '1s 2s', '1e3'])('is not read from "%s"', (text) => {
    expect(parseDuration(text)).toBeUndefined();
  });

  test('is written so that it is read as the same', () => {
    for (const ms of [1, 999, 1_000, 61_000, 60_000, 5_400_000, 86_400_000, 3_155_760_000_000]) {
      expect([ms, parseDuration(durationText(ms))]).toEqual([ms, ms]);
    }
  });

  test('is shown in its units', () => {
    expect(formatDuration(0)).toBe('0 s');
    expect(formatDuration(90_000)).toBe('1 min 30 s');
    expect(formatDuration(90_061_001)).toBe('1 d 1 h 1 min 1 s 1 ms');
  });
});

test('bytes are shown in binary units', () => {
  expect([0, 1_023, 1_024, 120 * 2 ** 20].map(formatBytes)).toEqual([
    '0 B',
    expect.stringMatching(/^1.?02\d? B$/),
    '1 KiB',
    '120 MiB',
  ]);
});

describe('a percentile', () => {
  const bounds = [10, 20, 50];

  test('is the upper bound of the bucket that has it', () => {
    expect(percentile([1, 1, 0, 0], bounds, 0.5)).toBe(10);
    expect(percentile([1, 1, 0, 0], bounds, 0.51)).toBe(20);
    expect(percentile([0, 0, 100, 0], bounds, 0.999)).toBe(50);
  });

  test('above all bounds is infinite, and of nothing is undefined', () => {
    expect(percentile([0, 0, 0, 1], bounds, 0.5)).toBe(Number.POSITIVE_INFINITY);
    expect(percentile([0, 0, 0, 0], bounds, 0.5)).toBeUndefined();
    expect(percentile([], bounds, 0.5)).toBeUndefined();
  });
});
