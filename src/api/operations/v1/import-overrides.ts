/**
 * POST /v1/ratelimits.importOverrides: sets many overrides, all or none. v1 of Unkey's API does not
 * have it. Failures are ApiErrors, in the order 400, 403, 404, and name the index of the item.
 */

import Type from 'typebox';
import { IMPORT_MAX_BYTES } from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { createValidator, field, flag, JSON_OBJECT } from '../../../core/schema.ts';
import { overridesImport } from '../../../registry/audit-entries.ts';
import { type Result, writeOperation } from '../../common/operation.ts';
import { namespaceReferenceV1, selectorOf, valuesOf } from '../../common/override-fields.ts';
import { putOverride } from '../../common/overrides.ts';
import { amount, flagged } from '../../common/responses.ts';
import { overrideFields } from './set-override.ts';

/** v1 sets no short identifiers and no limit of 0, which an import accepts since v2 sets them. */
export const itemValidator = createValidator(
  Type.Object(overrideFields(1, 0), JSON_OBJECT),
  'an override',
);

export function response() {
  return Type.Object({
    ...importCounts(),
    dryRun: flagged('The `dryRun` of the request.'),
  });
}

/** Also in the audit log. */
export function importCounts() {
  return {
    created: amount('Number of new overrides.'),
    updated: amount('Number of overrides whose values changed.'),
    unchanged: amount('Number of overrides that already had these values.'),
  };
}

export const importOverrides = writeOperation({
  name: 'ratelimits.importOverrides',
  version: 'v1',
  requires: { action: 'set_override', in: 'the namespace' },
  maxBytes: IMPORT_MAX_BYTES,
  request: {
    // Validated one by one, for errors with the index of the item.
    overrides: field(
      Type.Array(Type.Unknown(), { accepts: 'an array of overrides' }),
      'The overrides to set. All of them are set, or none.',
    ),
    dryRun: Type.Optional(
      field(flag(), '`true` validates and counts, but changes nothing.', false),
    ),
  },
  handle: (context, { overrides, dryRun = false }): Result<typeof response> => {
    const counts = { created: 0, updated: 0, unchanged: 0 };
    const { registry } = context;
    const { journalLength } = registry;
    const bodies = overrides.map((override, i) => {
      return withItemIndex(i, () => context.validate(itemValidator, override));
    });
    const changedNamespaces = new Set<string>();
    bodies.forEach((body, i) => {
      const put = () => {
        return putOverride(context, namespaceReferenceV1(body), selectorOf(body), valuesOf(body));
      };
      const { override, before } = withItemIndex(i, put);
      if (override === before) {
        counts.unchanged++;
        return;
      }
      counts[before === undefined ? 'created' : 'updated']++;
      changedNamespaces.add(registry.namespaceOf(override));
    });
    if (dryRun) registry.rollBack(journalLength);
    else if (changedNamespaces.size > 0) {
      context.audit(overridesImport(changedNamespaces, counts));
    }
    return { ...counts, dryRun };
  },
});

function withItemIndex<T>(index: number, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof ApiError ? error.forListItem('overrides', index) : error;
  }
}
