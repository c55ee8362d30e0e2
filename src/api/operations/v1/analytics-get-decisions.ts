/** GET /v1/analytics.getDecisions. Failures are ApiErrors, in the order 400, 403, 404, 503. */

import Type from 'typebox';
import { IDENTIFIER_MAX_CHARACTERS, PAGE_MAX } from '../../../core/constants.ts';
import { field, integer, text } from '../../../core/schema.ts';
import { LIMIT_SOURCES, type RecentDecision } from '../../../recent-decisions/reader.ts';
import { queriedNamespaces, TIME_MAX_MS } from '../../common/analytics.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { RESPONSE_BYTES, type Result, readOperation } from '../../common/operation.ts';
import { pageFields } from '../../common/pages.ts';
import {
  decisionFields,
  decisionNamespace,
  leftOutField,
  requireRecentDecisions,
  shownDecision,
} from '../../common/recent-decisions.ts';
import { listOf, named, unixMs } from '../../common/responses.ts';

export function response() {
  const decision = Type.Object({
    id: named('Id of the record. It is the same in each response of a run of weir.'),
    namespace: decisionNamespace(),
    identifier: Type.Optional(
      named('The identifier. Absent for a gateway check whose policy found none.'),
    ),
    ...decisionFields(),
    leftOut: leftOutField(),
  });
  return Type.Object({
    since: unixMs(
      'Begin of the time that the records cover: older ones may have been replaced, or weir had ' +
        'not started',
    ),
    decisions: listOf(decision, 'The records, the newest first.'),
    cursor: Type.Optional(named('The `cursor` of the next page. It is absent on the last page.')),
  });
}

export const getDecisions = readOperation({
  name: 'analytics.getDecisions',
  version: 'v1',
  requires: { action: 'read_analytics', in: 'each listed namespace' },
  responseBytesEstimate: RESPONSE_BYTES.figures,
  request: {
    ...namespaceFields('Without both, the namespaces that the key may read are listed.'),
    identifier: Type.Optional(
      field(text(0, IDENTIFIER_MAX_CHARACTERS), 'Lists the decisions on this identifier only.'),
    ),
    decision: Type.Optional(
      field(
        Type.Enum(['allowed', 'denied'], { accepts: 'allowed or denied' }),
        'Lists these decisions only.',
      ),
    ),
    source: Type.Optional(
      field(
        Type.Enum([...LIMIT_SOURCES], { accepts: 'block, override, policy or request' }),
        'Lists decisions whose limit came from there only.',
      ),
    ),
    override: Type.Optional(
      field(text(1, 100), 'Lists the decisions by the override with this id only.'),
    ),
    start: Type.Optional(
      field(time(), 'Begin, in Unix milliseconds. Default: all records are listed.'),
    ),
    end: Type.Optional(
      field(
        time(),
        'End, in Unix milliseconds. Default: now. Set it for several pages, as new records move ' +
          'the others.',
      ),
    ),
    ...pageFields(PAGE_MAX),
  },
  handle: (context, query): Result<typeof response> => {
    const namespaces = queriedNamespaces(context, query);
    const recent = requireRecentDecisions(context);
    const { identifier, decision, source, override, start, end } = query;
    const [only] = namespaces.size === 1 ? namespaces.keys() : [];
    const isOfOne = only !== undefined && identifier !== undefined;
    const found = recent.find({
      identity: isOfOne ? recent.identityOf(only, identifier) : undefined,
      identifier,
      isNamespace: (key) => namespaces.has(key),
      isAllowed: decision === undefined ? undefined : decision === 'allowed',
      ...{ source, overrideId: override, startMs: start, endMs: end },
    });
    const from = Number(query.cursor ?? 0);
    const to = from + (query.limit ?? PAGE_MAX);
    const items: RecentDecision[] = [];
    let position = 0;
    let hasMore = false;
    for (const record of found) {
      hasMore = position === to;
      if (hasMore) break;
      const read = position++ < from ? undefined : recent.read(record);
      if (read !== undefined) items.push(read);
    }
    return {
      since: recent.sinceMs,
      decisions: items.map((record) => {
        const { id, name } = namespaces.get(record.namespaceKey)!;
        return {
          id: record.id,
          namespace: { id, name },
          ...(record.identifier !== undefined && { identifier: record.identifier }),
          ...shownDecision(record, name),
          leftOut: record.leftOut,
        };
      }),
      ...(hasMore && { cursor: String(to) }),
    };
  },
});

function time() {
  return integer(0, TIME_MAX_MS, 'a time in Unix milliseconds,');
}
