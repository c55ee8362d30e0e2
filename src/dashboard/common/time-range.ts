/**
 * The time that figures are shown for, and its form in an address: `last=24h`, or `from` and `to`
 * in Unix ms. Without `to`, the time ends now.
 */

import type { Span } from './buckets.ts';
import type { Live } from './live.ts';
import { firstMinute } from './minutes.ts';
import type { Route } from './router.ts';
import { serverNow } from './server-clock.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
export const RANGES = {
  '15m': { text: '15 min', ms: 15 * MINUTE_MS },
  '1h': { text: '1 h', ms: HOUR_MS },
  '6h': { text: '6 h', ms: 6 * HOUR_MS },
  '24h': { text: '24 h', ms: DAY_MS },
  '7d': { text: '7 d', ms: 7 * DAY_MS },
} as const;

export type Range = keyof typeof RANGES;

export const DEFAULT_RANGE = '1h';

/** Start and end in Unix ms. */
export function rangeOf(range: Range): { start: number; end: number } {
  const end = serverNow();
  return { start: end - RANGES[range].ms, end };
}

export interface TimeRange extends Span {
  /** Whether it ends now. */
  isLive: boolean;
  /** Undefined for a time between two others. */
  last?: Range;
}

function timeIn(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  const ms = Number(text);
  return text !== null && text !== '' && Number.isSafeInteger(ms) && ms >= 0 ? ms : undefined;
}

/** The time of the newest figures, by the clock of the server. */
export function latestMs({ history }: Pick<Live, 'history'>): number {
  return history.at(-1)?.at ?? serverNow();
}

/**
 * The time that an address names, otherwise the last hour.
 * @param choices those that the view has figures for
 */
export function timeRangeOf(
  { query }: Pick<Route, 'query'>,
  { history, minutes }: Pick<Live, 'history' | 'minutes'>,
  choices: readonly Range[],
): TimeRange {
  const now = latestMs({ history });
  const from = timeIn(query, 'from');
  const to = timeIn(query, 'to');
  const end = to ?? now;
  if (from !== undefined && end > from) {
    return { start: from, end, isLive: to === undefined };
  }
  const last = choices.find((range) => range === query.get('last')) ?? DEFAULT_RANGE;
  const start = now - RANGES[last].ms;
  // A chart of a server that has just started is not empty but for its edge.
  const first = RANGES[last].ms > HOUR_MS ? undefined : firstMinute(minutes);
  return { start: Math.max(start, first ?? start), end: now, isLive: true, last };
}

/** How finely the server has counted a time: minutes are kept for a day. */
export function granularityOf({ start, end }: Span, nowMs: number): 'minute' | 'hour' {
  return start >= nowMs - DAY_MS - MINUTE_MS && end - start <= DAY_MS ? 'minute' : 'hour';
}

/** Whether the time is a selection, not one of the usual ones. */
export function isChosen({ last }: TimeRange): boolean {
  return last === undefined;
}

/** The fields of the address of a time. */
export function fieldsOf({ start, end, isLive, last }: TimeRange): Record<string, string> {
  if (last === DEFAULT_RANGE) return {};
  if (last !== undefined) return { last };
  return { from: String(start), ...(!isLive && { to: String(end) }) };
}
