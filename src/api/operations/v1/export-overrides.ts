/**
 * GET /v1/ratelimits.exportOverrides: all overrides of all namespaces, each in the form that an
 * import accepts. v1 of Unkey's API does not have it. Failures are ApiErrors, in the order 400,
 * 403.
 */

import Type from 'typebox';
import { EXPORT_PAGE_MAX } from '../../../core/constants.ts';
import { RESPONSE_BYTES, type Result, readOperation } from '../../common/operation.ts';
import {
  overrideUsage,
  overrideV1,
  ownerFields,
  ownerShown,
  shownV1,
  usageOption,
  usageShown,
} from '../../common/override-fields.ts';
import { liveOverrides } from '../../common/overrides.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { listOf, pageState } from '../../common/responses.ts';

export function response() {
  const { id: _, ...fields } = overrideV1();
  const override = Type.Object({
    ...ownerFields(),
    ...fields,
    ...overrideUsage(),
  });
  return Type.Object({
    overrides: listOf(override, 'The overrides, in the format of an import.'),
    ...pageState(),
  });
}

export const exportOverrides = readOperation({
  name: 'ratelimits.exportOverrides',
  version: 'v1',
  requires: { action: 'read_override', in: 'all namespaces' },
  responseBytesEstimate: RESPONSE_BYTES.export,
  request: { ...pageFields(EXPORT_PAGE_MAX), ...usageOption() },
  handle: (context, query): Result<typeof response> => {
    const { registry, permissions } = context;
    permissions.require('read_override', undefined);
    const overrides = liveOverrides(context, registry.overrides());
    const { items, rest } = pageOf(overrides, query, EXPORT_PAGE_MAX);
    const exported = items.map((override) => {
      const { id: _, ...fields } = shownV1(override);
      const usage = usageShown(context, query.usage, override);
      return { ...ownerShown(registry, override), ...fields, ...usage };
    });
    return { overrides: exported, ...rest };
  },
});
