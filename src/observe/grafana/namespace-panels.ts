/** The panels of the counts of namespaces, which are declared with the counts. */

import { NAMESPACE_METRICS, type NamespaceMetric } from '../../core/figures.ts';
import { metricDeclaration } from '../metric-declarations.ts';
import { type Panel, rateQuery } from './panel.ts';

/** @param group of their metrics */
export function namespacePanels(
  group: (typeof NAMESPACE_METRICS)[NamespaceMetric]['group'],
): Panel[] {
  const names = Object.keys(NAMESPACE_METRICS) as NamespaceMetric[];
  return names
    .filter((name) => NAMESPACE_METRICS[name].group === group)
    .map((name): Panel => {
      const labels = Object.keys(metricDeclaration(name).labels ?? {});
      return {
        title: NAMESPACE_METRICS[name].panel,
        metrics: [name],
        queries: [rateQuery(name, labels)],
      };
    });
}
