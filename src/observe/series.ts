/** Series of metrics, each of which is read from its source when somebody asks. */

import { Counter, Gauge, type LabelValues, type Metric, Registry } from 'prom-client';

export type Sample = [labels: LabelValues<string>, value: number];

export class MetricSeries {
  readonly contentType: string;
  readonly #registry = new Registry();

  constructor() {
    this.contentType = this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }

  register(metric: Metric): void {
    this.#registry.registerMetric(metric);
  }

  /** A counter without labels. */
  unlabeledCounter(name: string, help: string, read: () => number): void {
    this.counter(name, help, [], () => [[{}, read()]]);
  }

  /** A gauge without labels. */
  unlabeledGauge(name: string, help: string, read: () => number): void {
    this.gauge(name, help, [], () => [[{}, read()]]);
  }

  counter(name: string, help: string, labelNames: string[], read: () => Sample[]): void {
    new Counter({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const [labels, value] of read()) this.inc(labels, value);
      },
    });
  }

  gauge(name: string, help: string, labelNames: string[], read: () => Sample[]): void {
    new Gauge({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const [labels, value] of read()) this.set(labels, value);
      },
    });
  }
}
