/** The texts and the examples of POST /v1/ratelimits.reserve. */

import {
  badRequestV1,
  conflictV1,
  HOLD_END,
  ok,
  RESERVATION_ID,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireGcraForBurst } from '../../texts/request-rules.ts';
import {
  CHECK_NOT_FOUND,
  CREATES_NAMESPACE,
  FULL_HOLDS,
  REPEATABLE,
  REPEATED_DIFFERENTLY,
} from '../../texts/sentences.ts';
import { reserve, response } from './reserve.ts';

const REQUEST = { namespace: 'llm', limit: 100_000, duration: 60_000, cost: 4_000, ttl: 30_000 };

export const reserveTexts = documented(reserve, response, {
  tag: 'Reservations and leases',
  summary: 'Reserve tokens',
  description: [
    'Decides a check whose cost is known later, and counts `cost` tokens if it is allowed. ' +
      '`commit` corrects the count to the tokens that were used; `cancel` returns all of them.',
    'The window, the algorithm and the overrides are those of `ratelimits.limit`: checks and ' +
      'reservations of the same identifier and `duration` share a counter.',
    'After `ttl` the reservation ends by itself. With `WEIR_ON_HOLD_EXPIRY=release`, the ' +
      'default, its tokens return to their window; with `charge` they stay counted.',
    '`checks` reserves for up to 16 checks at once, all of them or none, as for the requests and ' +
      'the tokens of a client. One id stands for all; a commit then has one of `costs` for each.',
    FULL_HOLDS,
    REPEATABLE,
    CREATES_NAMESPACE,
  ],
  notFound: CHECK_NOT_FOUND,
  conflict: REPEATED_DIFFERENTLY,
  rules: requireGcraForBurst,
  examples: {
    reserved: {
      summary: 'Reserved',
      request: { identifier: 'org_1', ...REQUEST },
      ...ok({
        success: true,
        reservationId: RESERVATION_ID,
        limit: 100_000,
        remaining: 96_000,
        reset: RESET,
        expiresAt: HOLD_END,
      }),
    },
    denied: {
      summary: 'Denied: fewer tokens are left',
      request: { identifier: 'org_2', ...REQUEST },
      ...ok({
        success: false,
        reservationId: null,
        limit: 100_000,
        remaining: 1_000,
        reset: RESET,
        expiresAt: null,
      }),
    },
    several: {
      summary: 'One request and 4 000 tokens at once',
      request: {
        checks: [
          { identifier: 'org_1 requests', limit: 60, duration: 60_000, cost: 1 },
          { identifier: 'org_1 tokens', limit: 100_000, duration: 60_000, cost: 4_000 },
        ],
        ttl: 30_000,
      },
      ...ok({
        success: true,
        reservationId: RESERVATION_ID,
        checks: [
          { success: true, limit: 60, remaining: 59, reset: RESET },
          { success: true, limit: 100_000, remaining: 96_000, reset: RESET },
        ],
        expiresAt: HOLD_END,
      }),
    },
    repeatedDifferently: {
      summary: 'A repetition with another ttl',
      request: { identifier: 'org_3', ...REQUEST, ttl: 60_000, requestId: 'prompt_42' },
      ...conflictV1(
        '"requestId" must be new, or that of a request with the same limit, duration, algorithm, ' +
          'burst, cost and ttl; got "prompt_42", which was allowed with other values less than ' +
          '60 s ago',
      ),
    },
    invalid: {
      summary: 'A ttl in seconds instead of milliseconds',
      request: { identifier: 'org_1', ...REQUEST, ttl: 30 },
      ...badRequestV1(
        '"ttl" must be an integer number of milliseconds from 1000 to 86400000; got 30',
      ),
    },
  },
});
