/** The histogram of the durations of checks, for Prometheus. */

import { Histogram } from 'prom-client';
import { LATENCY_BOUNDS_US } from '../shared-memory/stats.ts';

const METRIC = {
  name: 'weir_check_duration_seconds',
  help: 'Time from the last byte of a check to its answer.',
};

/** A histogram whose buckets are counted elsewhere. */
export class DurationHistogram extends Histogram {
  readonly #counts: () => Float64Array[];
  readonly #sumMs: () => number;

  constructor(counts: () => Float64Array[], sumMs: () => number) {
    super({ ...METRIC, registers: [] });
    this.#counts = counts;
    this.#sumMs = sumMs;
  }

  /** What the registry asks for: the text of the base class, with values from elsewhere. */
  async getForPromString() {
    const { name, help } = METRIC;
    const counts = this.#counts();
    const values: Awaited<ReturnType<Histogram['get']>>['values'] = [];
    let sum = 0;
    for (const [bucket, us] of [...LATENCY_BOUNDS_US, Number.POSITIVE_INFINITY].entries()) {
      sum += counts.reduce((n, lane) => n + lane[bucket], 0);
      const le = us === Number.POSITIVE_INFINITY ? '+Inf' : us / 1e6;
      values.push({ metricName: `${name}_bucket`, labels: { le }, value: sum });
    }
    values.push({ metricName: `${name}_sum`, labels: {}, value: this.#sumMs() / 1e3 });
    values.push({ metricName: `${name}_count`, labels: {}, value: sum });
    return { name, help, type: 'histogram', values, aggregator: 'sum' };
  }
}
