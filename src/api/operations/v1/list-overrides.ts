/** GET /v1/ratelimits.listOverrides. Failures are ApiErrors, in the order 400, 403, 404. */

import Type from 'typebox';
import { PAGE_MAX } from '../../../core/constants.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import {
  namespaceFieldsV1,
  namespaceReferenceV1,
  overrideUsage,
  overrideV1,
  shownV1,
  usageOption,
  usageShown,
} from '../../common/override-fields.ts';
import { overridesInScope } from '../../common/overrides.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { listOf, pageState } from '../../common/responses.ts';

export function response() {
  const override = Type.Object({ ...overrideV1(), ...overrideUsage() });
  return Type.Object({
    overrides: listOf(override, 'The overrides, in the order of their creation.'),
    ...pageState(),
  });
}

export const listOverridesV1 = readOperation({
  name: 'ratelimits.listOverrides',
  version: 'v1',
  requires: { action: 'read_override', in: 'the namespace' },
  request: { ...namespaceFieldsV1(), ...pageFields(PAGE_MAX), ...usageOption() },
  handle: (context, query): Result<typeof response> => {
    const overrides = overridesInScope(context, namespaceReferenceV1(query));
    const { items, rest } = pageOf(overrides, query, PAGE_MAX);
    const listed = items.map((override) => {
      return { ...shownV1(override), ...usageShown(context, query.usage, override) };
    });
    return { overrides: listed, ...rest };
  },
});
