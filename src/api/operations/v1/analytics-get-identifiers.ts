/** GET /v1/analytics.getIdentifiers. Failures are ApiErrors, in the order 400, 403, 404, 503. */

import Type from 'typebox';
import { GRANULARITY_MS } from '../../../analytics/granularity.ts';
import type { IdentifierList, ListedIdentifier } from '../../../analytics/identifier-list.ts';
import { TEXT_BYTES } from '../../../analytics/sketch.ts';
import { PAGE_MAX } from '../../../core/constants.ts';
import {
  count,
  findCounted,
  rangeFields,
  rangeOf,
  requireAnalytics,
  requireHours,
  shownNamespace,
  shownRange,
} from '../../common/analytics.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import { pageFields, pageOfRanking } from '../../common/pages.ts';
import { flagged, listOf, named } from '../../common/responses.ts';

const IDENTIFIERS_DEFAULT = 20;

export function response() {
  const identifier = (what: string) => {
    return Type.Object({
      identifier: named('The identifier.'),
      cutOff: Type.Optional(
        flagged(`\`true\` if only the first ${TEXT_BYTES} bytes of the identifier are known.`),
      ),
      count: count(`Number of ${what}, at most.`),
      error: count('The true number is between `count` minus `error` and `count`.'),
    });
  };
  return Type.Object({
    namespace: shownNamespace(),
    ...shownRange('an hour'),
    complete: flagged('`false` if some checks were not counted by identifier, to bound memory.'),
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
  requires: { action: 'read_analytics', in: 'the namespace' },
  request: {
    ...namespaceFields(),
    ...rangeFields('an hour', 'the begin of the current hour'),
    ...pageFields(PAGE_MAX, IDENTIFIERS_DEFAULT),
  },
  handle: (context, query): Result<typeof response> => {
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
  },
});

function shown({ text: identifier, isCutOff, count, error }: ListedIdentifier) {
  return { identifier, ...(isCutOff && { cutOff: true }), count, error };
}
