/** The tables of all metrics, one part for each group. */

import {
  METRIC_GROUPS,
  METRICS,
  type MetricName,
  metricDeclaration,
} from '../../src/observe/metric-declarations.ts';
import { inlineCode, markdownTable } from './markdown.ts';

type MetricGroup = (typeof METRIC_GROUPS)[number];

/** By the name of the part, as in `metrics-decisions`. */
export const METRIC_PARTS: Readonly<Record<string, () => string>> = Object.fromEntries(
  METRIC_GROUPS.map((group) => [`metrics-${group.toLowerCase()}`, () => metricsTable(group)]),
);

function metricsTable(group: MetricGroup): string {
  const names = (Object.keys(METRICS) as MetricName[]).filter((name) => {
    return metricDeclaration(name).group === group;
  });
  const rows = names.map((name) => {
    const { type, unit, labels = {}, help } = metricDeclaration(name);
    const labelLines = Object.entries(labels).map(([label, values]) => {
      return `${inlineCode(label)}: ${values}`;
    });
    return [inlineCode(name), type, unit, labelLines.join('<br>'), help];
  });
  return markdownTable(['metric', 'type', 'unit', 'labels', 'meaning'], rows);
}
