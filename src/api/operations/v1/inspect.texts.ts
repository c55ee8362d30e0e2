/** The texts and the examples of POST /v1/ratelimits.inspect. */

import { IDENTIFIER_REQUIRED, NO_HOLDS, notFoundV1, ok, RESET } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { AFTER_ASYNC } from '../../texts/sentences.ts';
import { inspect, response } from './inspect.ts';

export const inspectTexts = documented(inspect, response, {
  tag: 'Refund, reset, inspect, explain',
  summary: 'Show the counters of an identifier',
  description: [
    'Shows the counters of an identifier, and changes none of them. A counter of `fixed` and ' +
      '`sliding` has `windowStart`, `current` and `previous`. A counter of `gcra` has ' +
      '`fullAt`.',
    '`algorithms` has one entry for each algorithm that shares the counter. An entry has the ' +
      'usage by that algorithm, for the limit of the last allowed check.',
    '`holds` has the live reservations and leases. What is reserved is part of what is used.',
    AFTER_ASYNC,
  ],
  notFound: 'The namespace does not exist.',
  examples: {
    counters: {
      summary: 'A counter of windows and a bucket',
      request: { identifier: 'user_9' },
      ...ok({
        namespace: 'default',
        identifier: 'user_9',
        counters: [
          {
            duration: 600_000,
            limit: 20,
            fullAt: 1795179570000,
            algorithms: { gcra: { used: 1, remaining: 19, reset: 1795179570000 } },
          },
          {
            duration: 3_600_000,
            limit: 10,
            windowStart: 1795176000000,
            current: 3,
            previous: 0,
            algorithms: {
              fixed: { used: 3, remaining: 7, reset: RESET },
              sliding: { used: 3, remaining: 7, reset: RESET },
            },
          },
        ],
        holds: NO_HOLDS,
      }),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespace: 'nowhere', identifier: 'user_1' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
    invalid: {
      summary: 'The identifier is missing',
      request: {},
      ...IDENTIFIER_REQUIRED,
    },
  },
});
