/** The latency of check requests: percentiles over time, and those of the last time as a table. */

import type { LatencySpan } from '../../observe/latency-history.ts';
import { type Bucket, bucketsIn, combine, resolutionOf, type Span } from '../common/buckets.ts';
import { Chart } from '../common/chart.tsx';
import { Table } from '../common/controls.tsx';
import { Short } from '../common/figures.tsx';
import {
  formatAge,
  formatDuration,
  formatLatency,
  formatMicroseconds,
  formatSpan,
  percentile,
} from '../common/format.ts';
import { type Live, sumHistograms } from '../common/live.ts';
import { minuteBuckets, secondBuckets } from '../common/minutes.ts';
import { isChosen, type TimeRange } from '../common/time-range.ts';

/** A row says since when it counts if more than this is missing. The server reads once a second. */
const UNCOVERED_MIN_MS = 2_000;
const PERCENTILES = [0.5, 0.9, 0.99, 0.999];
const SERIES = [
  { name: 'p50', share: 0.5, meaning: 'p50' },
  { name: 'p99', share: 0.99, meaning: 'p99' },
  { name: 'p99.9', share: 0.999, meaning: 'p999' },
] as const;

/** Check requests by bucket of the latency. */
type Histogram = readonly number[];

export function latencyBuckets({ minutes, history }: Live, span: Span): Bucket<Histogram>[] {
  const past = minuteBuckets<Histogram>(minutes, ({ latency }) => latency);
  const seconds = secondBuckets<Histogram>(history, ({ latency }) => latency);
  return combine(past, seconds, span, sumHistograms);
}

/** The requests of a time, and how long it was known. */
export function latencyIn(buckets: readonly Bucket<Histogram>[], span: Span) {
  const inside = bucketsIn(buckets, span);
  return {
    coveredMs: inside.reduce((ms, { start, end }) => ms + end - start, 0),
    counts: sumHistograms(inside.map(({ value }) => value)),
  };
}

export function totalOf(counts: Histogram): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

interface LatencyChartProps {
  buckets: readonly Bucket<Histogram>[];
  bounds: readonly number[];
  span: Span;
  onZoom: (span: Span) => void;
}

export function LatencyChart({ buckets, bounds, span, onZoom }: LatencyChartProps) {
  const largest = bounds.at(-1)!;
  return (
    <Chart
      title="Latency of check requests"
      note={resolutionOf(buckets, span)}
      buckets={buckets}
      series={SERIES.map(({ name, share, meaning }) => ({
        name,
        meaning,
        values: buckets.map(({ value }) => {
          const us = percentile(value, bounds, share);
          return us === undefined ? null : Math.min(us, largest);
        }),
      }))}
      format={formatLatency}
      formatAxis={formatMicroseconds}
      isLogarithmic
      span={span}
      onZoom={onZoom}
    />
  );
}

interface LatencyTableProps {
  buckets: readonly Bucket<Histogram>[];
  bounds: readonly number[];
  spans: readonly LatencySpan[];
  time: TimeRange;
}

export function LatencySection({ buckets, bounds, spans, time }: LatencyTableProps) {
  return (
    <section aria-labelledby="latency">
      <h2 id="latency">Latency</h2>
      <p class="hint">
        From the complete request to its response, inside weir. Each figure is the upper bound of
        its bucket.
      </p>
      <Table
        caption="Latency percentiles"
        columns={['Time', 'Requests#', ...PERCENTILES.map((share) => `p${share * 100}#`)]}
      >
        {isChosen(time) && (
          <PercentileRow {...latencyIn(buckets, time)} bounds={bounds}>
            {formatSpan(time.start, time.end)}
          </PercentileRow>
        )}
        {spans.map(({ spanMs, coveredMs, counts }) => (
          <PercentileRow key={spanMs} {...{ counts, coveredMs, bounds }}>
            last {formatDuration(spanMs)}
            {spanMs - coveredMs > UNCOVERED_MIN_MS && (
              <small> started {formatAge(coveredMs)} ago</small>
            )}
          </PercentileRow>
        ))}
      </Table>
    </section>
  );
}

interface PercentileRowProps {
  counts: Histogram;
  /** 0 where weir did not run, or no longer knows. */
  coveredMs: number;
  bounds: readonly number[];
  children: preact.ComponentChildren;
}

function PercentileRow({ counts, coveredMs, bounds, children }: PercentileRowProps) {
  return (
    <tr>
      <th scope="row">{children}</th>
      <td class="number">{coveredMs === 0 ? '–' : <Short value={totalOf(counts)} />}</td>
      {PERCENTILES.map((share) => (
        <td key={share} class="number">
          {formatLatency(percentile(counts, bounds, share))}
        </td>
      ))}
    </tr>
  );
}
