/** The panels for machines that share their counters in Redis. */

import { gaugeQuery, percentileQueries, type Row, rateQuery, ratioQuery } from './panel.ts';

export const CLUSTER_ROWS: readonly Row[] = [
  {
    title: 'Redis',
    isCollapsed: true,
    panels: [
      {
        title: 'Shard workers that use Redis',
        metrics: ['weir_redis_connected'],
        max: 1,
        queries: [gaugeQuery('weir_redis_connected', ['instance', 'worker'])],
      },
      {
        title: 'Checks decided without Redis',
        metrics: ['weir_engine_down_decisions_total'],
        queries: [rateQuery('weir_engine_down_decisions_total', ['instance', 'outcome'])],
      },
      {
        title: 'Openings of circuit breakers',
        metrics: ['weir_redis_breaker_openings_total'],
        queries: [rateQuery('weir_redis_breaker_openings_total')],
      },
      {
        title: 'Time of a call',
        metrics: ['weir_redis_call_duration_seconds'],
        queries: percentileQueries('weir_redis_call_duration_seconds'),
      },
      {
        title: 'Calls',
        metrics: ['weir_redis_calls_total', 'weir_redis_call_failures_total'],
        queries: [
          rateQuery('weir_redis_calls_total', ['instance'], 'sent'),
          rateQuery('weir_redis_call_failures_total', ['instance'], 'failed'),
        ],
      },
      {
        title: 'Calls for each check',
        metrics: [],
        description: 'Calls to Redis divided by decisions. Leases keep it far below 1.',
        unit: 'none',
        queries: [ratioQuery('weir_redis_calls_total', 'weir_decisions_total')],
      },
      {
        title: 'Errors of Redis',
        metrics: ['weir_redis_errors_total'],
        queries: [rateQuery('weir_redis_errors_total', ['instance', 'kind'])],
      },
      {
        title: 'Clocks',
        metrics: ['weir_redis_clock_lag_seconds', 'weir_redis_clock_offset_seconds'],
        isSigned: true,
        queries: [
          gaugeQuery('weir_redis_clock_lag_seconds', ['instance'], 'lag of Redis'),
          gaugeQuery('weir_redis_clock_offset_seconds', ['instance'], 'offset'),
        ],
      },
    ],
  },
  {
    title: 'Leases',
    isCollapsed: true,
    panels: [
      {
        title: 'Token requests',
        metrics: ['weir_token_requests_total'],
        queries: [rateQuery('weir_token_requests_total')],
      },
      {
        title: 'Leases',
        metrics: [
          'weir_leases_granted_total',
          'weir_leases_returned_total',
          'weir_leases_recalled_total',
          'weir_leases_written_off_total',
        ],
        queries: [
          rateQuery('weir_leases_granted_total', ['instance'], 'granted'),
          rateQuery('weir_leases_returned_total', ['instance'], 'returned'),
          rateQuery('weir_leases_recalled_total', ['instance'], 'recalled'),
          rateQuery('weir_leases_written_off_total', ['instance'], 'written off'),
        ],
      },
      {
        title: 'Tokens of leases',
        metrics: ['weir_leased_tokens_total', 'weir_returned_tokens_total'],
        queries: [
          rateQuery('weir_leased_tokens_total', ['instance'], 'leased'),
          rateQuery('weir_returned_tokens_total', ['instance'], 'returned'),
        ],
      },
      {
        title: 'Denials without a proof',
        metrics: ['weir_unproven_denials_total'],
        queries: [rateQuery('weir_unproven_denials_total', ['instance', 'cause'])],
      },
    ],
  },
  {
    title: 'Machines with one Redis',
    isCollapsed: true,
    panels: [
      {
        title: 'Machines',
        metrics: ['weir_cluster_machines'],
        queries: [gaugeQuery('weir_cluster_machines')],
      },
      {
        title: 'State of a machine',
        metrics: ['weir_cluster_joined', 'weir_cluster_recovering'],
        max: 1,
        queries: [
          gaugeQuery('weir_cluster_joined', ['instance'], 'joined'),
          gaugeQuery('weir_cluster_recovering', ['instance'], 'recovering'),
        ],
      },
      {
        title: 'Recoveries',
        metrics: ['weir_recoveries_total'],
        queries: [rateQuery('weir_recoveries_total', ['instance', 'outcome'])],
      },
      {
        title: 'Tokens possibly over a limit',
        metrics: ['weir_tokens_possibly_over_limit_total'],
        queries: [rateQuery('weir_tokens_possibly_over_limit_total')],
      },
      {
        title: 'Version of the registry',
        metrics: ['weir_registry_version'],
        queries: [gaugeQuery('weir_registry_version')],
      },
      {
        title: 'Age of the registry',
        metrics: ['weir_registry_age_seconds'],
        queries: [gaugeQuery('weir_registry_age_seconds')],
      },
    ],
  },
];
