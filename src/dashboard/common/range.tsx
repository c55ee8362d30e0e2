/** The time that figures are shown for. */

import { useState } from 'preact/hooks';
import { Select } from './controls.tsx';

const HOUR_MS = 3_600_000;
const RANGES = {
  '1h': { text: 'Last hour', ms: HOUR_MS, granularity: 'minute' },
  '6h': { text: 'Last 6 hours', ms: 6 * HOUR_MS, granularity: 'minute' },
  '24h': { text: 'Last 24 hours', ms: 24 * HOUR_MS, granularity: 'minute' },
  '7d': { text: 'Last 7 days', ms: 168 * HOUR_MS, granularity: 'hour' },
} as const;

export type Range = keyof typeof RANGES;

export function useRange(): [Range, (range: Range) => void] {
  return useState<Range>('1h');
}

/** Start and end in Unix ms. */
export function rangeOf(range: Range): { start: number; end: number } {
  const end = Date.now();
  return { start: end - RANGES[range].ms, end };
}

export function granularityOf(range: Range): 'minute' | 'hour' {
  return RANGES[range].granularity;
}

export function RangeSelect({ range, onChoose }: { range: Range; onChoose: (it: Range) => void }) {
  return (
    <Select
      label="Time"
      value={range}
      onChoose={(value) => onChoose(value as Range)}
      options={Object.entries(RANGES).map(([name, { text }]) => [name, text] as const)}
    />
  );
}
