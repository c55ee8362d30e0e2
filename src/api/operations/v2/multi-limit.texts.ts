/** The texts and the examples of POST /v2/ratelimit.multiLimit. */

import Type from 'typebox';
import { MULTI_LIMIT_MAX } from '../../../core/constants.ts';
import {
  badRequestV2,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV2,
  okV2,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireGcraForBurst } from '../../texts/request-rules.ts';
import { CHECK_NOT_FOUND, CREATES_NAMESPACE, lacksForItem } from '../../texts/sentences.ts';
import { multiLimit, response } from './multi-limit.ts';

export const multiLimitTexts = documented(multiLimit, response, {
  tag: 'Checks',
  summary: 'Check several limits at once',
  description: [
    `Decides 1 to ${MULTI_LIMIT_MAX} checks as one batch. If all checks are allowed, all are ` +
      'counted. If one is denied, none is counted. Checks are decided in their order. A check ' +
      'sees the tokens that earlier checks of the batch use on the same counter.',
    '`passed` of a check is the decision on this check alone. If the batch is denied, ' +
      '`remaining` of a check that passed is the value before the request.',
    'The fields of a check are those of `ratelimit.limit`. `async` of an override and ' +
      '`WEIR_DECIDE` have no effect on a batch.',
    CREATES_NAMESPACE,
  ],
  forbidden: lacksForItem('[0]', 'limit'),
  notFound: CHECK_NOT_FOUND,
  rules: (check) => {
    const limits = { minItems: 1, maxItems: MULTI_LIMIT_MAX };
    return Type.Array(requireGcraForBurst(check), limits);
  },
  examples: {
    allowed: {
      summary: 'All checks are allowed, and counted',
      request: [
        { namespace: 'api', identifier: 'user_4', limit: 10, duration: 60_000 },
        { namespace: 'api', identifier: 'org_1', limit: 1_000, duration: 3_600_000, cost: 2 },
      ],
      ...okV2({
        passed: true,
        limits: [
          {
            namespace: 'api',
            identifier: 'user_4',
            limit: 10,
            remaining: 9,
            reset: RESET,
            passed: true,
          },
          {
            namespace: 'api',
            identifier: 'org_1',
            limit: 1_000,
            remaining: 998,
            reset: RESET,
            passed: true,
          },
        ],
      }),
    },
    denied: {
      summary: 'One check is denied, so none is counted',
      request: [
        { namespace: 'api', identifier: 'user_5', limit: 10, duration: 60_000 },
        { namespace: 'api', identifier: 'org_2', limit: 1_000, duration: 3_600_000 },
      ],
      ...okV2({
        passed: false,
        limits: [
          {
            namespace: 'api',
            identifier: 'user_5',
            limit: 10,
            remaining: 10,
            reset: RESET,
            passed: true,
          },
          {
            namespace: 'api',
            identifier: 'org_2',
            limit: 1_000,
            remaining: 0,
            reset: RESET,
            passed: false,
            passesAt: RESET + 1,
          },
        ],
      }),
    },
    invalid: {
      summary: 'The second check is invalid',
      request: [
        { namespace: 'api', identifier: 'user_1', limit: 10, duration: 60_000 },
        { namespace: 'api', identifier: 'org_1', limit: 0, duration: 3_600_000 },
      ],
      ...badRequestV2(
        'body[1].limit',
        '[1]: "limit" must be an integer from 1 to 9007199254740991; got 0',
        'give an integer from 1 to 9007199254740991',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has the id of the first check',
      request: [{ namespace: NO_NAMESPACE_ID, identifier: 'user_1', limit: 10, duration: 60_000 }],
      ...notFoundV2(`[0]: ${NO_SUCH_ID}`),
    },
  },
});
