/**
 * Series of decisions by namespace, and of gateway checks in which weir failed. The first
 * METRIC_NAMESPACES_MAX namespaces have series of their own; the others share OTHER_NAMESPACE, a
 * name that no namespace can have. A new namespace appears when it is durable.
 */

import { NAMESPACE_ID_PREFIX } from '../core/constants.ts';
import type { Registry } from '../registry/registry.ts';
import {
  ACCEPTOR_STAT,
  type AcceptorStats,
  NAMESPACE_STAT,
  OTHER_NAMESPACES_ROW,
  totalOf,
} from '../shared-memory/stats.ts';
import type { MetricSeries, Sample } from './series.ts';

export const OTHER_NAMESPACE = `${NAMESPACE_ID_PREFIX}other`;

export function registerDecisionSeries(
  series: MetricSeries,
  acceptors: readonly AcceptorStats[],
  registry: Registry,
): void {
  /** @param stat one of NAMESPACE_STAT */
  const byNamespace = (stat: number, labels: Record<string, string> = {}): Sample[] => {
    const rows = [
      ...registry.statsRowNames().entries(),
      [OTHER_NAMESPACES_ROW, OTHER_NAMESPACE] as const,
    ];
    return rows.map(([row, namespace]) => {
      const total = acceptors.reduce((sum, stats) => sum + stats.namespaceRow(row)[stat], 0);
      return [{ namespace, ...labels }, total];
    });
  };
  const byOutcome = (name: string, help: string, allowed: number, denied: number) => {
    series.counter(name, help, ['namespace', 'outcome'], () => [
      ...byNamespace(allowed, { outcome: 'allowed' }),
      ...byNamespace(denied, { outcome: 'denied' }),
    ]);
  };
  byOutcome(
    'weir_decisions_total',
    'Decisions, by namespace and outcome.',
    NAMESPACE_STAT.allowed,
    NAMESPACE_STAT.denied,
  );
  byOutcome(
    'weir_tokens_total',
    'Costs of the checks decided, by namespace and outcome.',
    NAMESPACE_STAT.tokensAllowed,
    NAMESPACE_STAT.tokensDenied,
  );
  series.counter(
    'weir_shadow_denials_total',
    'Gateway checks that were denied, whose request a policy with shadow let pass.',
    ['namespace'],
    () => byNamespace(NAMESPACE_STAT.shadowDenials),
  );
  series.counter(
    'weir_unidentified_checks_total',
    'Gateway checks whose request lacked what the policy identifies clients by.',
    ['namespace'],
    () => byNamespace(NAMESPACE_STAT.unidentifiedChecks),
  );
  series.counter(
    'weir_gateway_failures_total',
    'Gateway checks in which weir failed, by the decision that onError of the policy made.',
    ['decision'],
    () => [
      [{ decision: 'allow' }, totalOf(acceptors, ACCEPTOR_STAT.failuresAllowed)],
      [{ decision: 'deny' }, totalOf(acceptors, ACCEPTOR_STAT.failuresDenied)],
    ],
  );
}
