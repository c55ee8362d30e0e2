/** The texts and the examples of POST /v1/ratelimits.renew. */

import { badRequestV1, HOLD_END, LEASE_ID, NO_LEASE_ID, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { renew, response } from './renew.ts';

export const renewTexts = documented(renew, response, {
  tag: 'Reservations and leases',
  summary: 'Renew a lease',
  description: [
    'Sets a new end of a live lease: `ttl` from now. Renew a lease every third of its `ttl`, so ' +
      'that a lost request does not end it.',
    'A renewal never grants a new lease. `success` is `false` if the lease has ended, if it is ' +
      'unknown, or if the key lacks the permission `limit` in its namespace. Another client may ' +
      'use the tokens then.',
  ],
  examples: {
    renewed: {
      summary: 'The lease is live',
      request: { leaseId: LEASE_ID, ttl: 30_000 },
      ...ok({ success: true, inUse: 1, limit: 2, expiresAt: HOLD_END }),
    },
    ended: {
      summary: 'The lease has ended, or is unknown',
      request: { leaseId: NO_LEASE_ID, ttl: 30_000 },
      ...ok({ success: false, inUse: null, limit: null, expiresAt: null }),
    },
    invalid: {
      summary: 'The id is missing',
      request: { ttl: 30_000 },
      ...badRequestV1(
        '"leaseId" is required: the "leaseId" of an acquire, a text of 1 to 64 characters',
      ),
    },
  },
});
