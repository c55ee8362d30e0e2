/** The texts and the examples of POST /v1/ratelimits.setBlock. */

import { BLOCK_REASON_MAX_CHARACTERS } from '../../../core/constants.ts';
import {
  badRequestV1,
  END,
  NAMESPACE_REQUIRED,
  notFoundV1,
  OVERRIDE_ID,
  ok,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireNamespace } from '../../texts/request-rules.ts';
import { response, setBlock } from './set-block.ts';

export const setBlockTexts = documented(setBlock, response, {
  tag: 'Blocks',
  summary: 'Block an identifier for a time',
  description: [
    'Denies every check and every lease of an identifier in one namespace until `expires`. The ' +
      'response is sent when the block is durable and applies to the next check on every ' +
      'connection.',
    'A block takes precedence over all overrides, and replaces none: after its end, what applied ' +
      'before applies again. A set of a blocked identifier changes the end and the reason of its ' +
      'block, under the same id.',
    'A denied check has the limit 0, and as `reset` the end of the current minute. Its tokens ' +
      'are not counted. A check with cost 0 only asks, and stays allowed. Leases that exist stay.',
    'A policy or a rule in shadow mode lets blocked clients pass too, and requests that a policy ' +
      'skips are not checked.',
  ],
  notFound: 'The namespace does not exist.',
  rules: requireNamespace,
  examples: {
    blocked: {
      summary: 'Blocked until the end of a day',
      request: {
        namespaceName: 'email.send',
        identifier: 'user_8241',
        expires: END,
        reason: 'sends spam, ticket 5512',
      },
      ...ok({ blockId: OVERRIDE_ID }),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'user_8241', expires: END },
      ...NAMESPACE_REQUIRED,
    },
    ended: {
      summary: 'An end that is in the past',
      request: {
        namespaceName: 'email.send',
        identifier: 'user_8241',
        expires: 1_700_000_000_000,
      },
      ...badRequestV1(
        '"expires" must be a Unix time in ms, in the future; got 1700000000000, which is ' +
          '2023-11-14T22:13:20Z',
      ),
    },
    longReason: {
      summary: 'An empty reason',
      request: {
        namespaceName: 'email.send',
        identifier: 'user_8241',
        expires: END,
        reason: '',
      },
      ...badRequestV1(
        `"reason" must be a text of 1 to ${BLOCK_REASON_MAX_CHARACTERS} characters; got ""`,
      ),
    },
    unknown: {
      summary: 'The namespace does not exist',
      request: { namespaceName: 'nowhere', identifier: 'a', expires: END },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
  },
});
