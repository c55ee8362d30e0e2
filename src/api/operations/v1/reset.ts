/**
 * POST /v1/ratelimits.reset: clears counters of an identifier. Failures are ApiErrors, in the order
 * 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { field, flag } from '../../../core/schema.ts';
import { DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import { type CounterSelection, selectionFields, selectionOf } from '../../common/counters.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation } from '../../common/operation.ts';
import { amount } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  return Type.Object({
    cleared: amount('Number of counters that were cleared.'),
    leases: Type.Optional(amount('Number of leases that were ended. Only with `leases: true`.')),
  });
}

export const reset = counterOperation({
  name: 'ratelimits.reset',
  version: 'v1',
  requires: { action: 'reset', in: 'the namespace' },
  request: {
    ...selectionFields,
    leases: Type.Optional(
      field(
        flag(),
        'Whether all leases of the identifier end too. Their owners learn it when they renew.',
        false,
      ),
    ),
  },
});

export interface Reset extends CounterSelection {
  /** Whether the leases of the identifier end too. */
  endsLeases: boolean;
}

/** @param bytes the complete body */
export function readReset(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof reset.name>,
): Reset {
  const body = readBody(reset.validator, bytes, reset.name, key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE } = body;
  const namespace = namespaces.find(key, 'reset', name) ?? namespaces.getOrCreate(name, false);
  return { ...selectionOf(body, namespace), endsLeases: body.leases === true };
}
