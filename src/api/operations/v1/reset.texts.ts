/** The texts and the examples of POST /v1/ratelimits.reset. */

import {
  IDENTIFIER_REQUIRED,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  ok,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { AFTER_ASYNC, OVERRIDDEN_DURATION } from '../../texts/sentences.ts';
import { reset, response } from './reset.ts';

export const resetTexts = documented(reset, response, {
  tag: 'Refund, reset, inspect, explain',
  summary: 'Clear the counters of an identifier',
  description: [
    'Clears the counters of an identifier: all of them, or those of one duration or ' +
      'algorithm.',
    'Live reservations of these counters return nothing any more. Leases go on, unless ' +
      '`leases` is `true`.',
    OVERRIDDEN_DURATION,
    AFTER_ASYNC,
  ],
  notFound: 'No namespace has this id.',
  examples: {
    cleared: {
      summary: 'A counter is cleared',
      request: { identifier: 'user_7' },
      ...ok({ cleared: 1 }),
    },
    nothing: {
      summary: 'The identifier has no counter with this duration',
      request: { namespace: 'email.send', identifier: 'user_8', duration: 1_000 },
      ...ok({ cleared: 0 }),
    },
    leases: {
      summary: 'Leases end too',
      request: { identifier: 'job', leases: true },
      ...ok({ cleared: 0, leases: 0 }),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'user_1' },
      ...notFoundV1(NO_SUCH_ID),
    },
    invalid: {
      summary: 'The identifier is missing',
      request: { duration: 60_000 },
      ...IDENTIFIER_REQUIRED,
    },
  },
});
