/**
 * POST /v1/ratelimits.endHold: ends a live hold of an identifier by its handle. Failures are
 * ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { HOLD_ID_MAX_CHARACTERS } from '../../../core/constants.ts';
import { field, text } from '../../../core/schema.ts';
import type { EndedHold } from '../../../engine/hold-engine.ts';
import { DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import { type CounterReference, counterFields } from '../../common/counters.ts';
import { HOLD_KINDS, holdKind } from '../../common/holds.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { amount } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  return Type.Object({
    kind: holdKind(),
    released: amount(
      'Tokens of a reservation that returned to the window, or of a lease that are no longer in ' +
        'use.',
    ),
  });
}

export const endHold = counterOperation({
  name: 'ratelimits.endHold',
  version: 'v1',
  requires: { action: 'reset', in: 'the namespace' },
  request: {
    ...counterFields,
    handle: field(
      text(1, HOLD_ID_MAX_CHARACTERS, 'the "handle" of an inspection, a text'),
      'The `handle` in the response to `ratelimits.inspect` or `ratelimits.explain`.',
    ),
  },
});

export interface HoldReference extends CounterReference {
  handle: string;
}

/** @param bytes the complete body */
export function readEndHold(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof endHold.name>,
): HoldReference {
  const body = readBody(endHold.validator, bytes, endHold.name, key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, handle } = body;
  const namespace = namespaces.find(key, 'reset', name) ?? namespaces.getOrCreate(name, false);
  return { namespace, identifier, handle };
}

/** The body of the 200. */
export function endHoldResult({ kind, released }: EndedHold): Result<typeof response> {
  return { kind: HOLD_KINDS[kind], released };
}
