/** GET /v1/analytics.getIdentifiers. Failures are ApiErrors, in the order 400, 403, 404, 503. */

import Type from 'typebox';
import { GRANULARITY_MS } from '../../../analytics/granularity.ts';
import type { ListedIdentifier } from '../../../analytics/identifier-list.ts';
import type { IdentifierLists } from '../../../analytics/identifier-record.ts';
import { TEXT_BYTES } from '../../../analytics/sketch.ts';
import { ANALYTICS_RANKED_RECORDS_MAX, PAGE_MAX } from '../../../core/constants.ts';
import type { Figures } from '../../../core/figures.ts';
import {
  count,
  findCounted,
  rangeFields,
  rangeOf,
  readableNamespaces,
  requireAnalytics,
  requireHours,
  requireSomeAnalytics,
  shownNamespace,
  shownRange,
} from '../../common/analytics.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import type { AnalyticsQueries, OperationContext } from '../../common/operation-context.ts';
import { pageFields, pageOfRanking } from '../../common/pages.ts';
import { flagged, listOf, named, namespaceId } from '../../common/responses.ts';

const IDENTIFIERS_DEFAULT = 20;

export function response() {
  const inNamespace = () => {
    const fields = { id: namespaceId('Id of the namespace.'), name: named('Its name.') };
    return Type.Object(fields, {
      description: 'Its namespace. Only if the request names none.',
    });
  };
  const identifier = (what: string) => {
    return Type.Object({
      identifier: named('The identifier.'),
      cutOff: Type.Optional(
        flagged(`\`true\` if only the first ${TEXT_BYTES} bytes of the identifier are known.`),
      ),
      namespace: Type.Optional(inNamespace()),
      count: count(`Number of ${what}, at most.`),
      error: count('The true number is between `count` minus `error` and `count`.'),
    });
  };
  return Type.Object({
    namespace: Type.Optional(shownNamespace()),
    ...shownRange('an hour'),
    complete: flagged(
      '`false` if some checks were not counted by identifier, to bound memory, or if not all ' +
        'namespaces that may matter were read, to bound the time of the request.',
    ),
    denied: listOf(
      identifier('denied checks and leases'),
      'The identifiers that were denied most often, the first most.',
    ),
    spent: listOf(
      identifier('tokens of allowed checks'),
      'The identifiers that used most tokens, the first most.',
    ),
    cursor: Type.Optional(
      named('The `cursor` of the next page of both lists. It is absent on their last page.'),
    ),
  });
}

export const getIdentifiers = readOperation({
  name: 'analytics.getIdentifiers',
  version: 'v1',
  requires: { action: 'read_analytics', in: 'each listed namespace' },
  request: {
    ...namespaceFields('Without both, the identifiers of all namespaces are ranked together.'),
    ...rangeFields('an hour', 'the begin of the current hour'),
    ...pageFields(PAGE_MAX, IDENTIFIERS_DEFAULT),
  },
  handle: (context, query): Result<typeof response> => {
    const isOfAll = query.namespaceId === undefined && query.namespaceName === undefined;
    const named = isOfAll ? undefined : findCounted(context, query);
    if (isOfAll) requireSomeAnalytics(context);
    const range = rangeOf(context, query, GRANULARITY_MS.hour, 1);
    requireHours(range);
    const { from, to, start, end } = range;
    const analytics = requireAnalytics(context);
    const { isComplete: complete, ...lists } =
      named === undefined
        ? rankAll(context, analytics, range, Number(query.cursor ?? 0) + PAGE_MAX + 1)
        : itemsOf(analytics.identifiers(named.key, from, to));
    const denied = pageOfRanking<RankedIdentifier>(lists.denied, query, IDENTIFIERS_DEFAULT);
    const spent = pageOfRanking<RankedIdentifier>(lists.spent, query, IDENTIFIERS_DEFAULT);
    return {
      ...(named && { namespace: named.namespace }),
      ...{ start, end, complete },
      denied: denied.items.map(shown),
      spent: spent.items.map(shown),
      ...denied.cursor,
      ...spent.cursor,
    };
  },
});

type RankedIdentifier = ListedIdentifier & { namespace?: { id: string; name: string } };
interface Rankings {
  denied: readonly RankedIdentifier[];
  spent: readonly RankedIdentifier[];
  isComplete: boolean;
}

function itemsOf({ denied, spent, isComplete }: IdentifierLists): Rankings {
  return { denied: denied.items, spent: spent.items, isComplete };
}

/**
 * The first identifiers of all namespaces that the key may read. No identifier has a larger count
 * than its namespace, so the namespaces with the largest counts are read first, until no other one
 * can have an identifier among the first.
 */
function rankAll(
  context: OperationContext,
  analytics: AnalyticsQueries,
  { from, to }: { from: number; to: number },
  count: number,
): Rankings {
  const totals = analytics.totals(from, to);
  const readable = [...readableNamespaces(context)];
  const read = new Map<string, IdentifierLists>();
  const readMax = Math.max(1, Math.floor(ANALYTICS_RANKED_RECORDS_MAX / (to - from)));
  let isComplete = true;
  const rank = (list: 'denied' | 'spent', sumOf: (figures: Figures) => number) => {
    const namespaces = readable
      .flatMap(([key, { id, name }]) => {
        const figures = totals.get(key);
        return figures === undefined ? [] : [{ key, namespace: { id, name }, sum: sumOf(figures) }];
      })
      .toSorted((a, b) => b.sum - a.sum);
    let first: RankedIdentifier[] = [];
    for (const { key, namespace, sum } of namespaces) {
      if (sum === 0 || (first.length === count && sum <= first[count - 1].count)) break;
      if (read.size === readMax && !read.has(key)) {
        isComplete = false;
        break;
      }
      const lists = read.get(key) ?? analytics.identifiers(key, from, to);
      read.set(key, lists);
      isComplete &&= lists.isComplete;
      first.push(...lists[list].items.map((item) => ({ ...item, namespace })));
      first = first.toSorted((a, b) => provenOf(b) - provenOf(a)).slice(0, count);
    }
    return first;
  };
  const denied = rank('denied', (figures) => figures.denied + figures.leasesDenied);
  const spent = rank('spent', ({ tokensAllowed }) => tokensAllowed);
  return { denied, spent, isComplete };
}

function provenOf({ count, error }: ListedIdentifier): number {
  return count - error;
}

function shown({ text: identifier, isCutOff, namespace, count, error }: RankedIdentifier) {
  return {
    ...{ identifier, ...(isCutOff && { cutOff: true }) },
    ...{ ...(namespace && { namespace }), count, error },
  };
}
