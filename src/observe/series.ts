/** The series of the declared metrics, whose values are read from their source at each scrape. */

import type { LabelValues } from 'prom-client';
import { requirePackage } from '../core/packages.ts';
import { LATENCY_BOUNDS_US } from '../shared-memory/stats.ts';
import {
  type CounterName,
  type GaugeName,
  type HistogramName,
  type MetricName,
  metricDeclaration,
} from './metric-declarations.ts';

const { Counter, Gauge, Histogram, Registry } = requirePackage('prom-client');

export type Sample = [labels: LabelValues<string>, value: number];

/** Counts by bucket, one more than there are bounds, and the sum of all observed values. */
interface HistogramValues {
  counts: readonly number[];
  sum: number;
}

/** Upper bounds of the buckets of all histograms of durations. */
export const LATENCY_BOUNDS_S = LATENCY_BOUNDS_US.map((us) => us / 1e6);

/** Adds up the counts of several threads by bucket. */
export function sumOfBuckets(threads: readonly Float64Array[]): number[] {
  return Array.from({ length: LATENCY_BOUNDS_US.length + 1 }, (_, bucket) => {
    return threads.reduce((sum, counts) => sum + counts[bucket], 0);
  });
}

export class MetricSeries {
  readonly contentType: string;
  readonly #registry = new Registry();

  constructor() {
    this.contentType = this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }

  unlabeledCounter(name: CounterName, read: () => number): void {
    this.counter(name, () => [[{}, read()]]);
  }

  unlabeledGauge(name: GaugeName, read: () => number): void {
    this.gauge(name, () => [[{}, read()]]);
  }

  counter(name: CounterName, read: () => Sample[]): void {
    new Counter({
      ...this.#configuration(name),
      collect() {
        this.reset();
        for (const [labels, value] of read()) this.inc(labels, value);
      },
    });
  }

  /** A gauge for which `read` returns no sample is left out of the scrape, instead of being 0. */
  gauge(name: GaugeName, read: () => Sample[]): void {
    const configuration = this.#configuration(name);
    const isUnlabeled = configuration.labelNames.length === 0;
    new Gauge({
      ...configuration,
      collect() {
        this.reset();
        // prom-client resets a gauge without labels to 0.
        if (isUnlabeled) this.remove();
        for (const [labels, value] of read()) this.set(labels, value);
      },
    });
  }

  /** @param bounds the upper bounds of the buckets; the last bucket has none */
  histogram(name: HistogramName, bounds: readonly number[], read: () => HistogramValues): void {
    const { help } = metricDeclaration(name);
    this.#registry.registerMetric(new ReadHistogram(name, help, bounds, read));
  }

  #configuration(name: MetricName) {
    const { help, labels = {} } = metricDeclaration(name);
    return { name, help, labelNames: Object.keys(labels), registers: [this.#registry] };
  }
}

/** A histogram whose values are counted elsewhere: prom-client's own counts each observation. */
class ReadHistogram extends Histogram {
  readonly #name: string;
  readonly #help: string;
  readonly #bounds: readonly number[];
  readonly #read: () => HistogramValues;

  constructor(name: string, help: string, bounds: readonly number[], read: () => HistogramValues) {
    super({ name, help, registers: [] });
    this.#name = name;
    this.#help = help;
    this.#bounds = bounds;
    this.#read = read;
  }

  /** Overrides what the registry calls for the text format. */
  async getForPromString() {
    const name = this.#name;
    const { counts, sum } = this.#read();
    const values: Awaited<ReturnType<typeof Histogram.prototype.get>>['values'] = [];
    let total = 0;
    for (const [bucket, count] of counts.entries()) {
      total += count;
      const le = this.#bounds[bucket] ?? '+Inf';
      values.push({ metricName: `${name}_bucket`, labels: { le }, value: total });
    }
    values.push({ metricName: `${name}_sum`, labels: {}, value: sum });
    values.push({ metricName: `${name}_count`, labels: {}, value: total });
    return { name, help: this.#help, type: 'histogram', values, aggregator: 'sum' };
  }
}
