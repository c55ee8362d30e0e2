/**
 * Series of decisions by namespace, and of gateway checks in which weir failed. The first
 * METRIC_NAMESPACES_MAX namespaces have series of their own; the others share OTHER_NAMESPACE, a
 * name that no namespace can have. A new namespace appears when it is durable.
 */

import { METRIC_NAMESPACES_MAX } from '../core/constants.ts';
import { OTHER_NAMESPACE } from '../core/namespace.ts';
import type { Registry } from '../registry/registry.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  NAMESPACE_STAT,
  OTHER_NAMESPACES_ROW,
  totalOf,
} from '../shared-memory/stats.ts';
import type { CounterName } from './metric-declarations.ts';
import type { MetricSeries, Sample } from './series.ts';

export function registerDecisionSeries(
  series: MetricSeries,
  acceptors: readonly AcceptorStats[],
  registry: Registry,
): void {
  /** @param stat one of NAMESPACE_STAT */
  const byNamespace = (stat: number, labels: Record<string, string> = {}): Sample[] => {
    const totalOfRow = (row: number) => {
      return acceptors.reduce((sum, stats) => sum + stats.namespaceStat(row, stat), 0);
    };
    const names = registry.statsRowNames();
    let other = totalOfRow(OTHER_NAMESPACES_ROW);
    for (let row = METRIC_NAMESPACES_MAX; row < names.length; row++) other += totalOfRow(row);
    const own = names.slice(0, METRIC_NAMESPACES_MAX).map((namespace, row): Sample => {
      return [{ namespace, ...labels }, totalOfRow(row)];
    });
    return [...own, [{ namespace: OTHER_NAMESPACE, ...labels }, other]];
  };
  const byOutcome = (name: CounterName, allowed: number, denied: number) => {
    series.counter(name, () => [
      ...byNamespace(allowed, { outcome: 'allowed' }),
      ...byNamespace(denied, { outcome: 'denied' }),
    ]);
  };
  byOutcome('weir_decisions_total', NAMESPACE_STAT.allowed, NAMESPACE_STAT.denied);
  byOutcome('weir_tokens_total', NAMESPACE_STAT.tokensAllowed, NAMESPACE_STAT.tokensDenied);
  series.counter('weir_shadow_denials_total', () => byNamespace(NAMESPACE_STAT.shadowDenials));
  series.counter('weir_unidentified_checks_total', () =>
    byNamespace(NAMESPACE_STAT.unidentifiedChecks),
  );
  series.counter('weir_skipped_checks_total', () => byNamespace(NAMESPACE_STAT.skippedChecks));
  series.counter('weir_gateway_failures_total', () => [
    [{ decision: 'allow' }, totalOf(acceptors, ACCEPTOR_STAT.failuresAllowed)],
    [{ decision: 'deny' }, totalOf(acceptors, ACCEPTOR_STAT.failuresDenied)],
  ]);
}
