/** The texts and the examples of POST /v1/ratelimits.limit. */

import { CREATE_NAMESPACE } from '../../../auth/permissions.ts';
import { CHECK_QUEUE_ENTRIES } from '../../../core/constants.ts';
import { badRequestV1, conflictV1, notFoundV1, ok, RESET } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireGcraForBurst } from '../../texts/request-rules.ts';
import {
  CHECK_NOT_FOUND,
  CREATES_NAMESPACE,
  FULL_TABLE,
  GCRA,
  REPEATABLE,
  REPEATED_DIFFERENTLY,
} from '../../texts/sentences.ts';
import { limitV1, response } from './limit.ts';

export const limitV1Texts = documented(limitV1, response, {
  tag: 'Checks',
  summary: 'Check a limit (v1)',
  description: [
    'Decides whether the identifier may use `cost` tokens, and counts them if it may. A ' +
      'denial is a 200 with `success: false`, and uses no tokens.',
    'Unless `algorithm` names another rule, windows are fixed and aligned to the Unix epoch. ' +
      '`reset` is then a multiple of `duration`. There is one counter for each namespace, ' +
      'identifier and duration, so the usage stays if the limit changes.',
    GCRA,
    'With `async` a window may allow more than its limit, because deductions follow the ' +
      'responses, usually within 2 ms. The excess is at most the checks that wait for their ' +
      `deduction: ${CHECK_QUEUE_ENTRIES} for each acceptor. Further checks are decided ` +
      'synchronously. With `WEIR_DECIDE=worker` the field has no effect.',
    FULL_TABLE,
    REPEATABLE,
    CREATES_NAMESPACE,
  ],
  notFound: CHECK_NOT_FOUND,
  conflict: REPEATED_DIFFERENTLY,
  rules: requireGcraForBurst,
  examples: {
    allowed: {
      summary: 'Allowed',
      request: { identifier: 'user_1', limit: 10, duration: 60_000 },
      ...ok({ success: true, limit: 10, remaining: 9, reset: RESET }),
    },
    denied: {
      summary: 'Denied: no tokens are left',
      request: { namespace: 'email.send', identifier: 'user_2', limit: 10, duration: 60_000 },
      ...ok({ success: false, limit: 10, remaining: 0, reset: RESET }),
    },
    gcra: {
      summary: 'A rate with a burst',
      request: {
        identifier: 'user_3',
        limit: 100,
        duration: 60_000,
        algorithm: 'gcra',
        burst: 20,
      },
      ...ok({ success: true, limit: 100, remaining: 19, reset: 1795179540600 }),
    },
    cost: {
      summary: 'Several tokens, deducted after the response',
      request: { identifier: 'user_4', limit: 1_000, duration: 3_600_000, cost: 25, async: true },
      ...ok({ success: true, limit: 1_000, remaining: 975, reset: RESET }),
    },
    repeatable: {
      summary: 'Safe to repeat',
      request: { identifier: 'user_6', limit: 10, duration: 60_000, requestId: 'order_42' },
      ...ok({ success: true, limit: 10, remaining: 9, reset: RESET }),
    },
    repeatedDifferently: {
      summary: 'A repetition with another cost',
      request: {
        ...{ identifier: 'user_6', limit: 10, duration: 60_000, cost: 2 },
        requestId: 'order_42',
      },
      ...conflictV1(
        '"requestId" must be new, or that of a request with the same limit, duration, algorithm, ' +
          'burst and cost; got "order_42", which was allowed with other values less than 60 s ago',
      ),
    },
    invalid: {
      summary: 'A duration in seconds instead of milliseconds',
      request: { identifier: 'user_1', limit: 10, duration: 60 },
      ...badRequestV1(
        '"duration" must be an integer number of milliseconds from 1000 to 3155760000000; got 60',
      ),
    },
    mayNotCreate: {
      summary: 'The namespace is new, and the key may not create it',
      request: { namespace: 'new', identifier: 'user_1', limit: 10, duration: 60_000 },
      ...notFoundV1(
        `there is no namespace "new", and the API key lacks the permission ` +
          `"${CREATE_NAMESPACE}" to create it`,
      ),
    },
  },
});
