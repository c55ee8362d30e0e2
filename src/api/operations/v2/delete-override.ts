/** POST /v2/ratelimit.deleteOverride. Failures are ApiErrors, in the order 400, 403, 404. */

import { type Result, writeOperation } from '../../common/operation.ts';
import {
  namespaceFieldV2,
  namespaceReferenceV2,
  selectorFields,
  selectorOf,
} from '../../common/override-fields.ts';
import { removeOverride } from '../../common/overrides.ts';
import { empty, envelope } from '../../common/responses.ts';

export function response() {
  return envelope(empty());
}

export const deleteOverrideV2 = writeOperation({
  name: 'ratelimit.deleteOverride',
  version: 'v2',
  requires: { action: 'delete_override', in: 'the namespace' },
  request: { namespace: namespaceFieldV2(), ...selectorFields(1) },
  handle: (context, body): Result<typeof response> => {
    removeOverride(context, namespaceReferenceV2(body), selectorOf(body));
    return { data: {} };
  },
});
