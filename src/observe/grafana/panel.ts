/**
 * The shape of a panel of the Grafana dashboard, and the expressions and legends that panels share.
 * An expression reads only servers and namespaces that the variables of the dashboard select.
 */

import {
  type CounterName,
  type GaugeName,
  type HistogramName,
  type MetricName,
  metricDeclaration,
} from '../metric-declarations.ts';

export interface Query {
  expr: string;
  /** With labels, as `{{instance}}`. */
  legend: string;
}

export interface Panel {
  title: string;
  /**
   * The metrics whose panel this is: each metric has one. Their help texts are the description.
   * Without a metric, the panel calculates with metrics of other panels.
   */
  metrics: readonly MetricName[];
  /** Required without metrics. */
  description?: string;
  /** A unit of Grafana. By default that of the first metric, per second for a counter. */
  unit?: string;
  queries: readonly Query[];
  /** The highest value of the axis. */
  max?: 1;
  /** Whether values may be negative. */
  isSigned?: true;
  /** The latest values as text, instead of a graph. */
  isText?: true;
  /** The latest value as a number, instead of a graph. Green below the first of these bounds. */
  stat?: readonly Bound[];
}

/** A value from which a number has another colour: that of a ticket, or of a page. */
export interface Bound {
  from: number;
  color: 'orange' | 'red';
}

export interface Row {
  title: string;
  panels: readonly Panel[];
  /** For details, and for metrics that not every server has. */
  isCollapsed?: true;
}

/** The labels of the result, in the order of the legend. */
type Labels = readonly string[];

const BY_INSTANCE: Labels = ['instance'];
const QUANTILES = [0.5, 0.9, 0.99, 0.999] as const;
const WINDOW = '$__rate_interval';

interface Selection {
  /** A series of a histogram, instead of the metric itself. */
  series?: string;
  /** One matcher more, as `outcome="denied"`. */
  matcher?: string;
  /** Whether the variable for namespaces does not apply. */
  isOfAllNamespaces?: boolean;
}

/** The series that the variables select. */
export function select(name: MetricName, selection: Selection = {}): string {
  const { series = name, matcher, isOfAllNamespaces = false } = selection;
  const variables = ['job', 'instance'];
  if (hasNamespace(name) && !isOfAllNamespaces) variables.push('namespace');
  const matchers = variables.map((label) => `${label}=~"$${label}"`);
  if (matcher !== undefined) matchers.push(matcher);
  return `${series}{${matchers.join(', ')}}`;
}

function hasNamespace(name: MetricName): boolean {
  return Object.hasOwn(metricDeclaration(name).labels ?? {}, 'namespace');
}

export function rate(name: CounterName, selection?: Selection): string {
  return `rate(${select(name, selection)}[${WINDOW}])`;
}

export function sumBy(labels: Labels, expr: string): string {
  return `sum by (${labels.join(', ')}) (${expr})`;
}

/** A counter per second. @param text of the legend after the labels */
export function rateQuery(name: CounterName, labels: Labels = BY_INSTANCE, text = ''): Query {
  return { expr: sumBy(labels, rate(name)), legend: legendOf(labels, text) };
}

/** A gauge. It is not summed, so its legend needs all of its labels. */
export function gaugeQuery(name: GaugeName, labels: Labels = BY_INSTANCE, text = ''): Query {
  return { expr: select(name), legend: legendOf(labels, text) };
}

/** The share of the events of a counter with a label, as `outcome="denied"`. */
export function shareQuery(name: CounterName, matcher: string, labels: Labels): Query {
  const expr = `${sumBy(labels, rate(name, { matcher }))} / ${sumBy(labels, rate(name))}`;
  return { expr, legend: legendOf(labels) };
}

/** A counter of each server divided by another one, of all namespaces. */
export function ratioQuery(part: CounterName, whole: CounterName): Query {
  const [divided, by] = [part, whole].map((name) => {
    return sumBy(BY_INSTANCE, rate(name, { isOfAllNamespaces: true }));
  });
  return { expr: `${divided} / ${by}`, legend: legendOf(BY_INSTANCE) };
}

/** Percentiles of all selected servers together. */
export function percentileQueries(name: HistogramName): Query[] {
  return QUANTILES.map((share) => {
    return { expr: quantile(share, name, ['le']), legend: `${share * 100} %` };
  });
}

/** The 99th percentile of each server. */
export function slowestQuery(name: HistogramName): Query {
  const labels = [...BY_INSTANCE, 'le'];
  return { expr: quantile(0.99, name, labels), legend: legendOf(BY_INSTANCE) };
}

/** The 99th percentile of all selected servers together. */
export function p99Query(name: HistogramName): Query {
  return { expr: quantile(0.99, name, ['le']), legend: '' };
}

function quantile(share: number, name: HistogramName, labels: Labels): string {
  const buckets = `rate(${select(name, { series: `${name}_bucket` })}[${WINDOW}])`;
  return `histogram_quantile(${share}, ${sumBy(labels, buckets)})`;
}

function legendOf(labels: Labels, text = ''): string {
  return [...labels.map((label) => `{{${label}}}`), text].join(' ').trim();
}
