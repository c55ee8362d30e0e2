/**
 * The schemas of the responses of v2, by operation, with their envelope. They document the API, and
 * tests compare responses with them. The code uses their types only.
 */

import Type, { type Static, type TSchema } from 'typebox';
import {
  amount,
  flagged,
  idText,
  limitFields,
  listOf,
  meta,
  named,
  overrideEnd,
  overrideUsage,
} from '../common/responses.ts';

const appliedOverride = Type.Optional(
  idText('rlor', 'Id of the override that applied. Absent if none did.'),
);
const passesAt = Type.Optional(
  amount(
    'Of a denied check: the first time at which it would pass if no other is counted, in Unix ' +
      'milliseconds. Absent for an allowed check, and for one that can never pass: its cost, in ' +
      'a batch with the checks of the same counter before it, is above the limit or the burst.',
  ),
);
const overrideId = idText('rlor', 'Id of the override. It stays the same while its values change.');
const override = Type.Object({
  overrideId,
  identifier: named('Identifier, pattern or CIDR block of the override.'),
  cidr: Type.Optional(
    flagged('`true` if `identifier` is a CIDR block. Absent for identifiers and patterns.'),
  ),
  limit: amount('Tokens that may be used in one window.'),
  duration: amount('Length of the window in milliseconds.'),
  expires: overrideEnd,
  usage: overrideUsage,
});

const checked = Type.Object({
  namespace: named('The `namespace` of the check.'),
  identifier: named('The `identifier` of the check.'),
  ...limitFields,
  passed: flagged('Whether this check alone would be allowed.'),
  passesAt,
  overrideId: appliedOverride,
});

function envelope<S extends TSchema>(data: S) {
  return Type.Object({ meta, data });
}

export const RESPONSES_V2 = {
  'ratelimit.limit': envelope(
    Type.Object({
      ...limitFields,
      success: flagged('Whether the check is allowed.'),
      passesAt,
      overrideId: appliedOverride,
    }),
  ),
  'ratelimit.multiLimit': envelope(
    Type.Object({
      passed: flagged('Whether all checks are allowed. If not, none of them is counted.'),
      limits: listOf(checked, 'The checks, in the order of the request.'),
    }),
  ),
  'ratelimit.setOverride': envelope(Type.Object({ overrideId })),
  'ratelimit.getOverride': envelope(override),
  'ratelimit.listOverrides': Type.Object({
    meta,
    data: listOf(override, 'The overrides, in the order of their creation.'),
    pagination: Type.Object({
      hasMore: flagged('Whether there are more pages.'),
      cursor: Type.Optional(named('The `cursor` of the next page. Absent on the last page.')),
    }),
  }),
  'ratelimit.deleteOverride': envelope(Type.Object({}, { description: 'An empty object.' })),
} as const;

/** The body of the 200 response of an operation, to which the server adds `meta`. */
export type ResponseV2<Name extends keyof typeof RESPONSES_V2> = Omit<
  Static<(typeof RESPONSES_V2)[Name]>,
  'meta'
>;
