/** GET /v1/analytics.getNamespaces. Failures are ApiErrors, in the order 400, 403, 503. */

import Type from 'typebox';
import { GRANULARITY_MS } from '../../../analytics/granularity.ts';
import { ANALYTICS_NAMESPACES_PAGE_MAX, PAGE_MAX } from '../../../core/constants.ts';
import type { Figures } from '../../../core/figures.ts';
import { namespaceKey, OTHER_NAMESPACE } from '../../../core/namespace.ts';
import {
  HOURS_OF_A_DAY,
  rangeFields,
  rangeOf,
  requireAnalytics,
  requireHours,
  requireSomeAnalytics,
  shownFigures,
  shownRange,
} from '../../common/analytics.ts';
import { RESPONSE_BYTES, type Result, readOperation } from '../../common/operation.ts';
import { pageFields, pageOfRanking } from '../../common/pages.ts';
import { listOf, named, namespaceId, pageState } from '../../common/responses.ts';

export function response() {
  const namespace = Type.Object({
    id: Type.Optional(
      namespaceId(`Id of the namespace. Absent for \`${OTHER_NAMESPACE}\`, which are others.`),
    ),
    name: named('Name of the namespace.'),
    ...shownFigures(),
  });
  return Type.Object({
    ...shownRange('an hour'),
    namespaces: listOf(
      namespace,
      'The namespaces with checks in the range that the key may read, the busiest first.',
    ),
    ...pageState(),
  });
}

export const getNamespaces = readOperation({
  name: 'analytics.getNamespaces',
  version: 'v1',
  requires: { action: 'read_analytics', in: 'each listed namespace' },
  responseBytesEstimate: RESPONSE_BYTES.figures,
  request: {
    ...rangeFields('an hour', '23 hours before the hour of `end`'),
    ...pageFields(ANALYTICS_NAMESPACES_PAGE_MAX, PAGE_MAX),
  },
  handle: (context, query): Result<typeof response> => {
    const { registry, permissions } = context;
    requireSomeAnalytics(context);
    const range = rangeOf(context, query, GRANULARITY_MS.hour, HOURS_OF_A_DAY);
    requireHours(range);
    const totals = requireAnalytics(context).totals(range.from, range.to);
    const counted: { id?: string; name: string; key: string }[] = registry
      .namespaces()
      .map(({ id, name, predecessor }) => ({ id, name, key: namespaceKey(name, predecessor) }));
    counted.push({ name: OTHER_NAMESPACE, key: OTHER_NAMESPACE });
    const visible = counted
      .filter(({ id, key }) => totals.has(key) && permissions.may('read_analytics', id))
      .map(({ key, ...namespace }) => ({ ...namespace, ...totals.get(key)! }))
      .sort((a, b) => checksOf(b) - checksOf(a));
    const { items: namespaces, cursor } = pageOfRanking(visible, query, PAGE_MAX);
    return { start: range.start, end: range.end, namespaces, ...cursor, total: visible.length };
  },
});

function checksOf({ allowed, denied }: Figures): number {
  return allowed + denied;
}
