/**
 * What was decided, by namespace, and what gateways were answered where there was nothing to
 * decide. A namespace has series of its own while it is among the first METRIC_NAMESPACES_MAX; the
 * others share OTHER_NAMESPACE, a name that no namespace can have. A new one appears when it is
 * durable.
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
  /** Of each namespace, what all acceptors have counted. @param at one of TALLY */
  const byNamespace = (at: number, labels: Record<string, string> = {}): Sample[] => {
    const rows = [
      ...registry.statsRowNames().entries(),
      [OTHER_NAMESPACES_ROW, OTHER_NAMESPACE] as const,
    ];
    return rows.map(([row, namespace]) => {
      const sum = acceptors.reduce((total, lane) => total + lane.namespaceRow(row)[at], 0);
      return [{ namespace, ...labels }, sum];
    });
  };
  const byOutcome = (name: string, help: string, admitted: number, refused: number) => {
    series.counter(name, help, ['namespace', 'outcome'], () => [
      ...byNamespace(admitted, { outcome: 'admitted' }),
      ...byNamespace(refused, { outcome: 'refused' }),
    ]);
  };
  byOutcome(
    'weir_decisions_total',
    'Checks decided, by namespace and outcome.',
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
    'weir_shadow_refusals_total',
    'Checks of gateways that were refused, and let through by a policy that only tries.',
    ['namespace'],
    () => byNamespace(NAMESPACE_STAT.shadowDenials),
  );
  series.counter(
    'weir_unidentified_checks_total',
    'Checks of gateways whose callers their policy could not tell from others.',
    ['namespace'],
    () => byNamespace(NAMESPACE_STAT.unidentifiedChecks),
  );
  series.counter(
    'weir_gateway_failures_total',
    'Checks of gateways in which weir failed, by what their policy had them answered.',
    ['answer'],
    () => [
      [{ answer: 'allow' }, totalOf(acceptors, ACCEPTOR_STAT.failuresAllowed)],
      [{ answer: 'deny' }, totalOf(acceptors, ACCEPTOR_STAT.failuresDenied)],
    ],
  );
}
