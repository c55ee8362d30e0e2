/** The texts and the examples of POST /v1/ratelimits.commit. */

import {
  badRequestV1,
  NO_RESERVATION_ID,
  notFoundV1,
  ok,
  RESERVATION_ID,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { HOLD_NOT_FOUND } from '../../texts/sentences.ts';
import { commit, response } from './commit.ts';

export const commitTexts = documented(commit, response, {
  tag: 'Reservations and leases',
  summary: 'Commit a reservation',
  description: [
    'Ends a reservation with the tokens that were used. If they are fewer than reserved, the ' +
      'rest returns to the window of the reservation. If they are more, the excess is counted ' +
      'too, also beyond the limit.',
    'If the window has ended, nothing returns, and an excess is counted in the current window. ' +
      'With `sliding` tokens return until the end of the window after it, as they are carried ' +
      'over. With `gcra` the tokens return that have not come back by themselves meanwhile.',
    'A repeated commit has the same answer and changes nothing, also with another `cost`.',
    'After its `ttl` a commit is `late`. If the tokens of the reservation were released, the ' +
      '`cost` is counted now.',
  ],
  notFound: HOLD_NOT_FOUND,
  examples: {
    committed: {
      summary: 'Fewer tokens were used than reserved',
      request: { reservationId: RESERVATION_ID, cost: 1_250 },
      ...ok({ success: true, charged: 1_250, released: 2_750, late: false }),
    },
    costs: {
      summary: 'A reservation of one request and 4 000 tokens',
      request: { reservationId: RESERVATION_ID, costs: [1, 1_250] },
      ...ok({ success: true, charged: 1_251, released: 2_750, late: false }),
    },
    invalid: {
      summary: 'The id is missing',
      request: { cost: 1_250 },
      ...badRequestV1(
        '"reservationId" is required: the "reservationId" of a reserve, a text of 1 to 64 ' +
          'characters',
      ),
    },
    unknown: {
      summary: 'No reservation has this id',
      request: { reservationId: NO_RESERVATION_ID, cost: 1_250 },
      ...notFoundV1(
        `there is no reservation "${NO_RESERVATION_ID}", it ended more than 10 minutes ago, or ` +
          'the API key lacks the permission "limit" in its namespace',
      ),
    },
  },
});
