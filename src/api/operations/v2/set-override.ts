/** POST /v2/ratelimit.setOverride. Failures are ApiErrors, in the order 400, 403, 404. */

import Type from 'typebox';
import { type Result, writeOperation } from '../../common/operation.ts';
import {
  namespaceFieldV2,
  namespaceReferenceV2,
  overrideId,
  selectorOf,
  settingFields,
  settingOptions,
  valuesOf,
} from '../../common/override-fields.ts';
import { setAndAuditOverride } from '../../common/overrides.ts';
import { envelope } from '../../common/responses.ts';

export function response() {
  return envelope(Type.Object({ overrideId: overrideId() }));
}

export const setOverrideV2 = writeOperation({
  name: 'ratelimit.setOverride',
  version: 'v2',
  requires: { action: 'set_override', in: 'the namespace' },
  request: {
    namespace: namespaceFieldV2(),
    ...settingFields(1, 0, ' 0 denies every check with a cost.'),
    ...settingOptions(),
  },
  handle: (context, body): Result<typeof response> => {
    const reference = namespaceReferenceV2(body);
    const { id } = setAndAuditOverride(context, reference, selectorOf(body), valuesOf(body));
    return { data: { overrideId: id } };
  },
});
