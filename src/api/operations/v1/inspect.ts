/**
 * POST /v1/ratelimits.inspect: shows the counters and the live holds of an identifier, and changes
 * none. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import type { CounterState } from '../../../engine/engine.ts';
import type { LiveHolds } from '../../../engine/hold-engine.ts';
import { DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import {
  type CounterReference,
  type CounterSelection,
  counterList,
  selectionFields,
  selectionOf,
  shownCounters,
} from '../../common/counters.ts';
import { liveHoldsField, shownHolds } from '../../common/live-holds.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { namespaceNotFound } from '../../common/namespace-reference.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { named } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  return Type.Object({
    namespace: named('Name of the namespace.'),
    identifier: named('The identifier of the request.'),
    counters: counterList('The counters of the identifier.'),
    holds: liveHoldsField(),
  });
}

export const inspect = counterOperation({
  name: 'ratelimits.inspect',
  version: 'v1',
  requires: { action: 'read_namespace', in: 'the namespace' },
  request: selectionFields,
});

/** @param bytes the complete body */
export function readInspect(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof inspect.name>,
): CounterSelection {
  const body = readBody(inspect.validator, bytes, inspect.name, key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE } = body;
  const namespace = namespaces.find(key, 'read_namespace', name);
  if (namespace === undefined) throw namespaceNotFound({ name, field: 'namespace' });
  return selectionOf(body, namespace);
}

/** The body of the 200. */
export function inspectResult(
  { namespace, identifier }: CounterReference,
  counters: readonly CounterState[],
  holds: LiveHolds,
): Result<typeof response> {
  return {
    namespace: namespace.name,
    identifier,
    counters: shownCounters(counters),
    holds: shownHolds(holds),
  };
}
