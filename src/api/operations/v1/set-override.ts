/** POST /v1/ratelimits.setOverride. Failures are ApiErrors, in the order 400, 403, 404. */

import Type from 'typebox';
import { OVERRIDE_IDENTIFIER_MIN_CHARACTERS } from '../../../core/constants.ts';
import { field, flag } from '../../../core/schema.ts';
import { type Result, writeOperation } from '../../common/operation.ts';
import {
  namespaceFieldsV1,
  namespaceReferenceV1,
  overrideId,
  selectorOf,
  settingFields,
  settingOptions,
  valuesOf,
} from '../../common/override-fields.ts';
import { setAndAuditOverride } from '../../common/overrides.ts';

/** The fields of an override, also in an import, which accepts what v2 sets too. */
export function overrideFields(identifierMin: number, limitMin: number) {
  return {
    ...settingFields(identifierMin, limitMin),
    ...namespaceFieldsV1(),
    async: Type.Optional(
      field(flag(), '`true` makes the checks to which the override applies asynchronous.', false),
    ),
    ...settingOptions(),
  };
}

export function response() {
  return Type.Object({ overrideId: overrideId() });
}

export const setOverrideV1 = writeOperation({
  name: 'ratelimits.setOverride',
  version: 'v1',
  requires: { action: 'set_override', in: 'the namespace' },
  request: overrideFields(OVERRIDE_IDENTIFIER_MIN_CHARACTERS, 1),
  handle: (context, body): Result<typeof response> => {
    const reference = namespaceReferenceV1(body);
    const { id } = setAndAuditOverride(context, reference, selectorOf(body), valuesOf(body));
    return { overrideId: id };
  },
});
