/** Series of decisions by namespace, and of gateway checks in which weir failed. */

import {
  type CountName,
  countsOf,
  NAMESPACE_METRICS,
  type NamespaceMetric,
} from '../core/figures.ts';
import type { StatsRows } from '../registry/stats-rows.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  NAMESPACE_STAT,
  totalOf,
} from '../shared-memory/stats.ts';
import { namespaceCounts } from './namespace-counts.ts';
import type { MetricSeries, Sample } from './series.ts';

export function registerDecisionSeries(
  series: MetricSeries,
  acceptors: readonly AcceptorStats[],
  rows: StatsRows,
): void {
  const byNamespace = (name: CountName, outcome: string | undefined): Sample[] => {
    return namespaceCounts(rows).map(({ name: namespace, total }): Sample => {
      const labels = { namespace, ...(outcome !== undefined && { outcome }) };
      return [labels, total(NAMESPACE_STAT[name])];
    });
  };
  for (const metric of Object.keys(NAMESPACE_METRICS) as NamespaceMetric[]) {
    const counts = countsOf(metric);
    series.counter(metric, () => counts.flatMap((count) => byNamespace(count.name, count.outcome)));
  }
  series.counter('weir_gateway_failures_total', () => [
    [{ decision: 'allow' }, totalOf(acceptors, ACCEPTOR_STAT.failuresAllowed)],
    [{ decision: 'deny' }, totalOf(acceptors, ACCEPTOR_STAT.failuresDenied)],
  ]);
}
