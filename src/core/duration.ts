/** Durations with a unit, as in 60s: in options, in settings and in policies. */

import { formatValue } from './describe.ts';

const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
type Unit = keyof typeof UNITS_MS;
const UNITS = Object.keys(UNITS_MS).reverse() as Unit[];

/** An integer with a unit. */
export const DURATION_FORMAT = /^\d+(ms|s|m|h|d)$/;

/** A duration in the largest unit that has an integer count. */
export function formatDuration(ms: number): string {
  const unit = UNITS.find((unit) => ms % UNITS_MS[unit] === 0) ?? 'ms';
  return `${ms / UNITS_MS[unit]}${unit}`;
}

/** The largest unit that a duration has, rounded down: 3h for all below four hours. */
export function formatAge(ms: number): string {
  const unit = UNITS.find((unit) => ms >= UNITS_MS[unit]) ?? 'ms';
  return `${Math.floor(ms / UNITS_MS[unit])}${unit}`;
}

/** A duration in the given unit if the count is an integer, else like `formatDuration`. */
function formatDurationIn(unit: Unit, ms: number): string {
  return ms % UNITS_MS[unit] === 0 ? `${ms / UNITS_MS[unit]}${unit}` : formatDuration(ms);
}

export interface DurationBounds {
  minimumMs: number;
  maximumMs: number;
  /** Where milliseconds and seconds are equally likely without a unit. */
  needsUnit?: true;
}

/** @returns ms, or for an invalid text a sentence without its subject: `must be …; got …` */
export function readDuration(
  text: string,
  { minimumMs, maximumMs, needsUnit }: DurationBounds,
): number | string {
  const [, count, unit] = /^(\d+)(ms|s|m|h|d)?$/.exec(text) ?? [];
  if (count === undefined || (needsUnit && unit === undefined)) {
    const units = minimumMs < UNITS_MS.s ? '500ms or 5s' : '90s, 15m, 1h or 30d';
    const accepted = needsUnit
      ? `with a unit, such as ${units}`
      : 'such as 90000 (milliseconds), 90s, 15m, 1h or 30d';
    return `must be a duration ${accepted}; got ${formatValue(text)}`;
  }
  const isWithin = (ms: number) => ms >= minimumMs && ms <= maximumMs;
  const ms = Number(count) * UNITS_MS[(unit ?? 'ms') as Unit];
  if (isWithin(ms)) return ms;
  const show =
    unit === undefined ? formatDuration : (ms: number) => formatDurationIn(unit as Unit, ms);
  const range = `must be from ${show(minimumMs)} to ${show(maximumMs)}`;
  if (unit !== undefined) return `${range}; got ${formatValue(text)}`;
  const hint = ms < minimumMs && isWithin(ms * UNITS_MS.s) ? `: for seconds write ${count}s` : '';
  return `${range}; got ${count}, which is ${count} ms${hint}`;
}
