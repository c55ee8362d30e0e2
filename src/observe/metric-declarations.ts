/**
 * All metrics: what /metrics has, and what docs/metrics.md says about them. `metrics.ts` and
 * `decision-series.ts` read their values. Those of namespaces are declared with their counts.
 */

import { METRIC_NAMESPACES_MAX, RLS_HIT_PATHS_MAX } from '../core/constants.ts';
import { countsOf, NAMESPACE_METRICS, type NamespaceMetric } from '../core/figures.ts';
import { OTHER_NAMESPACE } from '../core/namespace.ts';
import { REDIS_ERROR_KINDS } from '../redis/errors.ts';
import { HIT_COUNTS, OTHER_PATH } from '../rls/hit-counts.ts';
import { FAULT_REASONS } from './faults.ts';

/** The groups of the documentation, in its order. */
export const METRIC_GROUPS = [
  'Health',
  'Decisions',
  'Gateways',
  'Rate limit service',
  'Requests',
  'Overload',
  'Counters',
  'Reservations and leases',
  'Checkpoints',
  'Queues',
  'Workers',
  'Cluster',
  'Records',
  'Process',
] as const;

interface MetricDeclaration {
  group: (typeof METRIC_GROUPS)[number];
  type: 'counter' | 'gauge' | 'histogram';
  /** What one of the value is. */
  unit: string;
  /** The labels by name, with their values. */
  labels?: Readonly<Record<string, string>>;
  help: string;
  /** The only value of WEIR_ENGINE with which the metric exists. */
  engine?: 'memory' | 'redis';
  /** Whether it exists only where the rate limit service is on. */
  needsRls?: true;
}

const holdKind = '`reservation`, `lease`';
const namespace =
  `name of one of the first ${METRIC_NAMESPACES_MAX} namespaces, ` +
  `\`${OTHER_NAMESPACE}\` for all others`;
const outcome = '`allowed`, `denied`';
const decision = '`allow`, `deny`';
/** Why a request was rejected under overload. */
export const SHED_REASONS = [
  'connections',
  'bodies',
  'operations',
  'changes',
  'unread_responses',
  'pipelined',
  'lists',
] as const;

const worker = 'number of the shard worker, from 0';
const deductionOutcome = '`applied`, `window_ended`, `table_full`';

