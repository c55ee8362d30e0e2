/**
 * The parameters and responses that the operations on analytics share. Times of requests are Unix
 * milliseconds; a range is widened to whole minutes or hours. v1 of Unkey's API has none of these
 * operations.
 */

import Type from 'typebox';
import { ANALYTICS_QUERY_HOURS_MAX } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { FIGURES, type FigureName } from '../../core/figures.ts';
import { namespaceKey, OTHER_NAMESPACE } from '../../core/namespace.ts';
import { field, integer } from '../../core/schema.ts';
import type { StoredNamespace } from '../../registry/registry.ts';
import { findNamespace, type NamespaceQuery } from './namespace-query.ts';
import type { AnalyticsQueries, OperationContext } from './operation-context.ts';
import { named, namespaceId, unixMs } from './responses.ts';

export const HOURS_OF_A_DAY = 24;

/** A query reads numbers of at most 15 digits. */
export const TIME_MAX_MS = 10 ** 15 - 1;

/** @param unit what a range consists of @param start the default of its begin */
export function rangeFields(unit: string, start: string) {
  const unixTime = () => integer(0, TIME_MAX_MS, 'a time in Unix milliseconds,');
  return {
    start: Type.Optional(
      field(unixTime(), `Begin, in Unix milliseconds, rounded down to ${unit}. Default: ${start}.`),
    ),
    end: Type.Optional(
      field(unixTime(), `End, in Unix milliseconds, rounded up to ${unit}. Default: now.`),
    ),
  };
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
export function rangeOf(
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

/** @throws ApiError (400) for a range that would occupy the main thread */
export function requireHours({ from, to }: { from: number; to: number }): void {
  if (to - from <= ANALYTICS_QUERY_HOURS_MAX) return;
  throw new ApiError(
    'BAD_REQUEST',
    `the range from "start" to "end" must have at most ${ANALYTICS_QUERY_HOURS_MAX} hours;` +
      ` got ${to - from}`,
  );
}

/** @throws ApiError (503) */
export function requireAnalytics({ analytics }: OperationContext): AnalyticsQueries {
  if (analytics !== undefined) return analytics;
  throw new ApiError(
    'SERVICE_UNAVAILABLE',
    'there are no analytics: WEIR_ANALYTICS is off, or the log says why their file is not used',
  );
}

/** The namespace of a query. @throws ApiError (400, 403, 404) */
export function findCounted(context: OperationContext, query: NamespaceQuery) {
  // All who may read the figures of each namespace may read those of the others together.
  if (query.namespaceId === undefined && query.namespaceName === OTHER_NAMESPACE) {
    context.permissions.require('read_analytics', undefined);
    return { namespace: { name: OTHER_NAMESPACE }, key: OTHER_NAMESPACE };
  }
  const { id, name, predecessor } = findNamespace(context, query, 'read_analytics');
  return { namespace: { id, name }, key: namespaceKey(name, predecessor) };
}

/** @throws ApiError (403) for a key that may read the analytics of no namespace */
export function requireSomeAnalytics({ permissions }: OperationContext): void {
  if (permissions.mayInSomeNamespace('read_analytics')) return;
  permissions.require('read_analytics', undefined);
}

/** The namespaces whose analytics a key may read, by the key of the namespace. */
export function readableNamespaces({
  registry,
  permissions,
}: OperationContext): Map<string, StoredNamespace> {
  const readable = registry
    .namespaces()
    .filter(({ id }) => permissions.may('read_analytics', id))
    .map((namespace) => [namespaceKey(namespace.name, namespace.predecessor), namespace] as const);
  return new Map(readable);
}

/** The namespace of a query, or all that the key may read, by key. @throws ApiError (403, 404) */
export function queriedNamespaces(
  context: OperationContext,
  query: NamespaceQuery,
): Map<string, StoredNamespace> {
  if (query.namespaceId !== undefined || query.namespaceName !== undefined) {
    const namespace = findNamespace(context, query, 'read_analytics');
    return new Map([[namespaceKey(namespace.name, namespace.predecessor), namespace]]);
  }
  requireSomeAnalytics(context);
  return readableNamespaces(context);
}

/** The range of a response. */
export function shownRange(unit: string) {
  return {
    start: unixMs(`Begin of the range, rounded down to ${unit}`),
    end: unixMs(`End of the range, rounded up to ${unit}`),
  };
}

/** The namespace of a response. */
export function shownNamespace() {
  return Type.Object(
    {
      id: Type.Optional(namespaceId('Id of the namespace.')),
      name: named('Name of the namespace.'),
    },
    { description: 'The namespace.' },
  );
}

/** A count, which may exceed the largest amount. */
export function count(description: string) {
  return Type.Integer({ minimum: 0, description });
}

/** The figures of a namespace. They are doubles, as the counts of which they consist. */
export function shownFigures() {
  const sum = (what: string) => {
    return count(`${what} Exact up to 2^53; a larger sum is rounded with each addition.`);
  };
  return Object.fromEntries(
    FIGURES.map(({ name, description }) => [name, sum(description)]),
  ) as Record<FigureName, ReturnType<typeof sum>>;
}
