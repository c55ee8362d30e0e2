/** What the server sends of the last hour by minute, and of the last minutes by second. */

import type { Minutes, Snapshot } from '../../observe/dashboard/snapshot.ts';
import type { Bucket } from './buckets.ts';

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

/** @param read a value; null where weir was down */
export function minuteBuckets<Value>(
  minutes: readonly PastMinute[],
  read: (minute: PastMinute) => Value | null,
): Bucket<Value>[] {
  return minutes.flatMap((minute) => {
    const value = minute.elapsedMs < PART_MIN_MS ? null : read(minute);
    if (value === null) return [];
    return [{ start: minute.at, end: minute.at + minute.elapsedMs, value }];
  });
}

/** The live seconds. A snapshot after an interruption has no figures. */
export function secondBuckets<Value>(
  history: readonly Snapshot[],
  read: (snapshot: Snapshot) => Value,
): Bucket<Value>[] {
  return history
    .filter(({ intervalMs }) => intervalMs > 0)
    .map((snapshot) => ({
      start: snapshot.at - snapshot.intervalMs,
      end: snapshot.at,
      value: read(snapshot),
    }));
}

/** The begin of the first minute of the last hour in which weir ran, as far as it is known. */
export function firstMinute(minutes: readonly PastMinute[]): number | undefined {
  return minutes.find(({ latency, decisions }) => latency !== null || decisions?.ranMs)?.at;
}
