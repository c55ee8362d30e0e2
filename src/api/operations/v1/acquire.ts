/**
 * POST /v1/ratelimits.acquire: grants a lease if the live leases of the identifier leave room for
 * it. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { AMOUNT_MAX } from '../../../core/constants.ts';
import type { Namespace } from '../../../core/namespace.ts';
import { field, integer } from '../../../core/schema.ts';
import type { Lease } from '../../../engine/hold-engine.ts';
import { formatHoldId } from '../../../engine/hold-id.ts';
import { DEFAULT_COST, DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import { expiresAt, holderFields, orNull, ttlField } from '../../common/holds.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { requestIdField } from '../../common/repeatable.ts';
import { amount, flagged, idText } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  return Type.Object({
    success: flagged('Whether the lease is granted.'),
    leaseId: orNull(
      idText('rlls', ''),
      'Id of the lease. `null` after a denial, and if the lease is granted without a record, ' +
        'because there is no room for one and `WEIR_ON_FULL` is `allow`.',
    ),
    inUse: amount('Tokens of all live leases of the identifier, with this one.'),
    limit: amount('The limit that applied: that of the request, or that of an override.'),
    expiresAt: expiresAt('`null` without a `leaseId`.'),
  });
}

export const acquire = counterOperation({
  name: 'ratelimits.acquire',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace' },
  request: {
    ...holderFields,
    limit: field(
      integer(1, AMOUNT_MAX),
      'Tokens that may be in use at once. An override with `concurrency` replaces it.',
    ),
    cost: Type.Optional(
      field(integer(1, AMOUNT_MAX), 'Tokens that the lease uses while it is live.', DEFAULT_COST),
    ),
    ttl: ttlField('the lease ends by itself, unless it is renewed'),
    requestId: requestIdField(),
  },
});

/** A valid request. */
export interface Acquire {
  namespace: Namespace;
  identifier: string;
  limit: number;
  cost: number;
  ttlMs: number;
  requestId: string | undefined;
}

/** @param bytes the complete body */
export function readAcquire(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof acquire.name>,
): Acquire {
  const body = readBody(acquire.validator, bytes, acquire.name, key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, limit, cost = DEFAULT_COST } = body;
  const namespace = namespaces.find(key, 'limit', name) ?? namespaces.getOrCreate(name, true);
  return { namespace, identifier, limit, cost, ttlMs: body.ttl, requestId: body.requestId };
}

export function acquireResult(lease: Lease): Result<typeof response> {
  const { granted: success, id, inUse, limit } = lease;
  const leaseId = id === undefined ? null : formatHoldId(id);
  return { success, leaseId, inUse, limit, expiresAt: id === undefined ? null : lease.expiresAt };
}
