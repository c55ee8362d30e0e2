/** GET /v1/ratelimits.getOverride. Failures are ApiErrors, in the order 400, 403, 404. */

import Type from 'typebox';
import { type Result, readOperation } from '../../common/operation.ts';
import {
  namespaceFieldsV1,
  namespaceReferenceV1,
  overrideUsage,
  overrideV1,
  selectorFields,
  selectorOf,
  shownV1,
  usageOption,
  usageShown,
} from '../../common/override-fields.ts';
import { findOverride } from '../../common/overrides.ts';

export function response() {
  return Type.Object({ ...overrideV1(), ...overrideUsage() });
}

export const getOverrideV1 = readOperation({
  name: 'ratelimits.getOverride',
  version: 'v1',
  requires: { action: 'read_override', in: 'the namespace' },
  request: { ...namespaceFieldsV1(), ...selectorFields(0), ...usageOption() },
  handle: (context, query): Result<typeof response> => {
    const override = findOverride(context, namespaceReferenceV1(query), selectorOf(query));
    return { ...shownV1(override), ...usageShown(context, query.usage, override) };
  },
});
