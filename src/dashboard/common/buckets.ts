/**
 * Buckets of time, of which charts, figures and tables are made. Where weir was down there is no
 * bucket. The seconds that the browser has and the minutes or hours of the server become one line.
 */

export interface Span {
  /** Unix times in ms. */
  start: number;
  end: number;
}

/** What was counted in a time. */
export interface Bucket<Value> extends Span {
  value: Value;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** In a longer time, single seconds are noise. */
const BY_SECOND_MAX_MS = 10 * MINUTE_MS;
/** A minute that has just begun says little about its rate. */
const PART_MIN_MS = 10_000;
/** The share of a minute that seconds must cover to replace it. */
const COVERED_MIN = 0.9;
/** Snapshots come once a second, and a bit late. */
const SECOND_MAX_MS = 5_000;

function isInside(inner: Span, outer: Span): boolean {
  const middle = (inner.start + inner.end) / 2;
  return middle >= outer.start && middle < outer.end;
}

/** The buckets of a time, for figures: of those at its ends, those that are mostly inside. */
export function bucketsIn<Value>(buckets: readonly Bucket<Value>[], span: Span): Bucket<Value>[] {
  return buckets.filter((bucket) => isInside(bucket, span));
}

/**
 * The buckets that a chart of a time shows, ascending and without overlaps: the minutes or hours of
 * the server, and the seconds where a short time has them. Seconds also fill in for minutes that
 * the server has not sent.
 * @param sum adds up values
 */
export function combine<Value>(
  coarse: readonly Bucket<Value>[],
  seconds: readonly Bucket<Value>[],
  span: Span,
  sum: (values: readonly Value[]) => Value,
): Bucket<Value>[] {
  const isBySecond = span.end - span.start <= BY_SECOND_MAX_MS;
  const used = coarse.filter((bucket) => {
    const lengthMs = bucket.end - bucket.start;
    if (!isBySecond && lengthMs >= MINUTE_MS) return true;
    const covered = seconds.filter((second) => isInside(second, bucket));
    const coveredMs = covered.reduce((ms, { start, end }) => ms + end - start, 0);
    return coveredMs < lengthMs * COVERED_MIN;
  });
  const rest = seconds.filter((second) => !used.some((bucket) => isInside(second, bucket)));
  return [...used, ...(isBySecond ? rest : sumByMinute(rest, sum))]
    .filter(({ start, end }) => end > span.start && start < span.end)
    .filter(({ start, end }) => isBySecond || end - start >= PART_MIN_MS)
    .toSorted((a, b) => a.start - b.start);
}

function sumByMinute<Value>(
  seconds: readonly Bucket<Value>[],
  sum: (values: readonly Value[]) => Value,
): Bucket<Value>[] {
  const byMinute = new Map<number, Bucket<Value>[]>();
  for (const second of seconds) {
    const minute = Math.floor((second.start + second.end) / 2 / MINUTE_MS);
    byMinute.set(minute, [...(byMinute.get(minute) ?? []), second]);
  }
  return [...byMinute.values()].map((inMinute) => ({
    start: inMinute[0].start,
    end: inMinute.at(-1)!.end,
    value: sum(inMinute.map(({ value }) => value)),
  }));
}

/** What a bucket of a chart is, in words. */
export function resolutionOf(buckets: readonly Span[], span: Span): string {
  const longest = Math.max(0, ...buckets.map(({ start, end }) => end - start));
  if (longest >= HOUR_MS / 2) return 'by hour';
  if (span.end - span.start > BY_SECOND_MAX_MS) return 'by minute';
  if (longest <= SECOND_MAX_MS) return 'by second';
  const hasSeconds = buckets.some(({ start, end }) => end - start <= SECOND_MAX_MS);
  return hasSeconds ? 'by minute, the live part by second' : 'by minute';
}
