/** The details of every weir, with either engine. */

import { namespacePanels } from './namespace-panels.ts';
import {
  gaugeQuery,
  percentileQueries,
  type Row,
  rate,
  rateQuery,
  select,
  sumBy,
} from './panel.ts';

export const SERVER_ROWS: readonly Row[] = [
  {
    title: 'Events and analytics',
    isCollapsed: true,
    panels: [
      {
        title: 'Events of decisions',
        metrics: ['weir_events_total'],
        queries: [rateQuery('weir_events_total', ['instance', 'outcome'])],
      },
      {
        title: 'Failed writes of analytics',
        metrics: ['weir_analytics_write_failures_total'],
        queries: [rateQuery('weir_analytics_write_failures_total')],
      },
    ],
  },
  {
    title: 'Latency',
    isCollapsed: true,
    panels: [
      {
        title: 'Time of a check request',
        metrics: ['weir_check_duration_seconds'],
        queries: percentileQueries('weir_check_duration_seconds'),
      },
    ],
  },
  {
    title: 'Errors and overload',
    isCollapsed: true,
    panels: [
      {
        title: 'Requests with unknown fields',
        metrics: ['weir_unknown_field_requests_total'],
        queries: [
          {
            // Most operations have none.
            expr: `${sumBy(['operation'], rate('weir_unknown_field_requests_total'))} > 0`,
            legend: '{{operation}}',
          },
        ],
      },
      {
        title: 'Connections',
        metrics: ['weir_connections', 'weir_connections_capacity'],
        queries: [
          gaugeQuery('weir_connections', ['instance'], 'open'),
          gaugeQuery('weir_connections_capacity', ['instance'], 'capacity'),
        ],
      },
      {
        title: 'Undelivered responses',
        metrics: ['weir_undelivered_responses_total'],
        queries: [rateQuery('weir_undelivered_responses_total')],
      },
    ],
  },
  {
    title: 'Table of counters',
    isCollapsed: true,
    panels: [
      {
        title: 'Live counters',
        metrics: ['weir_counters_live', 'weir_counters_capacity'],
        queries: [
          gaugeQuery('weir_counters_live', ['instance'], 'live'),
          gaugeQuery('weir_counters_capacity', ['instance'], 'capacity'),
        ],
      },
      {
        title: 'Expired counters removed',
        metrics: ['weir_expired_counters_total'],
        queries: [rateQuery('weir_expired_counters_total')],
      },
    ],
  },
  {
    title: 'Reservations and leases',
    isCollapsed: true,
    panels: [
      {
        title: 'Live records',
        metrics: ['weir_holds_live', 'weir_holds_capacity'],
        queries: [
          gaugeQuery('weir_holds_live', ['instance', 'kind']),
          gaugeQuery('weir_holds_capacity', ['instance'], 'capacity'),
        ],
      },
      {
        title: 'Held tokens',
        metrics: ['weir_held_tokens'],
        queries: [gaugeQuery('weir_held_tokens', ['instance', 'kind'])],
      },
      {
        title: 'Reservations and their ends',
        metrics: [
          'weir_reservations_total',
          'weir_reservation_commits_total',
          'weir_late_commits_total',
          'weir_reservation_cancellations_total',
        ],
        unit: 'cps',
        queries: [
          rateQuery('weir_reservations_total', ['instance'], 'reserved'),
          rateQuery('weir_reservation_commits_total', ['instance'], 'committed'),
          rateQuery('weir_late_commits_total', ['instance'], 'committed late'),
          rateQuery('weir_reservation_cancellations_total', ['instance'], 'cancelled'),
        ],
      },
      ...namespacePanels('Reservations and leases'),
      {
        title: 'Leases released',
        metrics: ['weir_lease_releases_total'],
        queries: [rateQuery('weir_lease_releases_total')],
      },
      {
        title: 'Wait for lost leases',
        metrics: ['weir_lease_wait_seconds'],
        queries: [gaugeQuery('weir_lease_wait_seconds')],
      },
      {
        title: 'Ended by their expiry',
        metrics: ['weir_expired_holds_total'],
        queries: [rateQuery('weir_expired_holds_total')],
      },
      {
        title: 'Without room for a record',
        metrics: ['weir_full_hold_decisions_total'],
        queries: [rateQuery('weir_full_hold_decisions_total', ['instance', 'decision'])],
      },
      {
        title: 'Repeated requests',
        metrics: ['weir_repeated_requests_total'],
        queries: [rateQuery('weir_repeated_requests_total')],
      },
    ],
  },
  {
    title: 'Queues and threads',
    isCollapsed: true,
    panels: [
      {
        title: 'Waiting queue entries',
        metrics: ['weir_queue_entries'],
        queries: [gaugeQuery('weir_queue_entries', ['instance', 'worker'])],
      },
      {
        title: 'Entries put into queues',
        metrics: ['weir_queue_checks_total', 'weir_queue_deductions_total'],
        unit: 'count:entries/s',
        queries: [
          rateQuery('weir_queue_checks_total', ['instance'], 'checks'),
          rateQuery('weir_queue_deductions_total', ['instance'], 'deductions'),
        ],
      },
      {
        title: 'Decided in place because of a queue',
        metrics: ['weir_queue_full_total', 'weir_queue_withdrawn_total'],
        queries: [
          rateQuery('weir_queue_full_total', ['instance'], 'full or late'),
          rateQuery('weir_queue_withdrawn_total', ['instance'], 'withdrawn'),
        ],
      },
      {
        title: 'Deductions of asynchronous checks',
        metrics: ['weir_deductions_total'],
        queries: [rateQuery('weir_deductions_total', ['instance', 'outcome'])],
      },
      {
        title: 'Tokens of deductions',
        metrics: ['weir_queue_deduction_tokens_total', 'weir_deduction_tokens_total'],
        queries: [
          rateQuery('weir_queue_deduction_tokens_total', ['instance'], 'queued'),
          rateQuery('weir_deduction_tokens_total', ['instance', 'outcome']),
        ],
      },
      {
        title: 'Queue entries of failed workers',
        metrics: ['weir_queue_entries_repeated_total', 'weir_queue_entries_lost_total'],
        queries: [
          rateQuery('weir_queue_entries_repeated_total', ['instance'], 'repeated'),
          rateQuery('weir_queue_entries_lost_total', ['instance'], 'lost'),
        ],
      },
      {
        title: 'Responsive shard workers',
        metrics: ['weir_workers_running'],
        queries: [gaugeQuery('weir_workers_running')],
      },
      {
        title: 'Replaced shard workers',
        metrics: ['weir_workers_replaced_total'],
        queries: [rateQuery('weir_workers_replaced_total')],
      },
      {
        title: 'Checks decided by shard workers',
        metrics: ['weir_worker_decisions_total'],
        queries: [rateQuery('weir_worker_decisions_total')],
      },
    ],
  },
  {
    title: 'Checkpoints',
    isCollapsed: true,
    panels: [
      {
        title: 'Age of the last checkpoint',
        metrics: ['weir_checkpoint_age_seconds'],
        queries: [gaugeQuery('weir_checkpoint_age_seconds')],
      },
      {
        title: 'Checkpoints',
        metrics: ['weir_checkpoints_total', 'weir_checkpoint_failures_total'],
        queries: [
          rateQuery('weir_checkpoints_total', ['instance'], 'written'),
          rateQuery('weir_checkpoint_failures_total', ['instance'], 'failed'),
        ],
      },
    ],
  },
  {
    title: 'Records',
    isCollapsed: true,
    panels: [
      {
        title: 'API keys and namespaces',
        metrics: ['weir_keys', 'weir_namespaces'],
        unit: 'short',
        queries: [
          gaugeQuery('weir_keys', ['instance'], 'keys'),
          gaugeQuery('weir_namespaces', ['instance'], 'namespaces'),
        ],
      },
    ],
  },
  {
    title: 'Process',
    isCollapsed: true,
    panels: [
      {
        title: 'Memory',
        metrics: ['process_resident_memory_bytes'],
        queries: [gaugeQuery('process_resident_memory_bytes')],
      },
      {
        title: 'Offset from the system clock',
        metrics: ['weir_clock_offset_seconds'],
        isSigned: true,
        queries: [gaugeQuery('weir_clock_offset_seconds')],
      },
      {
        title: 'Servers by version',
        metrics: ['weir_build_info'],
        unit: 'none',
        isText: true,
        queries: [
          {
            expr: `count by (version, node, uws) (${select('weir_build_info')})`,
            legend: 'weir {{version}}, Node {{node}}, {{uws}}',
          },
        ],
      },
    ],
  },
];
