/** Numbers, durations and times as people read them, in the language of the browser. */

const LANGUAGE = undefined;

const wholeFormat = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 0 });
const rateFormat = new Intl.NumberFormat(LANGUAGE, { maximumSignificantDigits: 3 });
const shortFormat = new Intl.NumberFormat(LANGUAGE, {
  notation: 'compact',
  maximumSignificantDigits: 3,
});
const shareFormat = new Intl.NumberFormat(LANGUAGE, {
  style: 'percent',
  maximumSignificantDigits: 2,
});
const timeFormat = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: 'medium', timeStyle: 'medium' });

export const formatWhole = (value: number): string => wholeFormat.format(value);
/** Large numbers in short, as in 1.2M. */
export const formatShort = (value: number): string => shortFormat.format(value);
export const formatShare = (value: number): string => shareFormat.format(value);

/** A count of the analytics: a range where the true count is not known exactly. */
export function formatCount({ count, error }: { count: number; error: number }): string {
  return error === 0
    ? formatWhole(count)
    : `${formatWhole(count - error)} to ${formatWhole(count)}`;
}

/** Events in a second. */
export function formatRate(value: number): string {
  return value >= 1_000 ? wholeFormat.format(value) : rateFormat.format(value);
}

export function formatMicroseconds(us: number): string {
  if (us < 1_000) return `${rateFormat.format(us)} µs`;
  if (us < 1e6) return `${rateFormat.format(us / 1_000)} ms`;
  return `${rateFormat.format(us / 1e6)} s`;
}

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB'];

export function formatBytes(bytes: number): string {
  const power = Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${rateFormat.format(bytes / 1_024 ** power)} ${BYTE_UNITS[power]}`;
}

const UNITS: readonly [string, number][] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
  ['ms', 1],
];

/** A duration that is exact: 90 000 is 1 min 30 s. */
export function formatDuration(ms: number): string {
  const parts: string[] = [];
  let rest = Math.round(ms);
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count === 0) continue;
    parts.push(`${wholeFormat.format(count)} ${unit}`);
    rest -= count * size;
  }
  return parts.join(' ') || '0 s';
}

const DURATION_TEXT = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*$/i;
const UNIT_MS: Record<string, number> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Reads 30s, 5m, 1h, 2d or a number of milliseconds. @returns undefined for another text */
export function parseDuration(text: string): number | undefined {
  const match = DURATION_TEXT.exec(text);
  if (match === null) return undefined;
  return Number(match[1]) * UNIT_MS[(match[2] ?? 'ms').toLowerCase()];
}

/** A duration that `parseDuration` reads. */
export function durationText(ms: number): string {
  const [unit, size] = UNITS.find(([, size]) => ms % size === 0) ?? ['ms', 1];
  return `${ms / size}${unit === 'min' ? 'm' : unit}`;
}

/** In the time zone of the browser. */
export function formatTime(ms: number): string {
  return isDate(ms) ? timeFormat.format(ms) : `${ms} ms`;
}

export function formatUtc(ms: number): string {
  return isDate(ms) ? new Date(ms).toISOString().replace('T', ' ').replace('Z', ' UTC') : '';
}

/** The value of an input for a date and a time, in the time zone of the browser; '' for no date. */
export function dateTimeText(ms: number | undefined): string {
  if (ms === undefined || !isDate(ms)) return '';
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString();
  // Years from 10000 on have a sign, which inputs do not read.
  return local.startsWith('+') ? '' : local.replace(/(\.000)?Z$/, '');
}

/** The range of times that a Date can hold. */
function isDate(ms: number): boolean {
  return Math.abs(ms) <= 8.64e15;
}

/**
 * A percentile of a histogram.
 * @param boundsUs upper bounds of all buckets but the last
 * @returns undefined for an empty histogram; the upper bound of the bucket that has the value
 */
export function percentile(
  counts: readonly number[],
  boundsUs: readonly number[],
  share: number,
): number | undefined {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  let seen = 0;
  for (const [bucket, count] of counts.entries()) {
    seen += count;
    if (seen >= total * share) return boundsUs[bucket] ?? Number.POSITIVE_INFINITY;
  }
  return undefined;
}

export function formatLatency(us: number | undefined): string {
  if (us === undefined) return '–';
  return Number.isFinite(us) ? `≤ ${formatMicroseconds(us)}` : '> 1 s';
}
