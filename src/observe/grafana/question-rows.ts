/**
 * The rows that are open: the questions of a person on call. The rows below have the details.
 * Numbers are coloured by the bounds of the alerts.
 */

import { NEARLY_FULL_SHARE } from '../../core/constants.ts';
import { BOUNDS } from '../bounds.ts';
import { namespacePanels } from './namespace-panels.ts';
import {
  gaugeQuery,
  p99Query,
  type Row,
  rate,
  rateQuery,
  select,
  shareQuery,
  slowestQuery,
  sumBy,
} from './panel.ts';

const [CHECKS, ...OTHER_DECISIONS] = namespacePanels('Decisions');
const TABLE_SHARE = `${select('weir_counters_live')} / ${select('weir_counters_capacity')}`;
const DENIED = 'outcome="denied"';

export const QUESTION_ROWS: readonly Row[] = [
  {
    title: 'Is it healthy?',
    panels: [
      {
        title: 'Checks per second',
        metrics: [],
        description: 'Checks per second of the selected namespaces.',
        unit: 'count:checks/s',
        stat: [],
        queries: [{ expr: sumBy([], rate('weir_decisions_total')), legend: '' }],
      },
      {
        title: 'Denied',
        metrics: [],
        description: 'Share of the checks of the selected namespaces that were denied.',
        unit: 'percentunit',
        stat: [{ from: BOUNDS.deniedShare, color: 'orange' }],
        queries: [shareQuery('weir_decisions_total', DENIED, [])],
      },
      {
        title: '99th percentile',
        metrics: [],
        description: 'Time within which 99 % of the check requests ended, inside weir.',
        unit: 's',
        stat: [{ from: BOUNDS.checkP99S, color: 'orange' }],
        queries: [p99Query('weir_check_duration_seconds')],
      },
      {
        title: 'Fullest table',
        metrics: [],
        description: 'Live counters as a share of the capacity, of the server with most.',
        unit: 'percentunit',
        stat: [
          { from: BOUNDS.tableShare, color: 'orange' },
          { from: NEARLY_FULL_SHARE, color: 'red' },
        ],
        queries: [{ expr: `max by () (${TABLE_SHARE})`, legend: '' }],
      },
      {
        title: 'Degraded servers',
        metrics: [],
        description: 'Servers that are degraded. They decide checks; the next panels say why.',
        unit: 'none',
        stat: [{ from: 1, color: 'red' }],
        queries: [
          { expr: `sum by () (max by (job, instance) (${select('weir_degraded')}))`, legend: '' },
        ],
      },
      {
        title: 'Shortest time since a start',
        metrics: ['process_start_time_seconds'],
        description: 'Time since the last start of a selected server.',
        unit: 's',
        stat: [],
        queries: [
          { expr: `time() - max by () (${select('process_start_time_seconds')})`, legend: '' },
        ],
      },
      {
        title: 'Degraded, by reason',
        metrics: ['weir_degraded'],
        max: 1,
        queries: [
          {
            expr: `${select('weir_degraded')} > 0`,
            legend: '{{instance}} {{reason}}',
          },
        ],
      },
      {
        title: '99th percentile by server',
        metrics: [],
        description: 'Time within which 99 % of the check requests of a server ended.',
        unit: 's',
        queries: [slowestQuery('weir_check_duration_seconds')],
      },
      {
        title: 'Errors',
        metrics: ['weir_errors_total'],
        queries: [
          {
            // Most codes have no errors.
            expr: `${sumBy(['status', 'code'], rate('weir_errors_total'))} > 0`,
            legend: '{{status}} {{code}}',
          },
        ],
      },
      {
        title: 'Rejections under overload',
        metrics: ['weir_shed_total'],
        queries: [rateQuery('weir_shed_total', ['instance', 'reason'])],
      },
      {
        title: 'Used share of the table',
        metrics: [],
        description: 'Live counters as a share of the capacity. Above 100 % weir may evict some.',
        unit: 'percentunit',
        queries: [
          {
            expr: TABLE_SHARE,
            legend: '{{instance}}',
          },
        ],
      },
      {
        title: 'CPU',
        metrics: ['process_cpu_seconds_total'],
        unit: 'count:cores',
        queries: [rateQuery('process_cpu_seconds_total')],
      },
    ],
  },
  {
    title: 'Who is denied?',
    panels: [
      CHECKS,
      {
        title: 'Share of denied checks',
        metrics: [],
        description:
          'Share of the checks of a namespace that were denied. weir top and the dashboard of ' +
          'weir show the identifiers.',
        unit: 'percentunit',
        max: 1,
        queries: [shareQuery('weir_decisions_total', DENIED, ['namespace'])],
      },
      ...OTHER_DECISIONS,
      ...namespacePanels('Gateways'),
    ],
  },
  {
    title: 'Why: limits, overrides, policies',
    panels: [
      {
        title: 'Checks with an override',
        metrics: ['weir_overridden_checks_total'],
        queries: [rateQuery('weir_overridden_checks_total')],
      },
      {
        title: 'Overrides',
        metrics: ['weir_overrides'],
        queries: [gaugeQuery('weir_overrides', ['instance', 'kind'])],
      },
      {
        title: 'Policies',
        metrics: ['weir_policies'],
        queries: [gaugeQuery('weir_policies')],
      },
      {
        title: 'Age of the policies',
        metrics: ['weir_policies_loaded_timestamp_seconds'],
        description: 'Time since the active policies were read.',
        queries: [
          {
            expr: `time() - ${select('weir_policies_loaded_timestamp_seconds')}`,
            legend: '{{instance}}',
          },
        ],
      },
      {
        title: 'Failures decided by onError',
        metrics: ['weir_gateway_failures_total'],
        queries: [rateQuery('weir_gateway_failures_total', ['instance', 'decision'])],
      },
      {
        title: 'Checks without a slot',
        metrics: ['weir_full_table_decisions_total'],
        queries: [rateQuery('weir_full_table_decisions_total', ['instance', 'decision'])],
      },
      {
        title: 'Evictions of live counters',
        metrics: ['weir_live_evictions_total'],
        queries: [rateQuery('weir_live_evictions_total')],
      },
      {
        title: 'Write transactions',
        metrics: ['weir_write_transactions_total'],
        queries: [rateQuery('weir_write_transactions_total')],
      },
      {
        title: 'Refunds',
        metrics: ['weir_refunds_total', 'weir_refunded_tokens_total'],
        unit: 'cps',
        queries: [
          rateQuery('weir_refunds_total', ['instance'], 'refunds'),
          rateQuery('weir_refunded_tokens_total', ['instance'], 'tokens'),
        ],
      },
      {
        title: 'Counters reset',
        metrics: ['weir_counters_reset_total'],
        queries: [rateQuery('weir_counters_reset_total')],
      },
    ],
  },
];
