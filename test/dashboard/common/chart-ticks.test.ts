import { describe, expect, test, vi } from 'vitest';
import {
  logarithmicTicks,
  timeTicks,
  valueTicks,
} from '../../../src/dashboard/common/chart-ticks.ts';

vi.hoisted(() => {
  process.env.TZ = 'Asia/Kathmandu';
});

describe('the ticks of values', () => {
  test.each([
    [0, [0, 0.5]],
    [1, [0, 0.5, 1]],
    [7, [0, 2, 4, 6, 8]],
    [100, [0, 50, 100]],
    [0.3, [0, 0.1, 0.2, 0.3]],
    [12_345, [0, 5_000, 10_000, 15_000]],
  ])('up to %d are round, and the last is not below it', (highest, ticks) => {
    expect(valueTicks(highest, 4)).toEqual(ticks);
  });

  test.each([
    [50, 50, [10, 20, 50, 100]],
    [100, 100, [100, 200, 500, 1_000]],
    [25, 1_000, [10, 20, 50, 100, 200, 500, 1_000]],
    [10, 5_000_000, [10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]],
  ])('of a logarithmic axis from %d to %d enclose them', (lowest, highest, ticks) => {
    expect(logarithmicTicks(lowest, highest)).toEqual(ticks);
  });
});

describe('the ticks of time', () => {
  const START = Date.UTC(2026, 10, 29, 12, 7);
  const hoursOf = (times: number[]) => times.map((ms) => new Date(ms).toTimeString().slice(0, 8));

  test('are at round times of the zone, and not more than there is room for', () => {
    const { stepMs, times } = timeTicks({ start: START, end: START + 24 * 3_600_000 }, 9);
    expect(stepMs).toBe(3 * 3_600_000);
    // Kathmandu is 5 h 45 min ahead of UTC.
    expect(hoursOf(times).slice(0, 3)).toEqual(['18:00:00', '21:00:00', '00:00:00']);
    expect(times.length).toBeLessThanOrEqual(9);
  });

  test('of a short time are seconds', () => {
    const { stepMs, times } = timeTicks({ start: START + 100, end: START + 40_100 }, 5);
    expect([stepMs, hoursOf(times)[0]]).toEqual([10_000, '17:52:10']);
  });
});
