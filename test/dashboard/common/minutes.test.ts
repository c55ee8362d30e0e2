import { describe, expect, test } from 'vitest';
import {
  mergeMinutes,
  minuteBuckets,
  secondBuckets,
} from '../../../src/dashboard/common/minutes.ts';
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
const allowedIn = ({ decisions }: ReturnType<typeof mergeMinutes>[number]) => {
  const counts = decisions?.byNamespace.get('a');
  return decisions === undefined || decisions.ranMs === 0 ? null : (counts?.allowed ?? 0);
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

test('a minute in which weir was down has no bucket, and one that runs ends now', () => {
  const minutes = mergeMinutes([], minutesOf([0, MINUTE_MS, 20_000], [0, 3, 1]));
  expect(minuteBuckets(minutes, allowedIn)).toEqual([
    { start: 999 * MINUTE_MS, end: NOW - 20_000, value: 3 },
    { start: NOW - 20_000, end: NOW, value: 1 },
  ]);
});

test('live seconds are those between two snapshots, without an interruption', () => {
  const history = [snapshot(NOW - 20_000, 0), snapshot(NOW - 19_000), snapshot(NOW, 0)];
  const buckets = secondBuckets(history, () => -1);
  expect(buckets).toEqual([{ start: NOW - 20_000, end: NOW - 19_000, value: -1 }]);
});
