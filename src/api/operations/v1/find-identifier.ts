/**
 * POST /v1/ratelimits.findIdentifier: in which namespaces an identifier has a counter, a hold, a
 * block, an override or a recent decision. A request looks in a page of the namespaces, so that its
 * work is bounded. Failures are ApiErrors, in the order 400, 403.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { FOUND_NAMESPACES_MAX, IDENTIFIER_MAX_CHARACTERS } from '../../../core/constants.ts';
import { field, text } from '../../../core/schema.ts';
import type { CounterState } from '../../../engine/engine.ts';
import type { LiveHolds } from '../../../engine/hold-engine.ts';
import { blockFields } from '../../common/blocks.ts';
import { counterList, shownCounters } from '../../common/counters.ts';
import { holdSums, shownHoldSums } from '../../common/live-holds.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { overrideV1 } from '../../common/override-fields.ts';
import { pageFields } from '../../common/pages.ts';
import { decisionFields } from '../../common/recent-decisions.ts';
import { amount, listOf, named, namespaceId, pageState } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';
import type { FindQuestion, KnownPlaces } from '../../explain/places.ts';

export function response() {
  const { id, ...overrideFields } = overrideV1();
  const { cursor } = pageState();
  return Type.Object({
    identifier: named('The identifier of the request.'),
    found: listOf(
      Type.Object({
        namespace: Type.Object(
          { id: namespaceId('Id of the namespace.'), name: named('Name of the namespace.') },
          { description: 'The namespace.' },
        ),
        counters: counterList('The counters of the identifier in the namespace.'),
        holds: Type.Optional(
          Type.Object(holdSums(), {
            description: 'Its live reservations and leases. Absent without any.',
          }),
        ),
        block: Type.Optional(
          Type.Object(blockFields(), {
            description: 'The block of the identifier. Needs `read_override`.',
          }),
        ),
        override: Type.Optional(
          Type.Object(
            {
              id,
              namespace: named('Name of the namespace of the override, or its pattern of names.'),
              ...overrideFields,
            },
            { description: 'The override that applies. Needs `read_override`.' },
          ),
        ),
        last: Type.Optional(
          Type.Object(decisionFields(), {
            description: 'The last recorded decision. Needs `read_analytics`.',
          }),
        ),
        lastDenied: Type.Optional(
          Type.Object(decisionFields(), {
            description: 'The last denial. Needs `read_analytics`.',
          }),
        ),
      }),
      'The namespaces of the page in which the identifier has a counter, a live reservation or ' +
        'lease, a recent decision, a block, or an override for it alone.',
    ),
    cursor,
    total: amount('Number of namespaces that the key may read.'),
  });
}

export const findIdentifier = counterOperation({
  name: 'ratelimits.findIdentifier',
  version: 'v1',
  requires: { action: 'read_namespace', in: 'each listed namespace' },
  request: {
    identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), 'The `identifier` of the checks.'),
    ...pageFields(FOUND_NAMESPACES_MAX),
  },
});

/** @param bytes the complete body */
export function readFind(
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof findIdentifier.name>,
): FindQuestion {
  return readBody(findIdentifier.validator, bytes, findIdentifier.name, key, onUnknownFields);
}

/** What the engine knows of an identifier in one namespace. */
export interface CountedPlace {
  counters: readonly CounterState[];
  holds: LiveHolds;
}

/**
 * The body of the 200.
 * @param counted by namespace of the page; undefined where the namespace was not found
 */
export function findResult(
  { identifier }: FindQuestion,
  { places, cursor, total }: KnownPlaces,
  counted: readonly (CountedPlace | undefined)[],
): Result<typeof response> {
  return {
    identifier,
    found: places.flatMap(({ id, name, isOwnOverride, ...known }, number) => {
      const counters = shownCounters(counted[number]?.counters ?? []);
      const holds = counted[number]?.holds;
      const hasHolds = holds !== undefined && holds.count > 0;
      const isFound = counters.length > 0 || hasHolds || known.last !== undefined || isOwnOverride;
      if (!isFound) return [];
      const shown = { counters, ...(hasHolds && { holds: shownHoldSums(holds) }), ...known };
      return [{ namespace: { id, name }, ...shown }];
    }),
    ...(cursor !== undefined && { cursor }),
    total,
  };
}
