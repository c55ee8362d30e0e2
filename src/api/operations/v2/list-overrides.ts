/** POST /v2/ratelimit.listOverrides. Failures are ApiErrors, in the order 400, 403, 404. */

import Type from 'typebox';
import { PAGE_MAX, V2_PAGE_DEFAULT } from '../../../core/constants.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import {
  namespaceFieldV2,
  namespaceReferenceV2,
  overrideUsage,
  overrideV2,
  shownV2,
  usageOption,
  usageShown,
} from '../../common/override-fields.ts';
import { overridesInScope } from '../../common/overrides.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { flagged, listOf, meta, named } from '../../common/responses.ts';

export function response() {
  const override = Type.Object({ ...overrideV2(), ...overrideUsage() });
  return Type.Object({
    meta: meta(),
    data: listOf(override, 'The overrides, in the order of their creation.'),
    pagination: Type.Object({
      hasMore: flagged('Whether there are more pages.'),
      cursor: Type.Optional(named('The `cursor` of the next page. Absent on the last page.')),
    }),
  });
}

export const listOverridesV2 = readOperation({
  name: 'ratelimit.listOverrides',
  version: 'v2',
  requires: { action: 'read_override', in: 'the namespace' },
  request: {
    namespace: namespaceFieldV2(),
    ...pageFields(PAGE_MAX, V2_PAGE_DEFAULT),
    ...usageOption(),
  },
  handle: (context, body): Result<typeof response> => {
    const overrides = overridesInScope(context, namespaceReferenceV2(body));
    const { items, rest } = pageOf(overrides, body, V2_PAGE_DEFAULT);
    const { cursor } = rest;
    const pagination = cursor === undefined ? { hasMore: false } : { hasMore: true, cursor };
    const data = items.map((override) => {
      return { ...shownV2(override), ...usageShown(context, body.usage, override) };
    });
    return { data, pagination };
  },
});
