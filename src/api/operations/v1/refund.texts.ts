/** The texts and the examples of POST /v1/ratelimits.refund. */

import {
  badRequestV1,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  ok,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireResetUnlessGcra } from '../../texts/request-rules.ts';
import { AFTER_ASYNC, OVERRIDDEN_DURATION } from '../../texts/sentences.ts';
import { refund, response } from './refund.ts';

export const refundTexts = documented(refund, response, {
  tag: 'Refund, reset, inspect, explain',
  summary: 'Return tokens of a check',
  description: [
    'Returns tokens of a check to its window. `reset` names the window: it is the `reset` in ' +
      'the response to the check. At most the usage of that window is returned, and nothing ' +
      'after its end.',
    'With `gcra` a refund needs no `reset`. It returns tokens to the bucket, by the limit of ' +
      'the last allowed check.',
    OVERRIDDEN_DURATION,
    AFTER_ASYNC,
  ],
  notFound: 'No namespace has this id.',
  rules: requireResetUnlessGcra,
  examples: {
    refunded: {
      summary: 'A token is returned',
      request: { identifier: 'user_5', duration: 60_000, reset: RESET, cost: 1 },
      ...ok({ refunded: 1 }),
    },
    tooLate: {
      summary: 'The window is over: nothing is returned',
      request: { identifier: 'user_6', duration: 60_000, reset: 1795000020000, cost: 1 },
      ...ok({ refunded: 0 }),
    },
    invalid: {
      summary: 'A reset that is no end of a window',
      request: { identifier: 'user_5', duration: 60_000, reset: 1795179600001, cost: 1 },
      ...badRequestV1(
        '"reset" must be the "reset" in the response to a check with this duration, a multiple ' +
          'of it; got 1795179600001 for 60000 ms',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: {
        namespace: NO_NAMESPACE_ID,
        identifier: 'user_5',
        duration: 60_000,
        reset: RESET,
        cost: 1,
      },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
});
