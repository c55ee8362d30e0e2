import { describe, expect, test } from 'vitest';
import { bucketsIn, combine, resolutionOf } from '../../../src/dashboard/common/buckets.ts';

const MINUTE_MS = 60_000;
const NOW = 1_000 * MINUTE_MS + 20_000;

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
const minute = (number: number, value: number, lengthMs = MINUTE_MS) => {
  return { start: number * MINUTE_MS, end: number * MINUTE_MS + lengthMs, value };
};
/** Seconds up to a time, each with the value 1. */
const secondsTo = (end: number, count: number) => {
  return Array.from({ length: count }, (_, i) => {
    const start = end - (count - i) * 1_000;
    return { start, end: start + 1_000, value: 1 };
  });
};
const short = { start: NOW - 3 * MINUTE_MS, end: NOW };
const long = { start: NOW - 60 * MINUTE_MS, end: NOW };

describe('the buckets of a chart', () => {
  test('of a long time are minutes, and the seconds since the last one as one bucket', () => {
    const buckets = combine([minute(998, 10), minute(999, 20)], secondsTo(NOW, 140), long, sum);
    expect(buckets).toEqual([
      minute(998, 10),
      minute(999, 20),
      { start: 1_000 * MINUTE_MS, end: NOW, value: 20 },
    ]);
  });

  test('of a long time leave out a minute that has just begun', () => {
    const end = 1_000 * MINUTE_MS + 5_000;
    const buckets = combine([minute(999, 20)], secondsTo(end, 5), { ...long, end }, sum);
    expect(buckets).toEqual([minute(999, 20)]);
  });

  test('of a short time are the seconds, and minutes where these are not known', () => {
    const buckets = combine([minute(998, 10), minute(999, 20)], secondsTo(NOW, 60), short, sum);
    // The seconds cover only a part of the minute before.
    expect(buckets.map(({ value }) => value)).toEqual([10, 20, ...Array(20).fill(1)]);
    expect(buckets.map(({ start }) => start)).toEqual(buckets.map(({ start }) => start).sort());
    const covered = combine([minute(999, 20)], secondsTo(NOW, 80), short, sum);
    expect(covered.map(({ value }) => value)).toEqual(Array(80).fill(1));
  });

  test('without minutes of the server are made of the seconds', () => {
    const buckets = combine([], secondsTo(NOW, 80), long, sum);
    expect(buckets.map(({ value }) => value)).toEqual([60, 20]);
  });

  test('are none where weir was down', () => {
    const buckets = combine([minute(990, 1), minute(992, 2)], [], long, sum);
    expect(buckets).toEqual([minute(990, 1), minute(992, 2)]);
  });

  test('are those of the time, and figures count those that are mostly inside', () => {
    const all = [minute(990, 1), minute(991, 2), minute(992, 4)];
    const span = { start: 990.6 * MINUTE_MS, end: 992.6 * MINUTE_MS };
    expect(combine([minute(989, 8), ...all, minute(993, 8)], [], span, sum)).toEqual(all);
    expect(bucketsIn(all, span).map(({ value }) => value)).toEqual([2, 4]);
  });

  test('say what they are', () => {
    const hour = { start: 0, end: 60 * MINUTE_MS };
    const seconds = secondsTo(NOW, 60);
    expect(resolutionOf([hour], long)).toBe('by hour');
    expect(resolutionOf([minute(999, 1)], long)).toBe('by minute');
    expect(resolutionOf([minute(998, 1), ...seconds], short)).toMatch(/^by minute, the live part/);
    expect(resolutionOf(seconds, short)).toBe('by second');
    // A short time of the past, of which no seconds are known.
    expect(resolutionOf([minute(998, 1), minute(999, 1)], short)).toBe('by minute');
  });
});
