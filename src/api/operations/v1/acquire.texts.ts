/** The texts and the examples of POST /v1/ratelimits.acquire. */

import { badRequestV1, conflictV1, HOLD_END, LEASE_ID, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import {
  CHECK_NOT_FOUND,
  CREATES_NAMESPACE,
  FULL_HOLDS,
  REPEATABLE,
  REPEATED_DIFFERENTLY,
} from '../../texts/sentences.ts';
import { acquire, response } from './acquire.ts';

export const acquireTexts = documented(acquire, response, {
  tag: 'Reservations and leases',
  summary: 'Acquire a lease',
  description: [
    'Limits how much runs at once: grants a lease of `cost` tokens if the live leases of the ' +
      'identifier then use at most `limit` tokens. There are no windows, and the tokens of ' +
      'checks do not count.',
    'A lease is live until it is released, or until its `ttl` has passed since the acquire or ' +
      'the last renewal. A lower `limit` ends no lease; it applies to the next acquire.',
    'The override that a check of the identifier would get replaces `limit` if it has ' +
      '`concurrency`. `limit` in the response is then that of the override.',
    FULL_HOLDS,
    REPEATABLE,
    CREATES_NAMESPACE,
  ],
  notFound: CHECK_NOT_FOUND,
  conflict: REPEATED_DIFFERENTLY,
  examples: {
    granted: {
      summary: 'Granted',
      request: { namespace: 'jobs', identifier: 'tenant_1', limit: 2, ttl: 30_000 },
      ...ok({ success: true, leaseId: LEASE_ID, inUse: 1, limit: 2, expiresAt: HOLD_END }),
    },
    denied: {
      summary: 'Denied: the limit is in use',
      request: { namespace: 'jobs', identifier: 'tenant_2', limit: 2, ttl: 30_000 },
      ...ok({ success: false, leaseId: null, inUse: 2, limit: 2, expiresAt: null }),
    },
    repeatedDifferently: {
      summary: 'A repetition with another limit',
      request: {
        ...{ namespace: 'jobs', identifier: 'tenant_4', limit: 3, ttl: 30_000 },
        requestId: 'job_42',
      },
      ...conflictV1(
        '"requestId" must be new, or that of a request with the same limit, cost and ttl; got ' +
          '"job_42", which was allowed with other values less than 60 s ago',
      ),
    },
    invalid: {
      summary: 'A lease without a ttl',
      request: { namespace: 'jobs', identifier: 'tenant_1', limit: 2 },
      ...badRequestV1('"ttl" is required: an integer number of milliseconds from 1000 to 86400000'),
    },
  },
});
