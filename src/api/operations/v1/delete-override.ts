/** POST /v1/ratelimits.deleteOverride. Failures are ApiErrors, in the order 400, 403, 404. */

import { type Result, writeOperation } from '../../common/operation.ts';
import {
  namespaceFieldsV1,
  namespaceReferenceV1,
  selectorFields,
  selectorOf,
} from '../../common/override-fields.ts';
import { removeOverride } from '../../common/overrides.ts';
import { empty } from '../../common/responses.ts';

export const response = empty;

export const deleteOverrideV1 = writeOperation({
  name: 'ratelimits.deleteOverride',
  version: 'v1',
  requires: { action: 'delete_override', in: 'the namespace' },
  request: { ...namespaceFieldsV1(), ...selectorFields(0) },
  handle: (context, body): Result<typeof response> => {
    removeOverride(context, namespaceReferenceV1(body), selectorOf(body));
    return {};
  },
});
