/** The texts and the examples of POST /v2/ratelimit.limit. */

import {
  badRequestV2,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV2,
  OVERRIDE_ID,
  okV2,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireGcraForBurst } from '../../texts/request-rules.ts';
import { CHECK_NOT_FOUND, CREATES_NAMESPACE, FULL_TABLE, GCRA } from '../../texts/sentences.ts';
import { limitV2, response } from './limit.ts';

export const limitV2Texts = documented(limitV2, response, {
  tag: 'Checks',
  summary: 'Check a limit (v2)',
  description: [
    'Decides whether the identifier may use `cost` tokens, and counts them if it may. A ' +
      'denial is a 200 with `success: false`, and uses no tokens.',
    'Unless `algorithm` names another rule, the window slides. The usage of the previous ' +
      'window then counts in part: by the share of that window that lies within the last ' +
      '`duration`. A check is allowed if `usage + floor(previous usage * share) + cost` is at ' +
      'most `limit`. `reset` is the end of the current window.',
    'The counters are those of v1, so both versions count the same usage.',
    GCRA,
    FULL_TABLE,
    'Unknown fields are rejected.',
    CREATES_NAMESPACE,
  ],
  notFound: CHECK_NOT_FOUND,
  rules: requireGcraForBurst,
  examples: {
    allowed: {
      summary: 'Allowed',
      request: { namespace: 'api', identifier: 'user_1', limit: 10, duration: 60_000 },
      ...okV2({ limit: 10, remaining: 9, reset: RESET, success: true }),
    },
    denied: {
      summary: 'Denied: no tokens are left',
      request: { namespace: 'api', identifier: 'user_2', limit: 10, duration: 60_000 },
      ...okV2({ limit: 10, remaining: 0, reset: RESET, success: false, passesAt: RESET + 1 }),
    },
    overridden: {
      summary: 'An override applies',
      request: { namespace: 'api', identifier: 'user_3', limit: 10, duration: 60_000, cost: 5 },
      ...okV2({
        limit: 100,
        remaining: 95,
        reset: RESET,
        success: true,
        overrideId: OVERRIDE_ID,
      }),
    },
    invalid: {
      summary: 'A field that v2 does not have',
      request: {
        namespace: 'api',
        identifier: 'user_1',
        limit: 10,
        duration: 60_000,
        async: true,
      },
      ...badRequestV2(
        'body.async',
        '"async" is not a field of the body',
        'remove it; the fields are namespace, identifier, limit, duration, cost, algorithm, burst',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'user_1', limit: 10, duration: 60_000 },
      ...notFoundV2(NO_SUCH_ID),
    },
  },
});
