/**
 * The operations that show what was counted, on the main thread. v1 of Unkey's API does not have
 * them. Times of requests are Unix milliseconds; a range is widened to whole minutes or hours.
 */

import Type from 'typebox';
import { GRANULARITIES, GRANULARITY_MS } from '../../analytics/granularity.ts';
import type { IdentifierList, ListedIdentifier } from '../../analytics/identifier-list.ts';
import {
  ANALYTICS_NAMESPACES_PAGE_MAX,
  ANALYTICS_QUERY_HOURS_MAX,
  PAGE_MAX,
  TIMELINE_POINTS_MAX,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import type { Figures } from '../../core/figures.ts';
import { namespaceKey, OTHER_NAMESPACE } from '../../core/namespace.ts';
import { createValidator, field, integer, QUERY } from '../../core/schema.ts';
import type {
  AnalyticsQueries,
  OperationContext,
  OperationHandler,
} from '../common/operation-context.ts';
import { pageFields, pageOfRanking } from '../common/pages.ts';
import { findNamespace, type NamespaceQuery, namespaceFields } from './namespaces.ts';
import type { ResponseV1 } from './responses.ts';

const HOURS_OF_A_DAY = 24;
/** The minutes of a timeline without `start`. */
const TIMELINE_MINUTES = 60;
const IDENTIFIERS_DEFAULT = 20;

/** A query reads numbers of at most 15 digits. */
const TIME_MAX_MS = 10 ** 15 - 1;
const unixTime = () => integer(0, TIME_MAX_MS, 'a time in Unix milliseconds,');
const rangeFields = (unit: string, start: string) => ({
  start: Type.Optional(
    field(unixTime(), `Begin, in Unix milliseconds, rounded down to ${unit}. Default: ${start}.`),
  ),
  end: Type.Optional(
    field(unixTime(), `End, in Unix milliseconds, rounded up to ${unit}. Default: now.`),
  ),
});
export const namespacesValidator = createValidator(
  Type.Object(
    {
      ...rangeFields('an hour', '23 hours before the hour of `end`'),
      ...pageFields(ANALYTICS_NAMESPACES_PAGE_MAX, PAGE_MAX),
    },
    QUERY,
  ),
);
export const timelineValidator = createValidator(
  Type.Object(
    {
      ...namespaceFields,
      ...rangeFields('the granularity', 'an hour before `end`, or a day with `hour`'),
      granularity: Type.Optional(
        field(
          Type.Enum([...GRANULARITIES], { accepts: GRANULARITIES.join(' or ') }),
          `What a point is. A response has at most ${TIMELINE_POINTS_MAX} points.`,
          'minute',
        ),
      ),
    },
    QUERY,
  ),
);
export const identifiersValidator = createValidator(
  Type.Object(
    {
      ...namespaceFields,
      ...rangeFields('an hour', 'the begin of the current hour'),
      ...pageFields(PAGE_MAX, IDENTIFIERS_DEFAULT),
    },
    QUERY,
  ),
);

export const getNamespaces: OperationHandler<ResponseV1<'analytics.getNamespaces'>> = (
  context,
  input,
) => {
  const query = context.validate(namespacesValidator, input);
  const { registry, permissions } = context;
  if (!permissions.mayInSomeNamespace('read_analytics')) {
    permissions.require('read_analytics', undefined);
  }
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
};

export const getTimeline: OperationHandler<ResponseV1<'analytics.getTimeline'>> = (
  context,
  input,
) => {
  const query = context.validate(timelineValidator, input);
  const { namespace, key } = findCounted(context, query);
  const { granularity = 'minute' } = query;
  const unitMs = GRANULARITY_MS[granularity];
  const defaultUnits = granularity === 'minute' ? TIMELINE_MINUTES : HOURS_OF_A_DAY;
  const { from, to, start, end } = rangeOf(context, query, unitMs, defaultUnits);
  if (to - from > TIMELINE_POINTS_MAX) {
    const message =
      `the range from "start" to "end" must have at most ${TIMELINE_POINTS_MAX} points;` +
      ` got ${to - from} of a ${granularity} each`;
    throw new ApiError('BAD_REQUEST', message);
  }
  const points = requireAnalytics(context)
    .timeline(key, granularity, from, to)
    .map(({ time, figures }) => ({ time: time * unitMs, ...figures }));
  return { namespace, granularity, start, end, points };
};

export const getIdentifiers: OperationHandler<ResponseV1<'analytics.getIdentifiers'>> = (
  context,
  input,
) => {
  const query = context.validate(identifiersValidator, input);
  const { namespace, key } = findCounted(context, query);
  const range = rangeOf(context, query, GRANULARITY_MS.hour, 1);
  requireHours(range);
  const { from, to, start, end } = range;
  const { isComplete: complete, ...lists } = requireAnalytics(context).identifiers(key, from, to);
  const pageOf = ({ items }: IdentifierList) => pageOfRanking(items, query, IDENTIFIERS_DEFAULT);
  const [denied, spent] = [pageOf(lists.denied), pageOf(lists.spent)];
  return {
    ...{ namespace, start, end, complete },
    denied: denied.items.map(shown),
    spent: spent.items.map(shown),
    ...denied.cursor,
    ...spent.cursor,
  };
};

function shown({ text: identifier, isCutOff, count, error }: ListedIdentifier) {
  return { identifier, ...(isCutOff && { cutOff: true }), count, error };
}

/** @throws ApiError (400) for a range that would occupy the main thread */
function requireHours({ from, to }: { from: number; to: number }): void {
  if (to - from <= ANALYTICS_QUERY_HOURS_MAX) return;
  throw new ApiError(
    'BAD_REQUEST',
    `the range from "start" to "end" must have at most ${ANALYTICS_QUERY_HOURS_MAX} hours;` +
      ` got ${to - from}`,
  );
}

/** @throws ApiError (503) */
function requireAnalytics({ analytics }: OperationContext): AnalyticsQueries {
  if (analytics !== undefined) return analytics;
  throw new ApiError(
    'SERVICE_UNAVAILABLE',
    'there are no analytics: WEIR_ANALYTICS is off, or the log says why their file is not used',
  );
}

/** @throws ApiError (400, 403, 404) */
function findCounted(context: OperationContext, query: NamespaceQuery) {
  // All who may read the figures of each namespace may read those of the others together.
  if (query.namespaceId === undefined && query.namespaceName === OTHER_NAMESPACE) {
    context.permissions.require('read_analytics', undefined);
    return { namespace: { name: OTHER_NAMESPACE }, key: OTHER_NAMESPACE };
  }
  const { id, name, predecessor } = findNamespace(context, query, 'read_analytics');
  return { namespace: { id, name }, key: namespaceKey(name, predecessor) };
}

interface TimeRange {
  start?: number;
  end?: number;
}

/**
 * The range of a query in whole units since the Unix epoch, `to` exclusive, and in Unix ms.
 * @param defaultUnits the length of a range without a start
 * @throws ApiError (400)
 */
function rangeOf(
  { nowMs }: OperationContext,
  { start, end = nowMs() + 1 }: TimeRange,
  unitMs: number,
  defaultUnits: number,
) {
  if (start !== undefined && start >= end) {
    throw new ApiError('BAD_REQUEST', `"start" must be before "end"; got ${start} and ${end}`);
  }
  const to = Math.ceil(end / unitMs);
  const from = start === undefined ? Math.max(0, to - defaultUnits) : Math.floor(start / unitMs);
  return { from, to, start: from * unitMs, end: to * unitMs };
}

function checksOf({ allowed, denied }: Figures): number {
  return allowed + denied;
}
