/** Where the axes of a chart have their ticks: at round values, and at round times of the zone. */

import type { Span } from './buckets.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const STEPS_MS = [
  ...[1, 2, 5, 10, 15, 30].map((count) => count * SECOND_MS),
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE_MS),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR_MS),
  ...[1, 2, 7, 14, 30].map((count) => count * DAY_MS),
];

/** A logarithmic axis of more decades has no ticks within them. */
const FINE_DECADES_MAX = 2;

/** From 0 to a round value that is not below the highest one. */
export function valueTicks(highest: number, count: number): number[] {
  const rough = (highest > 0 ? highest : 1) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((one) => one * unit >= rough * (1 - 1e-9)) ?? 10;
  const step = factor * unit;
  const steps = Math.max(1, Math.ceil((highest / step) * (1 - 1e-9)));
  return Array.from({ length: steps + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

/** The same for a logarithmic axis: its first tick is not above the lowest value. */
export function logarithmicTicks(lowest: number, highest: number): number[] {
  const first = Math.floor(Math.log10(lowest) + 1e-9);
  const last = Math.max(first + 1, Math.ceil(Math.log10(highest) - 1e-9));
  const factors = last - first > FINE_DECADES_MAX ? [1] : [1, 2, 5];
  const decades = Array.from({ length: last - first }, (_, i) => 10 ** (first + i));
  return [...decades.flatMap((unit) => factors.map((factor) => factor * unit)), 10 ** last];
}

export function timeTicks({ start, end }: Span, countMax: number) {
  const rough = (end - start) / countMax;
  const stepMs = STEPS_MS.find((step) => step >= rough) ?? Math.ceil(rough / DAY_MS) * DAY_MS;
  const aheadMs = new Date(start).getTimezoneOffset() * MINUTE_MS;
  const times: number[] = [];
  let ms = Math.ceil((start - aheadMs) / stepMs) * stepMs + aheadMs;
  for (; ms <= end; ms += stepMs) times.push(ms);
  return { stepMs, times };
}
