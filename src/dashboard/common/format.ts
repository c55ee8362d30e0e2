/** Numbers, durations and times as people read them, in the language of the browser. */

const LANGUAGE = undefined;
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

const wholeFormat = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 0 });
const exactFormat = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 6 });
const shortFormat = new Intl.NumberFormat(LANGUAGE, { maximumSignificantDigits: 3 });
const shareFormat = new Intl.NumberFormat(LANGUAGE, {
  style: 'percent',
  maximumSignificantDigits: 2,
});

export const formatWhole = (value: number): string => wholeFormat.format(value);
/** What a short number stands for. */
export const formatExact = (value: number): string => exactFormat.format(value);
export const formatShare = (value: number): string => shareFormat.format(value);

const THOUSANDS = ['', ' k', ' M', ' G', ' T'];

/** A count in short: 1.2 k, 12.4 M. */
export function formatShort(value: number): string {
  // Rounded first: 999 600 is 1 M, not 1,000 k.
  const rounded = Number(value.toPrecision(3));
  const power = Math.floor(Math.log10(Math.max(1, Math.abs(rounded))) / 3);
  const index = Math.min(THOUSANDS.length - 1, power);
  return shortFormat.format(rounded / 1_000 ** index) + THOUSANDS[index];
}

/** A count of the analytics: a range where the true count is not known exactly. */
export function formatCount({ count, error }: { count: number; error: number }): string {
  return error === 0
    ? formatWhole(count)
    : `${formatWhole(count - error)} to ${formatWhole(count)}`;
}

/** A smaller rate is not worth its digits. */
const RATE_MIN = 0.01;

/** Events in a second, without the unit: for columns whose heading has it. */
export function formatPerSecond(value: number): string {
  return value > 0 && value < RATE_MIN ? `<${shortFormat.format(RATE_MIN)}` : formatShort(value);
}

export function formatRate(value: number): string {
  return `${formatPerSecond(value)}/s`;
}

export function formatMicroseconds(us: number): string {
  if (us < 1_000) return `${shortFormat.format(us)} µs`;
  if (us < 1e6) return `${shortFormat.format(us / 1_000)} ms`;
  return `${shortFormat.format(us / 1e6)} s`;
}

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB'];

export function formatBytes(bytes: number): string {
  const power = Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${shortFormat.format(bytes / 1_024 ** power)} ${BYTE_UNITS[power]}`;
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

/** How old something is: in ms below a second, otherwise in whole seconds. */
export function formatAge(ms: number): string {
  return formatDuration(ms < 1_000 ? ms : Math.floor(ms / 1_000) * 1_000);
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

/** All times are in the zone of the browser, by a clock of 24 hours. */
const HOUR_CYCLE = 'h23';
const CLOCK = { hour: '2-digit', minute: '2-digit', hourCycle: HOUR_CYCLE } as const;
const DAY = { month: 'short', day: 'numeric' } as const;
const timeFormat = new Intl.DateTimeFormat(LANGUAGE, {
  dateStyle: 'medium',
  timeStyle: 'medium',
  hourCycle: HOUR_CYCLE,
});
const clockFormat = new Intl.DateTimeFormat(LANGUAGE, CLOCK);
const secondsFormat = new Intl.DateTimeFormat(LANGUAGE, { ...CLOCK, second: '2-digit' });
const dayFormat = new Intl.DateTimeFormat(LANGUAGE, DAY);
const spanFormat = new Intl.DateTimeFormat(LANGUAGE, { ...DAY, ...CLOCK });
const secondsSpanFormat = new Intl.DateTimeFormat(LANGUAGE, {
  ...DAY,
  ...CLOCK,
  second: '2-digit',
});
const zoneFormat = new Intl.DateTimeFormat(LANGUAGE, { timeZoneName: 'shortOffset' });

/** The zone of all times, as in `Europe/Berlin (UTC+1)`. */
export function formatZone(ms: number): string {
  const { timeZone } = zoneFormat.resolvedOptions();
  const parts = zoneFormat.formatToParts(ms);
  const offset = parts.find(({ type }) => type === 'timeZoneName')?.value.replace('GMT', 'UTC');
  return offset === undefined || offset === timeZone ? timeZone : `${timeZone} (${offset})`;
}

export function formatTime(ms: number): string {
  return isDate(ms) ? timeFormat.format(ms) : `${ms} ms`;
}

/** From one time to another, without what both share. */
export function formatSpan(start: number, end: number): string {
  if (!isDate(start) || !isDate(end)) return `${start} ms – ${end} ms`;
  const isWhole = start % MINUTE_MS === 0 && end % MINUTE_MS === 0;
  return (isWhole ? spanFormat : secondsSpanFormat).formatRange(start, end);
}

/** The text of a tick of an axis of time, whose distance to the next one is `stepMs`. */
export function formatTick(ms: number, stepMs: number): string {
  const clock = clockFormat.format(ms);
  if (stepMs < MINUTE_MS) return secondsFormat.format(ms);
  return stepMs >= DAY_MS || clock === '00:00' ? dayFormat.format(ms) : clock;
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
