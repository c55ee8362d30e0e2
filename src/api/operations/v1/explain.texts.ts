/** The texts and the examples of POST /v1/ratelimits.explain. */

import { RECENT_TOGETHER_MS } from '../../../core/constants.ts';
import {
  badRequestV1,
  NO_HOLDS,
  notFoundV1,
  OVERRIDE_ID,
  ok,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireGcraForBurst, requireLimitWithDuration } from '../../texts/request-rules.ts';
import { AFTER_ASYNC } from '../../texts/sentences.ts';
import { explain, response } from './explain.ts';

export const explainTexts = documented(explain, response, {
  tag: 'Refund, reset, inspect, explain',
  summary: 'Explain why a check is allowed or denied',
  description: [
    'Says which override applies to an identifier, what its counters hold, and what its next ' +
      'check would get. Nothing changes: no token is used, and no namespace is created.',
    'With `limit` and `duration` the check is one of the API. `algorithm` is then `sliding` ' +
      'unless the field is set; for a check of v1 without an algorithm, set `fixed`. An ' +
      'override that matches replaces `limit` and `duration`.',
    'Without `limit`, `duration`, `algorithm` and `burst`, the check is that of a gateway, if ' +
      'the namespace has a policy. `windows` then has an entry for each window of the policy, ' +
      'or one entry if an override matches.',
    'If nothing sets a limit, the application sends it with each check. The explained check is ' +
      'then the last one among the [recent decisions](#analyticsgetdecisions), with its limit, ' +
      'rule and cost: these terms come from `decision`. If several windows were checked within ' +
      `${RECENT_TOGETHER_MS / 1_000} s, each of them is explained. A key without ` +
      '`read_analytics` in the namespace gets no recent decisions.',
    'Without a recent decision, a counter stands for a check with its duration, and with the ' +
      'limit of the last check that it counted. ' +
      'These terms come from `counter`. If `algorithm` is set, only its counters are used. ' +
      'Otherwise a counter of windows is predicted as `fixed`: it does not say whether its ' +
      'checks slide. A counter does not have the burst of its checks either. If there are ' +
      'several counters, each window is predicted for itself. The cause is then `no_limit`, as ' +
      'without a counter.',
    '`rule` of another override is the first rule of precedence that distinguishes it from the ' +
      'one that applies. The rules are those of `ratelimits.setOverride`.',
    'A check at the time `at` gets this decision, unless another check or change comes first. ' +
      'With `WEIR_ENGINE=redis`, `isExact` is `false`. Tokens that other machines hold in ' +
      'leases, and do not return within 0.3 s, are then shown as used. `WEIR_ON_ENGINE_DOWN` ' +
      'is not taken into account.',
    AFTER_ASYNC,
  ],
  notFound: 'The namespace does not exist.',
  rules: (schema) => requireLimitWithDuration(requireGcraForBurst(schema)),
  examples: {
    denied: {
      summary: 'An override denies the check',
      request: { namespace: 'email.send', identifier: 'user_10', cost: 1 },
      ...ok({
        namespace: 'email.send',
        identifier: 'user_10',
        at: 1795179540600,
        success: false,
        cause: 'limit_reached',
        passesAt: RESET,
        reason:
          'The check is denied: the fixed window of 1m has 0 of 5 tokens left, and the ' +
          'cost is 1. It can pass at 2026-11-20T13:00:00Z, if no other is counted.',
        isExact: true,
        override: {
          id: OVERRIDE_ID,
          namespace: 'email.send',
          identifier: 'user_*',
          limit: 5,
          duration: 60_000,
          async: false,
        },
        otherOverrides: [
          {
            id: OVERRIDE_ID,
            namespace: 'email.*',
            identifier: 'user_10',
            limit: 50,
            duration: 60_000,
            async: false,
            rule: 'exact_namespace',
            reason: 'an exact namespace takes precedence over a pattern',
          },
        ],
        matchingOverrides: 2,
        windows: [
          {
            success: false,
            left: 0,
            remaining: 0,
            reset: RESET,
            cause: 'limit_reached',
            passesAt: RESET,
            terms: {
              limit: { value: 5, from: 'override' },
              duration: { value: 60_000, from: 'override' },
              algorithm: { value: 'fixed', from: 'decision', at: RESET - 59_400 },
              async: { value: false, from: 'default' },
              cost: { value: 1, from: 'request' },
            },
          },
        ],
        recent: {
          since: RESET - 59_900,
          last: {
            time: RESET - 59_400,
            until: RESET - 59_400,
            decision: 'allowed',
            count: 1,
            cost: 5,
            limit: 5,
            duration: 60_000,
            algorithm: 'fixed',
            remaining: 0,
            reset: RESET,
            source: 'override',
            override: OVERRIDE_ID,
          },
        },
        counters: [
          {
            duration: 60_000,
            limit: 5,
            windowStart: 1795179540000,
            current: 5,
            previous: 0,
            algorithms: {
              fixed: { used: 5, remaining: 0, reset: RESET },
            },
          },
        ],
        holds: NO_HOLDS,
      }),
    },
    noLimit: {
      summary: 'Nothing sets a limit',
      request: { namespace: 'email.send', identifier: 'order_1' },
      ...ok({
        namespace: 'email.send',
        identifier: 'order_1',
        at: 1795179540600,
        cause: 'no_limit',
        reason:
          'No decision is predicted: the request has no limit and duration, and no override or ' +
          'policy sets them.',
        isExact: true,
        otherOverrides: [],
        matchingOverrides: 0,
        windows: [],
        recent: { since: RESET - 59_900 },
        counters: [],
        holds: NO_HOLDS,
      }),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespace: 'nowhere', identifier: 'user_1' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
    invalid: {
      summary: 'A limit without a duration',
      request: { identifier: 'user_1', limit: 10 },
      ...badRequestV1(
        '"duration" is required with "limit": a check has both; got only "limit" = 10',
      ),
    },
  },
});
