/**
 * GET /v1/ratelimits.listOverrides. Unkey's API requires the namespace; here a request without one
 * lists all namespaces that the key may read. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import { PAGE_MAX } from '../../../core/constants.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import {
  namespaceFieldsV1,
  namespaceReferenceV1,
  overrideUsage,
  overrideV1,
  ownerFields,
  ownerShown,
  shownV1,
  usageOption,
  usageShown,
} from '../../common/override-fields.ts';
import { overridesInScope, readableOverrides } from '../../common/overrides.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { listOf, pageState } from '../../common/responses.ts';

const WITHOUT_NAMESPACE =
  'It has precedence over `namespaceName`. Without both, the overrides of all namespaces are ' +
  'listed.';

export function response() {
  const override = Type.Object({ ...ownerFields(), ...overrideV1(), ...overrideUsage() });
  return Type.Object({
    overrides: listOf(override, 'The overrides, in the order of their creation.'),
    ...pageState(),
  });
}

export const listOverridesV1 = readOperation({
  name: 'ratelimits.listOverrides',
  version: 'v1',
  requires: { action: 'read_override', in: 'each listed namespace' },
  request: { ...namespaceFieldsV1(WITHOUT_NAMESPACE), ...pageFields(PAGE_MAX), ...usageOption() },
  handle: (context, query): Result<typeof response> => {
    const isOfAll = query.namespaceId === undefined && query.namespaceName === undefined;
    const overrides = isOfAll
      ? readableOverrides(context)
      : overridesInScope(context, namespaceReferenceV1(query));
    const { items, rest } = pageOf(overrides, query, PAGE_MAX);
    const listed = items.map((override) => {
      const owner = isOfAll ? ownerShown(context.registry, override) : {};
      return { ...owner, ...shownV1(override), ...usageShown(context, query.usage, override) };
    });
    return { overrides: listed, ...rest };
  },
});
