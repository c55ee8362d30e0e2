/**
 * POST /v1/ratelimits.renew: keeps a lease alive. Failures are ApiErrors (400). A lease that is
 * unknown to the key is none: the response is that for a lease that has ended.
 */

import Type from 'typebox';
import type { Lease } from '../../../engine/hold-engine.ts';
import { expiresAt, leaseIdField, orNull, ttlField } from '../../common/holds.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { amount, flagged } from '../../common/responses.ts';

export function response() {
  const orEnded = (description: string) => {
    return orNull(amount(''), `${description} \`null\` if the lease has ended.`);
  };
  return Type.Object({
    success: flagged('Whether the lease is live. If not, stop its work, or acquire a new lease.'),
    inUse: orEnded('Tokens of all live leases of the identifier, with this one.'),
    limit: orEnded('The limit of the acquire.'),
    expiresAt: expiresAt('`null` if the lease has ended.'),
  });
}

export const renew = counterOperation({
  name: 'ratelimits.renew',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace of the hold' },
  request: {
    leaseId: leaseIdField(),
    ttl: ttlField('the lease ends by itself, counted from this renewal'),
  },
});

/** That of a lease that has ended, or is unknown to the key. */
export const ENDED_LEASE: Lease = {
  granted: false,
  id: undefined,
  inUse: 0,
  limit: 0,
  expiresAt: 0,
};

export function renewResult(lease: Lease): Result<typeof response> {
  const { granted: success, inUse, limit, expiresAt } = lease;
  if (!success) return { success, inUse: null, limit: null, expiresAt: null };
  return { success, inUse, limit, expiresAt };
}
