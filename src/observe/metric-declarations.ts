/**
 * All metrics: what /metrics has, and what docs/metrics.md says about them. `metrics.ts` and
 * `decision-series.ts` read their values.
 */

import { METRIC_NAMESPACES_MAX, NAMESPACE_ID_PREFIX } from '../core/constants.ts';

/** The groups of the documentation, in its order. */
export const METRIC_GROUPS = [
  'Decisions',
  'Gateways',
  'Requests',
  'Overload',
  'Counters',
  'Checkpoints',
  'Queues',
  'Workers',
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
}

/** The label `namespace` of all namespaces without series of their own. No namespace has it. */
export const OTHER_NAMESPACE = `${NAMESPACE_ID_PREFIX}other`;

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
] as const;

const deductionOutcome = '`applied`, `window_ended`, `table_full`';

export const METRICS = {
  weir_decisions_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'checks',
    labels: { namespace, outcome },
    help: 'Decisions, by namespace and outcome.',
  },
  weir_tokens_total: {
    group: 'Decisions',
    type: 'counter',
    unit: 'tokens',
    labels: { namespace, outcome },
    help: 'Costs of the checks decided, by namespace and outcome.',
  },
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
  weir_shadow_denials_total: {
    group: 'Gateways',
    type: 'counter',
    unit: 'checks',
    labels: { namespace },
    help: 'Denied gateway checks whose request passed because the policy has shadow.',
  },
  weir_unidentified_checks_total: {
    group: 'Gateways',
    type: 'counter',
    unit: 'checks',
    labels: { namespace },
    help: 'Gateway checks without a part of the identity that the policy names.',
  },
  weir_gateway_failures_total: {
    group: 'Gateways',
    type: 'counter',
    unit: 'checks',
    labels: { decision },
    help: 'Gateway checks in which weir failed, by the decision that onError of the policy made.',
  },
  weir_check_duration_seconds: {
    group: 'Requests',
    type: 'histogram',
    unit: 'seconds',
    help: 'Time from the last byte of a check request to its response.',
  },
  weir_errors_total: {
    group: 'Requests',
    type: 'counter',
    unit: 'requests',
    labels: { status: 'HTTP status', code: '[code of the error](errors.md#codes)' },
    help: 'Requests answered with an error, by HTTP status and code.',
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
    help: 'Overload rejections, by the bound that was reached.',
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
    labels: { worker: 'number of the shard worker, from 0' },
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
  weir_overrides: {
    group: 'Records',
    type: 'gauge',
    unit: 'overrides',
    labels: { kind: '`exact`, `wildcard`' },
    help: 'Overrides without a wildcard (exact) and with one (wildcard).',
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
  weir_write_transactions_total: {
    group: 'Records',
    type: 'counter',
    unit: 'transactions',
    help: 'Transactions that wrote changes, each followed by one publication.',
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

export function metricDeclaration(name: MetricName): MetricDeclaration {
  return METRICS[name];
}