export const METRICS = {
  weir_degraded: {
    group: 'Health',
    type: 'gauge',
    unit: '1',
    labels: { reason: FAULT_REASONS.map((reason) => `\`${reason}\``).join(', ') },
    help: 'Whether weir is degraded for this reason (1), or not (0).',
  },
  ...namespaceMetrics(),
  weir_overridden_checks_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'checks',
    help: 'Checks whose limit came from an override.',
  },
  weir_refunds_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'requests',
    help: 'Refunds.',
  },
  weir_refunded_tokens_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'tokens',
    help: 'Tokens refunded.',
  },
  weir_counters_reset_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'counters',
    help: 'Counters removed by resets.',
  },
  weir_analytics_write_failures_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'writes',
    help: 'Writes to the database of the analytics that failed. The figures wait in memory.',
  },
  weir_events_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'events',
    labels: { outcome: '`written`, `dropped`' },
    help: 'Decisions that became events: none unless WEIR_EVENTS is set.',
  },
  weir_gateway_failures_total: {
    group: 'Gateways',
    type: 'counter',
    unit: 'checks',
    labels: { decision },
    help: 'Gateway checks in which weir failed, by the decision that onError of the policy made.',
  },
  weir_rls_calls_total: {
    group: 'Rate limit service',
    type: 'counter',
    unit: 'calls',
    labels: { result: '`ok`, `over_limit`, `fault`' },
    help: 'Calls of the rate limit service, by result. A fault has a gRPC status other than 0.',
    needsRls: true,
  },
  weir_rls_unknown_domain_calls_total: {
    group: 'Rate limit service',
    type: 'counter',
    unit: 'calls',
    help: 'Calls for a domain without rules. They are allowed.',
    needsRls: true,
  },
  weir_rls_hits_total: {
    group: 'Rate limit service',
    type: 'counter',
    unit: 'hits',
    labels: {
      limit:
        `path of one of the first ${RLS_HIT_PATHS_MAX} limits, ` +
        `\`${OTHER_PATH}\` for all others`,
      result: HIT_COUNTS.map((name) => `\`${name}\``).join(', '),
    },
    help: 'Hits of limits, as envoyproxy/ratelimit counts them. `near_limit` is above 80 %.',
    needsRls: true,
  },
  weir_rls_rule_loads_total: {
    group: 'Rate limit service',
    type: 'counter',
    unit: 'loads',
    labels: { result: '`success`, `error`' },
    help: 'Times that the files of the rules were read. An error changes no rule.',
    needsRls: true,
  },
  weir_rls_rules_current: {
    group: 'Rate limit service',
    type: 'gauge',
    unit: '1',
    help: '1 while the rules are those of the files, 0 while older ones apply.',
    needsRls: true,
  },
  weir_rls_connections: {
    group: 'Rate limit service',
    type: 'gauge',
    unit: 'connections',
    help: 'Open connections to the rate limit service.',
    needsRls: true,
  },
  weir_check_duration_seconds: {
    group: 'Requests',
    type: 'histogram',
    unit: 'seconds',
    help: 'Time from the last byte of a check, over HTTP or gRPC, to its response.',
  },
  weir_errors_total: {
    group: 'Requests',
    type: 'counter',
    unit: 'requests',
    labels: { status: 'HTTP status', code: '[code of the error](errors.md#codes)' },
    help: 'Requests answered with an error, by HTTP status and code.',
  },
  weir_unknown_field_requests_total: {
    group: 'Requests',
    type: 'counter',
    unit: 'requests',
    labels: { operation: 'operation of v1' },
    help: 'Valid requests with fields that weir does not know and ignores, by operation.',
  },
  weir_undelivered_responses_total: {
    group: 'Requests',
    type: 'counter',
    unit: 'checks',
    help: 'Checks whose client disconnected before the response.',
  },
  weir_connections: {
    group: 'Overload',
    type: 'gauge',
    unit: 'connections',
    help: 'Open connections to the acceptors.',
  },
  weir_connections_capacity: {
    group: 'Overload',
    type: 'gauge',
    unit: 'connections',
    help: 'Connections that may be open at once.',
  },
  weir_shed_total: {
    group: 'Overload',
    type: 'counter',
    unit: 'requests',
    labels: { reason: SHED_REASONS.map((reason) => `\`${reason}\``).join(', ') },
    help: 'Overload rejections on all listeners, by the bound that was reached.',
  },
  weir_counters_live: {
    group: 'Counters',
    type: 'gauge',
    unit: 'counters',
    help: 'Live counters in the last sweep.',
  },
  weir_counters_capacity: {
    group: 'Counters',
    type: 'gauge',
    unit: 'counters',
    help: 'Live counters that the table holds without an eviction.',
  },
  weir_table_slots: {
    group: 'Counters',
    type: 'gauge',
    unit: 'slots',
    help: 'Slots of the table.',
  },
  weir_expired_counters_total: {
    group: 'Counters',
    type: 'counter',
    unit: 'counters',
    help: 'Expired counters removed.',
  },
  weir_live_evictions_total: {
    group: 'Counters',
    type: 'counter',
    unit: 'counters',
    help: 'Live counters evicted to insert a new counter. Limits are exact while this is 0.',
  },
  weir_full_table_decisions_total: {
    group: 'Counters',
    type: 'counter',
    unit: 'checks',
    labels: { decision },
    help: 'Checks without a slot for their counter, by the decision that WEIR_ON_FULL made.',
  },
  weir_holds_live: {
    group: 'Reservations and leases',
    engine: 'memory',
    type: 'gauge',
    unit: 'records',
    labels: { kind: holdKind },
    help: 'Reservations and leases that have not ended.',
  },
  weir_holds_capacity: {
    group: 'Reservations and leases',
    engine: 'memory',
    type: 'gauge',
    unit: 'records',
    help: 'Reservations and leases that can be recorded, a sixteenth of them in each shard.',
  },
  weir_held_tokens: {
    group: 'Reservations and leases',
    engine: 'memory',
    type: 'gauge',
    unit: 'tokens',
    labels: { kind: holdKind },
    help: 'Tokens of the reservations that have not ended, and tokens in use by leases.',
  },
  weir_reservations_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'reservations',
    help: 'Reservations that were allowed and recorded.',
  },
  weir_reservation_commits_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'requests',
    help: 'Commits of known reservations, repetitions included.',
  },
  weir_late_commits_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'requests',
    help: 'Commits that came after the expiry of their reservation.',
  },
  weir_reservation_cancellations_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'requests',
    help: 'Cancellations of known reservations, repetitions included.',
  },
  weir_lease_wait_seconds: {
    group: 'Reservations and leases',
    engine: 'memory',
    type: 'gauge',
    unit: 'seconds',
    help: 'How long no lease is granted yet, after a crash with WEIR_ON_LOST_LEASES=wait.',
  },
  weir_lease_releases_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'leases',
    help: 'Leases released by their owners, or by an operator.',
  },
  weir_expired_holds_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'records',
    help: 'Reservations and leases ended by their expiry, where a shard worker has ended them.',
  },
  weir_full_hold_decisions_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'requests',
    labels: { decision },
    help: 'Holds without room for a record, by the decision that WEIR_ON_FULL made.',
  },
  weir_repeated_requests_total: {
    group: 'Reservations and leases',
    type: 'counter',
    unit: 'requests',
    help: 'Requests that repeated a requestId, and got the answer of the first one.',
  },
  weir_checkpoints_total: {
    group: 'Checkpoints',
    type: 'counter',
    unit: 'checkpoints',
    help: 'Checkpoints of a shard written.',
  },
  weir_checkpoint_failures_total: {
    group: 'Checkpoints',
    type: 'counter',
    unit: 'checkpoints',
    help: 'Checkpoints of a shard that could not be written.',
  },
  weir_checkpoint_age_seconds: {
    group: 'Checkpoints',
    type: 'gauge',
    unit: 'seconds',
    help: 'Every decision older than this is in a file. Absent until each shard has a checkpoint.',
  },
  weir_queue_entries: {
    group: 'Queues',
    type: 'gauge',
    unit: 'entries',
    labels: { worker },
    help: 'Entries that wait in the queues, by shard worker.',
  },
  weir_queue_checks_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'checks',
    help: 'Checks put into the queues.',
  },
  weir_queue_deductions_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'deductions',
    help: 'Deductions put into the queues.',
  },
  weir_queue_deduction_tokens_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'tokens',
    help: 'Tokens of the deductions put into the queues.',
  },
  weir_queue_full_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'checks',
    help: 'Checks decided in place because a queue was full or the worker was late.',
  },
  weir_queue_withdrawn_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'checks',
    help: 'Checks withdrawn from a late worker and decided in place.',
  },
  weir_queue_entries_repeated_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'entries',
    help:
      'Queue entries that a shard worker had claimed when it died, processed again by the next ' +
      'one.',
  },
  weir_queue_entries_lost_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'entries',
    help: 'Queue entries dropped because two shard workers died while they processed them.',
  },
  weir_deductions_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'deductions',
    labels: { outcome: deductionOutcome },
    help:
      'Deductions of asynchronous checks, by outcome: applied, dropped because their window had ' +
      'ended, or dropped because the table was full.',
  },
  weir_deduction_tokens_total: {
    group: 'Queues',
    type: 'counter',
    unit: 'tokens',
    labels: { outcome: deductionOutcome },
    help: 'Tokens of the deductions of asynchronous checks, by outcome.',
  },
  weir_worker_decisions_total: {
    group: 'Workers',
    type: 'counter',
    unit: 'checks',
    help: 'Checks decided by shard workers.',
  },
  weir_workers_running: {
    group: 'Workers',
    type: 'gauge',
    unit: 'shard workers',
    help: 'Shard workers that run and are responsive.',
  },
  weir_workers_replaced_total: {
    group: 'Workers',
    type: 'counter',
    unit: 'shard workers',
    help: 'Shard workers that failed, or failed to start, and were replaced.',
  },
  weir_redis_connected: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: '1',
    labels: { worker },
    help: 'Whether the shard worker uses Redis (1), or its circuit breaker is open (0).',
  },
  weir_redis_breaker_openings_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'openings',
    help: 'Times that a circuit breaker has opened, because Redis did not respond.',
  },
  weir_redis_calls_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'calls',
    help: 'Script calls that shard workers have sent to Redis.',
  },
  weir_redis_call_failures_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'calls',
    help: 'Script calls that failed, had no answer in time, or had an invalid answer.',
  },
  weir_redis_call_duration_seconds: {
    group: 'Cluster',
    engine: 'redis',
    type: 'histogram',
    unit: 'seconds',
    help: 'Time from a script call to its answer.',
  },
  weir_redis_errors_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'calls',
    labels: { kind: REDIS_ERROR_KINDS.map((kind) => `\`${kind}\``).join(', ') },
    help: 'Calls of shard workers to Redis that failed, by kind of the error.',
  },
  weir_redis_clock_lag_seconds: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: 'seconds',
    help: 'How far the clock of the windows is ahead of that of Redis, which was set back.',
  },
  weir_redis_clock_offset_seconds: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: 'seconds',
    help: 'How far the clock of the windows is ahead of the system clock; negative: behind it.',
  },
  weir_token_requests_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'messages',
    help: 'Token requests: messages about one counter. A call carries up to 16.',
  },
  weir_leases_granted_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'leases',
    help: 'Leases that Redis has granted to this machine.',
  },
  weir_leased_tokens_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'tokens',
    help: 'Tokens of the leases that Redis has granted to this machine.',
  },
  weir_leases_returned_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'leases',
    help: 'Leases of which unspent tokens were returned.',
  },
  weir_returned_tokens_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'tokens',
    help: 'Unspent tokens of leases returned.',
  },
  weir_leases_recalled_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'leases',
    help: 'Recalls by other machines that this machine has answered.',
  },
  weir_leases_written_off_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'leases',
    help: 'Leases of other machines that were written off, because they did not answer a recall.',
  },
  weir_unproven_denials_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'checks',
    labels: { cause: '`recall`, `write_off`, `shared`, `recovery`, `joining`, `without_redis`' },
    help:
      'Checks that were denied although they may have been within their limit, by cause: a ' +
      'machine did not answer a recall in time; tokens of such a machine count as used; machines ' +
      'that share a used-up sliding window leave a few tokens to each other; Redis had lost ' +
      'usage; this machine had just started; WEIR_ON_ENGINE_DOWN decided.',
  },
  weir_recoveries_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'recoveries',
    labels: { outcome: '`complete`, `incomplete`' },
    help:
      'Ended recoveries of a Redis that had lost its memory, by outcome: all machines have ' +
      'reported, or some were gone or removed with weir cluster forget.',
  },
  weir_tokens_possibly_over_limit_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'tokens',
    labels: { namespace },
    help:
      'Tokens that Redis granted to this machine where it had lost usage, and not all machines ' +
      'had reported theirs, by namespace. At most so many are over the limits, added up over ' +
      'machines.',
  },
  weir_engine_down_decisions_total: {
    group: 'Cluster',
    engine: 'redis',
    type: 'counter',
    unit: 'checks',
    labels: { outcome },
    help: 'Checks decided without Redis by WEIR_ON_ENGINE_DOWN, by outcome.',
  },
  weir_cluster_machines: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: 'machines',
    help: 'Machines that share the counters, with this one. 1 until Redis has answered.',
  },
  weir_cluster_joined: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: '1',
    help: 'Whether the live machines know this one. Redis grants it nothing before.',
  },
  weir_cluster_recovering: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: '1',
    help: 'Whether Redis has lost counters, and not all machines have reported theirs.',
  },
  weir_registry_version: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: '1',
    help: 'Version of the overrides, keys and namespaces that this machine uses.',
  },
  weir_registry_age_seconds: {
    group: 'Cluster',
    engine: 'redis',
    type: 'gauge',
    unit: 'seconds',
    help: 'Time since this machine last read the version of the registry in Redis.',
  },
  weir_overrides: {
    group: 'Records',
    type: 'gauge',
    unit: 'overrides',
    labels: { kind: '`exact`, `wildcard`, `block`' },
    help:
      'Overrides without a wildcard (exact), and with one or of a CIDR block (wildcard), and ' +
      'blocks of identifiers (block).',
  },
  weir_keys: {
    group: 'Records',
    type: 'gauge',
    unit: 'keys',
    help: 'API keys.',
  },
  weir_namespaces: {
    group: 'Records',
    type: 'gauge',
    unit: 'namespaces',
    help: 'Namespaces.',
  },
  weir_policies: {
    group: 'Records',
    type: 'gauge',
    unit: 'policies',
    help: 'Active gateway policies.',
  },
  weir_policies_loaded_timestamp_seconds: {
    group: 'Records',
    type: 'gauge',
    unit: 'seconds',
    help: 'Unix time at which the active policies were read: at the start, or by a reload.',
  },
  weir_write_transactions_total: {
    group: 'Records',
    type: 'counter',
    unit: 'transactions',
    help: 'Transactions that wrote changes, each followed by one publication.',
  },
  process_start_time_seconds: {
    group: 'Process',
    type: 'gauge',
    unit: 'seconds',
    help: 'Unix time at which the process has started.',
  },
  weir_build_info: {
    group: 'Process',
    type: 'gauge',
    unit: '1',
    labels: {
      version: 'version of weir',
      node: 'version of Node',
      uws: 'package and version of uWebSockets.js',
    },
    help: 'Always 1. The labels name the versions of weir, Node and uWebSockets.js.',
  },
  weir_clock_offset_seconds: {
    group: 'Process',
    type: 'gauge',
    unit: 'seconds',
    help: "How far weir's time is ahead of the system clock.",
  },
  process_resident_memory_bytes: {
    group: 'Process',
    type: 'gauge',
    unit: 'bytes',
    help: 'Resident memory.',
  },
  process_cpu_seconds_total: {
    group: 'Process',
    type: 'counter',
    unit: 'seconds',
    help: 'User and system time of all threads.',
  },
} as const satisfies Record<string, MetricDeclaration>;

export type MetricName = keyof typeof METRICS;
type NamesOf<Type extends MetricDeclaration['type']> = {
  [Name in MetricName]: (typeof METRICS)[Name]['type'] extends Type ? Name : never;
}[MetricName];
export type CounterName = NamesOf<'counter'>;
export type GaugeName = NamesOf<'gauge'>;
export type HistogramName = NamesOf<'histogram'>;

/** The declarations of the counts of namespaces. */
function namespaceMetrics() {
  const names = Object.keys(NAMESPACE_METRICS) as NamespaceMetric[];
  const declared = names.map((name) => {
    const { group, unit, help } = NAMESPACE_METRICS[name];
    const outcomes = countsOf(name).flatMap((count) => count.outcome ?? []);
    const values = outcomes.map((value) => `\`${value}\``).join(', ');
    const labels = { namespace, ...(outcomes.length > 0 && { outcome: values }) };
    return [name, { group, type: 'counter', unit, labels, help }];
  });
  return Object.fromEntries(declared) as Record<
    NamespaceMetric,
    MetricDeclaration & { type: 'counter' }
  >;
}

export function metricDeclaration(name: MetricName): MetricDeclaration {
  return METRICS[name];
}
