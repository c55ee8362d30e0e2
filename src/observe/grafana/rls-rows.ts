/** The panels of Envoy's rate limit service, for servers that have it on. */

import { gaugeQuery, type Row, rateQuery } from './panel.ts';

export const RLS_ROWS: readonly Row[] = [
  {
    title: 'Rate limit service',
    isCollapsed: true,
    panels: [
      {
        title: 'Calls of gateways',
        metrics: ['weir_rls_calls_total'],
        queries: [rateQuery('weir_rls_calls_total', ['instance', 'result'])],
      },
      {
        title: 'Hits by limit',
        metrics: ['weir_rls_hits_total'],
        queries: [rateQuery('weir_rls_hits_total', ['limit', 'result'])],
      },
      {
        title: 'Calls for an unknown domain',
        metrics: ['weir_rls_unknown_domain_calls_total'],
        queries: [rateQuery('weir_rls_unknown_domain_calls_total')],
      },
      {
        title: 'Connections of gateways',
        metrics: ['weir_rls_connections'],
        queries: [gaugeQuery('weir_rls_connections')],
      },
      {
        title: 'Loads of rules',
        metrics: ['weir_rls_rule_loads_total'],
        queries: [rateQuery('weir_rls_rule_loads_total', ['instance', 'result'])],
      },
      {
        title: 'Rules are those of the files',
        metrics: ['weir_rls_rules_current'],
        max: 1,
        queries: [gaugeQuery('weir_rls_rules_current')],
      },
    ],
  },
];
