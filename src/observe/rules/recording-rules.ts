/**
 * The recording rules. A name has the labels that remain, the metric, and the operations:
 * `job_namespace:weir_decisions:rate5m`.
 */

import type { RecordingRule } from './alert.ts';

/** The 50th, 90th, 99th and 99.9th percentile of a histogram, by their names in a rule. */
const PERCENTILES = { p50: 0.5, p90: 0.9, p99: 0.99, p999: 0.999 } as const;

function percentiles(
  histogram: `weir_${string}_seconds`,
  subject: string,
): Record<string, RecordingRule> {
  return Object.fromEntries(
    Object.entries(PERCENTILES).map(([name, share]) => [
      `job_instance:${histogram}:${name}_rate5m`,
      {
        expr:
          `histogram_quantile(${share}, ` +
          `sum by (job, instance, le) (rate(${histogram}_bucket[5m])))`,
        meaning: `The time in seconds within which ${share * 100} % of ${subject} ended.`,
      },
    ]),
  );
}

export const RECORDING_RULES: Readonly<Record<string, RecordingRule>> = {
  'job_namespace:weir_decisions:rate5m': {
    expr: 'sum by (job, namespace) (rate(weir_decisions_total[5m]))',
    meaning: 'Checks per second, by namespace.',
  },
  'job_namespace:weir_denied_decisions:rate5m': {
    expr: 'sum by (job, namespace) (rate(weir_decisions_total{outcome="denied"}[5m]))',
    meaning: 'Denied checks per second, by namespace.',
  },
  'job_namespace:weir_denied_decisions:ratio_rate5m': {
    expr:
      'sum by (job, namespace) (rate(weir_decisions_total{outcome="denied"}[5m])) / ' +
      'sum by (job, namespace) (rate(weir_decisions_total[5m]))',
    meaning: 'Share of the checks that were denied, by namespace.',
  },
  'job_namespace:weir_allowed_tokens:rate5m': {
    expr: 'sum by (job, namespace) (rate(weir_tokens_total{outcome="allowed"}[5m]))',
    meaning: 'Tokens used per second, by namespace.',
  },
  'job_instance_status_code:weir_errors:rate5m': {
    expr: 'sum by (job, instance, status, code) (rate(weir_errors_total[5m])) > 0',
    meaning: 'Errors per second, by status and code. Codes without an error have no series.',
  },
  'job_instance:weir_counters_live:ratio': {
    expr: 'weir_counters_live / weir_counters_capacity',
    meaning: 'Used share of the table.',
  },
  ...percentiles('weir_check_duration_seconds', 'the check requests'),
  ...percentiles('weir_redis_call_duration_seconds', 'the calls to Redis'),
};
