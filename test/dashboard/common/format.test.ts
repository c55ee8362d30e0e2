import { describe, expect, test, vi } from 'vitest';
import {
  durationText,
  formatAge,
  formatBytes,
  formatDuration,
  formatMicroseconds,
  formatRate,
  formatShort,
  formatSpan,
  formatTick,
  formatTime,
  formatZone,
  parseDuration,
  percentile,
} from '../../../src/dashboard/common/format.ts';

// Before the module is loaded, which reads it.
vi.hoisted(() => {
  process.env.TZ = 'America/St_Johns';
});

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

describe('a number', () => {
  test.each([
    [0, '0'],
    [0.6666, '0.667'],
    [42, '42'],
    [999, '999'],
    [999.6, '1 k'],
    [1_200, '1.2 k'],
    [999_600, '1 M'],
    [12_400_000, '12.4 M'],
    [3e9, '3 G'],
    [2e16, '20,000 T'],
    [-1_500, '-1.5 k'],
  ])('%d is in short %s', (value, text) => {
    expect(formatShort(value)).toBe(text);
  });

  test('of events in a second has its unit, and a tiny one no digits', () => {
    expect([0, 0.67, 1_234, 0.0003].map(formatRate)).toEqual([
      '0/s',
      '0.67/s',
      '1.23 k/s',
      '<0.01/s',
    ]);
  });

  test('of microseconds has the unit that keeps it short', () => {
    const texts = [42, 350_000, 2_500_000].map(formatMicroseconds);
    expect(texts).toEqual(['42 µs', '350 ms', '2.5 s']);
  });
});

describe('a time', () => {
  const NOON = Date.UTC(2026, 10, 29, 12);

  test('is that of the zone that is named, by a clock of 24 hours', () => {
    expect(formatZone(NOON)).toBe('America/St_Johns (UTC-3:30)');
    expect(formatTime(NOON + 6 * 3_600_000)).toBe('Nov 29, 2026, 14:30:00');
  });

  test('at an axis has seconds where ticks are close, and the day at midnight', () => {
    const ticks = [
      [NOON, 5_000],
      [NOON, 60_000],
      [NOON - 8.5 * 3_600_000, 3_600_000],
    ];
    const texts = ticks.map(([ms, stepMs]) => formatTick(ms, stepMs));
    expect(texts).toEqual(['08:30:00', '08:30', 'Nov 29']);
  });

  test('to another one is written once where both share it', () => {
    expect(formatSpan(NOON, NOON + 60_000)).toMatch(/^Nov 29, 08:30\s–\s08:31$/);
    expect(formatSpan(NOON, NOON + 1_000)).toMatch(/^Nov 29, 08:30:00\s–\s08:30:01$/);
  });
});

test('an age has milliseconds only below a second', () => {
  expect([350, 12_700, 61_900].map(formatAge)).toEqual(['350 ms', '12 s', '1 min 1 s']);
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
