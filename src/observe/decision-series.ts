/** Series of decisions by namespace, and of gateway checks in which weir failed. */

import type { StatsRows } from '../registry/stats-rows.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  NAMESPACE_STAT,
  totalOf,
} from '../shared-memory/stats.ts';
import type { CounterName } from './metric-declarations.ts';
import { namespaceCounts } from './namespace-counts.ts';
import type { MetricSeries, Sample } from './series.ts';

export function registerDecisionSeries(
  series: MetricSeries,
  acceptors: readonly AcceptorStats[],
  rows: StatsRows,
): void {
  /** @param stat one of NAMESPACE_STAT */
  const byNamespace = (stat: number, labels: Record<string, string> = {}): Sample[] => {
    return namespaceCounts(rows).map(({ name: namespace, total }): Sample => {
      return [{ namespace, ...labels }, total(stat)];
    });
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
