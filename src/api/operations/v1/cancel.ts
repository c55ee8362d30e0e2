/**
 * POST /v1/ratelimits.cancel: ends a reservation whose work was not done. Failures are ApiErrors:
 * 400; 404 for a reservation that is unknown to the key.
 */

import Type from 'typebox';
import { reservationIdField } from '../../common/holds.ts';
import { counterOperation } from '../../common/operation.ts';
import { amount } from '../../common/responses.ts';

export function response() {
  return Type.Object({ released: amount('Tokens that were returned.') });
}

export const cancel = counterOperation({
  name: 'ratelimits.cancel',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace of the hold' },
  request: { reservationId: reservationIdField() },
});
