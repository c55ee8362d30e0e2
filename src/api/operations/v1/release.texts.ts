/** The texts and the examples of POST /v1/ratelimits.release. */

import { badRequestV1, LEASE_ID, NO_LEASE_ID, notFoundV1, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { HOLD_NOT_FOUND } from '../../texts/sentences.ts';
import { release, response } from './release.ts';

export const releaseTexts = documented(release, response, {
  tag: 'Reservations and leases',
  summary: 'Release a lease',
  description: [
    'Ends a lease: its tokens are no longer in use. If it had ended before, by itself or by ' +
      'another release, `released` is 0.',
  ],
  notFound: HOLD_NOT_FOUND,
  examples: {
    released: {
      summary: 'Released',
      request: { leaseId: LEASE_ID },
      ...ok({ released: 1 }),
    },
    invalid: {
      summary: 'The id is missing',
      request: {},
      ...badRequestV1(
        '"leaseId" is required: the "leaseId" of an acquire, a text of 1 to 64 characters',
      ),
    },
    unknown: {
      summary: 'No lease has this id',
      request: { leaseId: NO_LEASE_ID },
      ...notFoundV1(
        `there is no lease "${NO_LEASE_ID}", it ended more than 10 minutes ago, or the API key ` +
          'lacks the permission "limit" in its namespace',
      ),
    },
  },
});
