import { describe, expect, test } from 'vitest';
import { mergeMinutes, pointsOf, timeOf } from '../../../src/dashboard/common/minutes.ts';
import type { Minutes, Snapshot } from '../../../src/observe/dashboard/snapshot.ts';

const MINUTE_MS = 60_000;
const NOW = 1_000 * MINUTE_MS + 20_000;

/** Minutes up to the current one, with the time that weir ran in each. */
function minutesOf(ranMs: number[], allowed: number[], nowMs = NOW): Minutes {
  const last = Math.floor(nowMs / MINUTE_MS);
  return {
    nowMs,
    at: ranMs.map((_, i) => (last - ranMs.length + 1 + i) * MINUTE_MS),
    latency: ranMs.map(() => null),
    decisions: { ranMs, namespaces: [{ name: 'a', allowed, denied: allowed }] },
  };
}
const snapshot = (at: number, intervalMs = 1_000) => ({ at, intervalMs }) as Snapshot;
const read = {
  minute: ({ decisions }: ReturnType<typeof mergeMinutes>[number]) => {
    const counts = decisions?.byNamespace.get('a');
    return decisions === undefined || decisions.ranMs === 0 ? null : (counts?.allowed ?? 0);
  },
  second: () => -1,
};

describe('minutes', () => {
  test('of an event replace those of the same time, and an hour of them is kept', () => {
    const hour = mergeMinutes([], minutesOf(Array(60).fill(MINUTE_MS), Array(60).fill(1)));
    const next = minutesOf([MINUTE_MS, 5_000], [7, 8], NOW + MINUTE_MS);
    const merged = mergeMinutes(hour, next);
    expect(merged.length).toBe(60);
    expect(merged.slice(-3).map(({ at }) => at / MINUTE_MS)).toEqual([999, 1_000, 1_001]);
    const allowed = merged.slice(-3).map(({ decisions }) => decisions?.byNamespace.get('a'));
    expect(allowed.map((counts) => counts?.allowed)).toEqual([1, 7, 8]);
    expect(merged.at(-2)?.elapsedMs).toBe(MINUTE_MS);
  });
});

describe('the points of a chart', () => {
  test('are the middles of the minutes, and then the live seconds', () => {
    const minutes = mergeMinutes([], minutesOf([MINUTE_MS, 20_000], [60, 5]));
    const points = pointsOf(minutes, [snapshot(NOW, 0), snapshot(NOW + 1_000)], read);
    expect(points).toEqual([
      { at: 999 * MINUTE_MS + 30_000, value: 60 },
      { at: 1_000 * MINUTE_MS + 10_000, value: 5 },
      { at: NOW + 1_000, value: -1 },
    ]);
  });

  test('exist before the first snapshot', () => {
    const minutes = mergeMinutes([], minutesOf([MINUTE_MS, 20_000], [60, 5]));
    expect(pointsOf(minutes, [], read).length).toBe(2);
  });

  test('have a gap where weir was down, and begin when it first ran', () => {
    const minutes = mergeMinutes(
      [],
      minutesOf([0, MINUTE_MS, 0, MINUTE_MS, 20_000], [0, 3, 0, 0, 1]),
    );
    expect(pointsOf(minutes, [], read).map(({ value }) => value)).toEqual([3, null, 0, 1]);
  });

  test('have a gap where the live seconds were interrupted', () => {
    const history = [snapshot(NOW), snapshot(NOW + 9_000, 0), snapshot(NOW + 10_000)];
    expect(pointsOf([], history, read).map(({ value }) => value)).toEqual([-1, null, -1]);
  });

  test('leave out minutes that the live seconds cover', () => {
    const minutes = mergeMinutes([], minutesOf([MINUTE_MS, MINUTE_MS, 20_000], [1, 2, 3]));
    const history = [snapshot(NOW - 75_000), snapshot(NOW)];
    expect(pointsOf(minutes, history, read).map(({ value }) => value)).toEqual([1, -1, -1]);
  });

  test('span a minute at least', () => {
    expect(timeOf([{ at: NOW, value: 1 }])).toEqual([NOW - MINUTE_MS, NOW]);
  });
});
