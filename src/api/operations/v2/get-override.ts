/** POST /v2/ratelimit.getOverride. Failures are ApiErrors, in the order 400, 403, 404. */

import Type from 'typebox';
import { type Result, readOperation } from '../../common/operation.ts';
import {
  namespaceFieldV2,
  namespaceReferenceV2,
  overrideUsage,
  overrideV2,
  selectorFields,
  selectorOf,
  shownV2,
  usageOption,
  usageShown,
} from '../../common/override-fields.ts';
import { findOverride } from '../../common/overrides.ts';
import { envelope } from '../../common/responses.ts';

export function response() {
  return envelope(Type.Object({ ...overrideV2(), ...overrideUsage() }));
}

export const getOverrideV2 = readOperation({
  name: 'ratelimit.getOverride',
  version: 'v2',
  requires: { action: 'read_override', in: 'the namespace' },
  request: { namespace: namespaceFieldV2(), ...selectorFields(1), ...usageOption() },
  handle: (context, body): Result<typeof response> => {
    const override = findOverride(context, namespaceReferenceV2(body), selectorOf(body));
    return { data: { ...shownV2(override), ...usageShown(context, body.usage, override) } };
  },
});
