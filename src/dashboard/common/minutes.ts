/**
 * The last hour by minute, and how charts show it before the live seconds: one axis of time, on
 * which a minute is a point in its middle.
 */

import type { Minutes, Snapshot } from '../../observe/dashboard/snapshot.ts';

const MINUTE_MS = 60_000;
const MINUTES_KEPT = 60;
/** A shorter part of a minute says nothing about its rate. */
const PART_MIN_MS = 1_000;

/** Decisions of a minute. */
export interface MinuteDecisions {
  /** How long weir ran in the minute: 0 while it was down. */
  ranMs: number;
  byNamespace: ReadonlyMap<string, { allowed: number; denied: number }>;
}

export interface PastMinute {
  /** Its begin in Unix ms. */
  at: number;
  /** How much of it is over. */
  elapsedMs: number;
  latency: readonly number[] | null;
  /** Absent without analytics. */
  decisions?: MinuteDecisions;
}

/** Adds the minutes of an event, which replace those of the same time. */
export function mergeMinutes(
  known: readonly PastMinute[],
  { at, nowMs, latency, decisions }: Minutes,
): PastMinute[] {
  const added = at.map((begin, i): PastMinute => {
    const counts = decisions?.namespaces.map(({ name, allowed, denied }) => {
      return [name, { allowed: allowed[i], denied: denied[i] }] as const;
    });
    return {
      at: begin,
      elapsedMs: Math.min(MINUTE_MS, nowMs - begin),
      latency: latency[i],
      ...(decisions && {
        decisions: { ranMs: decisions.ranMs[i], byNamespace: new Map(counts) },
      }),
    };
  });
  const earlier = known.filter((minute) => !at.includes(minute.at));
  return [...earlier, ...added].toSorted((a, b) => a.at - b.at).slice(-MINUTES_KEPT);
}

/** A value of a chart; null for a gap. */
export type Point<Value> = { at: number; value: Value | null };

/**
 * The points of a chart: the minutes before the live seconds, and these.
 * @param read a value; null for a gap
 */
export function pointsOf<Value>(
  minutes: readonly PastMinute[],
  history: readonly Snapshot[],
  read: {
    minute: (minute: PastMinute) => Value | null;
    second: (snapshot: Snapshot) => Value | null;
  },
): Point<Value>[] {
  // The first snapshot has no figures: a point for it would be a gap.
  const seconds = history[0]?.intervalMs === 0 ? history.slice(1) : history;
  const liveFrom = seconds[0]?.at ?? Number.POSITIVE_INFINITY;
  const past = minutes
    .filter(({ elapsedMs }) => elapsedMs >= PART_MIN_MS)
    .map((minute) => ({ at: minute.at + minute.elapsedMs / 2, value: read.minute(minute) }))
    .filter(({ at }) => at < liveFrom);
  const first = past.findIndex(({ value }) => value !== null);
  return [
    ...(first < 0 ? [] : past.slice(first)),
    ...seconds.map((snapshot) => ({
      at: snapshot.at,
      value: snapshot.intervalMs === 0 ? null : read.second(snapshot),
    })),
  ];
}

/** The time of a chart: at least one minute, so that the first points are not far apart. */
export function timeOf(points: readonly Point<unknown>[]): [number, number] {
  const [first, last] = [points[0]?.at ?? 0, points.at(-1)?.at ?? 0];
  return [Math.min(first, last - MINUTE_MS), last];
}
