/** The texts and the examples of POST /v1/ratelimits.cancel. */

import {
  badRequestV1,
  NO_RESERVATION_ID,
  notFoundV1,
  ok,
  RESERVATION_ID,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { HOLD_NOT_FOUND } from '../../texts/sentences.ts';
import { cancel, response } from './cancel.ts';

export const cancelTexts = documented(cancel, response, {
  tag: 'Reservations and leases',
  summary: 'Cancel a reservation',
  description: [
    'Ends a reservation whose work was not done: its tokens return to their window, as by a ' +
      'commit of 0. If the window has ended, nothing returns.',
    'A reservation that has been committed before stays committed: `released` is that of the ' +
      'commit.',
  ],
  notFound: HOLD_NOT_FOUND,
  examples: {
    cancelled: {
      summary: 'All tokens return',
      request: { reservationId: RESERVATION_ID },
      ...ok({ released: 4_000 }),
    },
    invalid: {
      summary: 'The id is missing',
      request: {},
      ...badRequestV1(
        '"reservationId" is required: the "reservationId" of a reserve, a text of 1 to 64 ' +
          'characters',
      ),
    },
    unknown: {
      summary: 'No reservation has this id',
      request: { reservationId: NO_RESERVATION_ID },
      ...notFoundV1(
        `there is no reservation "${NO_RESERVATION_ID}", it ended more than 10 minutes ago, or ` +
          'the API key lacks the permission "limit" in its namespace',
      ),
    },
  },
});
