/** Allowed and denied checks or tokens in a second, as areas on each other. */

import type { Bucket, Span } from '../common/buckets.ts';
import { resolutionOf } from '../common/buckets.ts';
import { Chart } from '../common/chart.tsx';
import { formatRate } from '../common/format.ts';

/** How many were allowed and denied in a time. */
export interface Counted {
  /** How long weir ran in it. */
  ms: number;
  allowed: number;
  denied: number;
}

interface RateChartProps {
  title: string;
  /** The name of the allowed ones. */
  allowedName?: string;
  buckets: readonly Bucket<Counted>[];
  span: Span;
  onZoom: (span: Span) => void;
}

export function RateChart(props: RateChartProps) {
  const { title, allowedName = 'Allowed', buckets, span, onZoom } = props;
  const ratesOf = (field: 'allowed' | 'denied') => {
    return buckets.map(({ value }) => (value[field] * 1_000) / value.ms);
  };
  return (
    <Chart
      title={title}
      note={resolutionOf(buckets, span)}
      buckets={buckets}
      series={[
        { name: allowedName, meaning: 'allowed', values: ratesOf('allowed') },
        { name: 'Denied', meaning: 'denied', values: ratesOf('denied') },
      ]}
      isStacked
      format={formatRate}
      span={span}
      onZoom={onZoom}
    />
  );
}
