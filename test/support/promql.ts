/** Finds the series and the labels that a PromQL expression names. Does not check its syntax. */

import {
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../src/observe/metric-declarations.ts';
import { RECORDING_RULES } from '../../src/observe/rules/recording-rules.ts';

interface Selector {
  series: string;
  /** The labels in its matchers. */
  labels: string[];
}

interface References {
  selectors: Selector[];
  /** The labels of `by`, `on` and the like. */
  groupings: string[];
}

/** Labels that Prometheus adds to each series. */
const TARGET_LABELS = ['job', 'instance'];
const OPERATORS = ['and', 'or', 'unless', 'bool', 'offset', 'inf', 'nan'];
const GROUPING = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/gi;
/** A name that is not part of a longer one, and not that of a function. */
const NAME = /(?<![\w:.$])([a-z_][\w:]*)(?![\w:]|\s*\()\s*(\{[^}]*\})?/gi;

const names = (list: string) => [...list.matchAll(/\w+/g)].map(([name]) => name);

export function referencesOf(expr: string): References {
  const plain = expr.replace(/"(?:[^"\\]|\\.)*"/g, '""').replace(/\[[^\]]*\]/g, '');
  const groupings = [...plain.matchAll(GROUPING)].flatMap(([, list]) => names(list));
  const selectors = [...plain.replace(GROUPING, ' ').matchAll(NAME)]
    .filter(([, name]) => !OPERATORS.includes(name.toLowerCase()))
    .map(([, series, matchers = '']): Selector => {
      const labels = [...matchers.matchAll(/(\w+)\s*[=!]/g)].map(([, label]) => label);
      return { series, labels };
    });
  return { selectors, groupings };
}

/** The declared metric of a series of a histogram, or of the metric itself. */
export function metricOf(series: string): MetricName | undefined {
  const candidates = [series, series.replace(/_(bucket|sum|count)$/, '')];
  const name = candidates.find((candidate) => Object.hasOwn(METRICS, candidate));
  if (name === undefined) return undefined;
  const isHistogram = metricDeclaration(name as MetricName).type === 'histogram';
  return isHistogram === (name !== series) ? (name as MetricName) : undefined;
}

/** All labels of a series as Prometheus has it. @returns undefined if weir has no such series */
export function labelsOf(series: string): string[] | undefined {
  if (series === 'up') return TARGET_LABELS;
  if (Object.hasOwn(RECORDING_RULES, series)) return recordedLabels(series);
  const metric = metricOf(series);
  if (metric === undefined) return undefined;
  const { labels = {} } = metricDeclaration(metric);
  const ofBuckets = series.endsWith('_bucket') ? ['le'] : [];
  return [...TARGET_LABELS, ...Object.keys(labels), ...ofBuckets];
}

/** The first part of the name of a recorded series. */
function recordedLabels(series: string): string[] {
  return series.split(':')[0].split('_');
}

/** The metrics that an expression reads, also by recorded series. */
export function metricsOf(expr: string): Set<MetricName> {
  const found = referencesOf(expr).selectors.flatMap(({ series }) => {
    if (Object.hasOwn(RECORDING_RULES, series)) return [...metricsOf(RECORDING_RULES[series].expr)];
    return metricOf(series) ?? [];
  });
  return new Set(found);
}

/** The labels of the result: those of the first grouping, or those of the series. */
export function resultLabels(expr: string): string[] {
  const [, list] = /^(?:histogram_quantile\([\d.]+, )?sum by \(([^)]*)\)/.exec(expr) ?? [];
  if (list !== undefined) return names(list).filter((label) => label !== 'le');
  return labelsOf(referencesOf(expr).selectors[0].series) ?? [];
}

/** What is wrong with an expression: series and labels that do not exist. */
export function faultsOf(expr: string): string[] {
  const { selectors, groupings } = referencesOf(expr);
  const known = selectors.flatMap(({ series }) => labelsOf(series) ?? []);
  const unknownLabels = groupings.filter((label) => !known.includes(label));
  const perSeries = selectors.flatMap(({ series, labels }) => {
    const own = labelsOf(series);
    if (own === undefined) return [`${series} is not declared`];
    return labels
      .filter((label) => !own.includes(label))
      .map((label) => `${series} has no label ${label}`);
  });
  const none = selectors.length === 0 ? ['it names no series'] : [];
  return [...none, ...perSeries, ...unknownLabels.map((label) => `no series has ${label}`)];
}
