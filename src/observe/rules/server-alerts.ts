/** The alerts for every weir, with either engine. */

import { BOUNDS } from '../bounds.ts';
import { type Alert, JOB_MATCHER } from './alert.ts';

export const SERVER_ALERTS: Readonly<Record<string, Alert>> = {
  WeirDown: {
    expr: `up{${JOB_MATCHER}} == 0`,
    for: '1m',
    severity: 'page',
    summary: 'Prometheus cannot scrape weir at {{ $labels.instance }}',
    meaning: 'The process has ended, or Prometheus does not reach its admin port.',
    remedy: 'Check the process first, then the address and the firewall of the admin port.',
    see: 'operations.md#troubleshooting',
  },
  WeirNamespaceDenies: {
    // Below one check a second, a single client changes the share too much.
    expr:
      `job_namespace:weir_denied_decisions:ratio_rate5m > ${BOUNDS.deniedShare} ` +
      'and job_namespace:weir_decisions:rate5m > 1',
    for: '5m',
    severity: 'ticket',
    summary:
      'Namespace {{ $labels.namespace }} denies {{ $value | humanizePercentage }} of its checks',
    meaning: 'More than 20 % of the checks of a namespace were denied for 5 minutes.',
    remedy:
      'Find out whether one client sends too many requests, or the limit is too low for all. ' +
      'Replace 20 % by a share that is unusual for your clients.',
    see: 'metrics.md#decisions',
  },
  WeirLiveEvictions: {
    expr: 'increase(weir_live_evictions_total[10m]) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.instance }} evicted live counters',
    meaning: 'The table was full, so weir evicted live counters. Limits are not exact.',
    remedy:
      'Raise `WEIR_COUNTERS`, or find the namespace with unusually many checks: ' +
      '`job_namespace:weir_decisions:rate5m`.',
    see: 'operations.md#counters',
  },
  WeirTableFull: {
    expr: 'increase(weir_full_table_decisions_total[10m]) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.instance }} had no slot for new counters',
    meaning: 'New counters found no slot, and `WEIR_ON_FULL` decided their checks.',
    remedy: 'Raise `WEIR_COUNTERS`.',
    see: 'operations.md#counters',
  },
  WeirTableNearlyFull: {
    expr: `job_instance:weir_counters_live:ratio > ${BOUNDS.tableShare}`,
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its table',
    meaning: 'The table will be too small at the next peak.',
    remedy: 'Raise `WEIR_COUNTERS` before 100 % is reached.',
    see: 'operations.md#counters',
  },
  WeirHoldsFull: {
    expr: 'increase(weir_full_hold_decisions_total[10m]) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.instance }} had no room for reservations or leases',
    meaning: 'Reservations or leases found no room, and `WEIR_ON_FULL` decided them.',
    remedy:
      'Find out whether clients forget to commit and to release: many holds then end by their ' +
      '`ttl`, which `weir_expired_holds_total` counts. Otherwise raise `WEIR_HOLDS`; with ' +
      '`WEIR_ENGINE=redis` perhaps the `maxmemory` of Redis too.',
    see: 'reservations.md#full-table',
  },
  WeirShedding: {
    expr: 'increase(weir_shed_total[5m]) > 0',
    for: '5m',
    severity: 'page',
    summary: '{{ $labels.instance }} rejects requests: bound on {{ $labels.reason }}',
    meaning: 'Requests are rejected because a bound is reached. `reason` names the bound.',
    remedy:
      'For `connections`, raise `WEIR_CONNECTIONS`, or find the client that opens them. ' +
      'For `pipelined`, find the client that does not await responses; for `lists`, the slow ' +
      'patterns. For another reason, find the client that sends or reads slowly.',
    see: 'operations.md#overload',
  },
  WeirConnectionsNearBound: {
    expr: `weir_connections / weir_connections_capacity > ${BOUNDS.connectionsShare}`,
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} uses {{ $value | humanizePercentage }} of its connections',
    meaning: 'weir will reject new connections at the bound.',
    remedy: 'Raise `WEIR_CONNECTIONS` and the limit of open files.',
    see: 'operations.md#connections',
  },
  WeirInternalErrors: {
    expr: 'increase(weir_errors_total{status="500"}[10m]) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.instance }} failed in requests: {{ $labels.code }}',
    meaning: 'weir failed in a request, and responded with a 500.',
    remedy: 'Find `a request failed` in the log, and report it.',
    see: 'operations.md#crashes',
  },
  WeirUnavailable: {
    expr: 'sum by (job, instance) (increase(weir_errors_total{status="503"}[10m])) > 0',
    for: '10m',
    severity: 'page',
    summary: '{{ $labels.instance }} responds with 503',
    meaning: 'Requests got a 503: overload, a store that cannot write, or a failed shard worker.',
    remedy: 'Compare with WeirShedding. Look for `warn` and `error` in the log.',
    see: 'operations.md#overload',
  },
  WeirGatewayFailures: {
    expr: 'increase(weir_gateway_failures_total[10m]) > 0',
    for: '0m',
    severity: 'page',
    summary: '{{ $labels.instance }} failed in gateway checks: {{ $labels.decision }}',
    meaning: 'weir failed in gateway checks, and `onError` of the policy decided.',
    remedy: 'Find `a request failed` in the log.',
    see: 'policies.md#failures',
  },
  WeirGatewayMisconfigured: {
    expr: 'sum by (job, code) (rate(weir_errors_total{status=~"401|403|404"}[10m])) > 1',
    for: '10m',
    severity: 'ticket',
    summary: '{{ $labels.job }} rejects clients: {{ $labels.code }}',
    meaning:
      'More than one request a second has an invalid key, lacks a permission, or names a ' +
      'namespace without a policy.',
    remedy:
      'Set `WEIR_LOG_LEVEL=debug` to see the paths. Check the keys of the clients and the ' +
      'namespaces of the gateways.',
    see: 'operations.md#log',
  },
  WeirWorkersMissing: {
    expr: 'weir_workers_running < max_over_time(weir_workers_running[1d])',
    for: '1m',
    severity: 'page',
    summary: '{{ $labels.instance }} has only {{ $value }} responsive shard workers',
    meaning:
      'Fewer shard workers run than at some time in the last day. Some shards have no sweeps ' +
      'and checkpoints. This alert also fires for a day after you lower `WEIR_WORKERS`.',
    remedy: 'Find `a shard worker is replaced` in the log, with its cause.',
    see: 'operations.md#crashes',
  },
  WeirWorkersReplaced: {
    expr: 'increase(weir_workers_replaced_total[1h]) > 0',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} replaced a shard worker',
    meaning: 'A shard worker failed or did not respond, and was replaced.',
    remedy: 'Find its cause in the log, and report it.',
    see: 'operations.md#crashes',
  },
  WeirQueueEntriesLost: {
    expr: 'increase(weir_queue_entries_lost_total[1h]) > 0',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} dropped entries of its queues',
    meaning:
      'Two shard workers failed at one queue entry. A deduction is missing, or a check got a 503.',
    remedy: 'Find the cause of both failures in the log, and report it.',
    see: 'operations.md#crashes',
  },
  WeirCheckpointsFail: {
    expr: 'increase(weir_checkpoint_failures_total[10m]) > 0',
    for: '5m',
    severity: 'page',
    summary: '{{ $labels.instance }} cannot write its counters',
    meaning: 'Counters cannot be written. A restart would lose them.',
    remedy: 'Free space on the disk. Check the rights of the data directory.',
    see: 'operations.md#checkpoints',
  },
  WeirCheckpointsOld: {
    expr: `weir_checkpoint_age_seconds > ${BOUNDS.checkpointAgeS}`,
    for: '5m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} last wrote its counters {{ $value | humanizeDuration }} ago',
    meaning:
      'A `kill -9` would lose the decisions of more than 30 s. The threshold is for the default ' +
      '`WEIR_CHECKPOINT_MS`.',
    remedy:
      'The disk or the shard workers are too slow. Raise `WEIR_WORKERS`, or use a faster disk.',
    see: 'operations.md#checkpoints',
  },
  WeirRateLimitRulesInvalid: {
    expr: 'weir_rls_rules_current == 0',
    for: '2m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} applies old rules of the rate limit service',
    meaning: 'A file in `WEIR_RLS_CONFIG` is invalid, so no change of the files applies.',
    remedy: 'The log and /readyz name the file and the line. `weir rls validate` checks a folder.',
    see: 'envoy-rate-limit-service.md#reload',
  },
  WeirClockOffset: {
    expr: 'abs(weir_clock_offset_seconds) > 1',
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} is {{ $value | humanizeDuration }} off the system clock',
    meaning:
      "The system clock was set back. Windows last up to a ninth longer until weir's clock " +
      'agrees with it.',
    remedy: 'Repair the time synchronization of the machine.',
    see: 'concepts.md#time',
  },
  WeirSlow: {
    expr: `job_instance:weir_check_duration_seconds:p99_rate5m > ${BOUNDS.checkP99S}`,
    for: '10m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} needs {{ $value | humanizeDuration }} for a check',
    meaning: 'One check request in a hundred takes longer than 10 ms inside weir.',
    remedy: 'Give weir more CPU. Look for override patterns with many wildcards.',
    see: 'operations.md#threads-and-cpu',
  },
  WeirAnalyticsNotWritten: {
    expr: 'increase(weir_analytics_write_failures_total[5m]) > 0',
    for: '5m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} cannot write its analytics',
    meaning: 'Writes to the database of the analytics fail. A restart would lose figures.',
    remedy: 'The log has the cause. Check the disk of the data directory.',
    see: 'operations.md#log',
  },
  WeirEventsDropped: {
    expr: 'increase(weir_events_total{outcome="dropped"}[10m]) > 0',
    for: '0m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} drops events of decisions',
    meaning: 'Events are made faster than they are written, or they cannot be written.',
    remedy: 'The log has the cause of failed writes. Else write a sample: `WEIR_EVENTS_ONE_IN`.',
    see: 'events.md#what-is-lost',
  },
  WeirUnidentified: {
    expr: 'sum by (job, namespace) (rate(weir_unidentified_checks_total[10m])) > 1',
    for: '10m',
    severity: 'ticket',
    summary: 'Checks of namespace {{ $labels.namespace }} lack a part of their identity',
    meaning:
      'Gateway checks lack a part of their identity. With `missing: share` they share one counter.',
    remedy: 'Check `identify` of the policy, and the headers that the gateway sends.',
    see: 'policies.md#identity',
  },
  WeirCpuBound: {
    expr: `rate(process_cpu_seconds_total{${JOB_MATCHER}}[5m]) > 1.8`,
    for: '15m',
    severity: 'ticket',
    summary: '{{ $labels.instance }} uses {{ $value | humanize }} cores',
    meaning: 'weir uses more than 1.8 cores. Replace 1.8 by 0.9 × the number of its cores.',
    remedy: 'Add cores and acceptors, or move clients to batches.',
    see: 'operations.md#threads-and-cpu',
  },
};
