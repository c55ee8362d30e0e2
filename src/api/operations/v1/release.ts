/**
 * POST /v1/ratelimits.release: ends a lease. Failures are ApiErrors: 400; 404 for a lease that is
 * unknown to the key.
 */

import Type from 'typebox';
import { leaseIdField } from '../../common/holds.ts';
import { counterOperation } from '../../common/operation.ts';
import { amount } from '../../common/responses.ts';

export function response() {
  return Type.Object({
    released: amount('Tokens that are no longer in use. 0 if the lease had ended before.'),
  });
}

export const release = counterOperation({
  name: 'ratelimits.release',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace of the hold' },
  request: { leaseId: leaseIdField() },
});
