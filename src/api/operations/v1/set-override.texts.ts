/** The texts and the examples of POST /v1/ratelimits.setOverride. */

import { EXACT_OVERRIDES_MAX, WILDCARD_OVERRIDES_MAX } from '../../../core/constants.ts';
import {
  badRequestV1,
  NAMESPACE_REQUIRED,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  OVERRIDE_ID,
  ok,
} from '../../texts/examples.ts';
import { numberText } from '../../texts/number-text.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireNamespace } from '../../texts/request-rules.ts';
import {
  APPLIES,
  CREATES_NAMESPACE,
  ENDS,
  LIMITS_LEASES,
  SETS_OVERRIDE,
} from '../../texts/sentences.ts';
import { response, setOverrideV1 } from './set-override.ts';

const OVERRIDE_PRECEDENCE = [
  '1. an exact namespace, before a pattern',
  '2. more literal characters in the namespace',
  '3. a longer literal prefix of the namespace',
  '4. the smaller text of the namespace, by code points',
  '',
  'If the namespaces are the same, an exact identifier precedes a CIDR block, and a block ' +
    'precedes a pattern. Of two blocks the longer one applies. Patterns of identifiers follow ' +
    'the rules 2 to 4.',
].join('\n');

export const setOverrideV1Texts = documented(setOverrideV1, response, {
  tag: 'Overrides',
  summary: 'Set an override (v1)',
  description: [
    SETS_OVERRIDE,
    APPLIES,
    LIMITS_LEASES,
    ENDS,
    'If several overrides match, the first difference in this order decides:',
    OVERRIDE_PRECEDENCE,
    'A `namespaceName` that contains `*` is a pattern. A pattern needs the permission ' +
      '`ratelimit.*.set_override` and creates no namespace. It also matches namespaces that ' +
      'are created later. A check may create a namespace whose name contains `*`. For an ' +
      'override of such a namespace, send its id.',
    `A server has at most ${numberText(EXACT_OVERRIDES_MAX)} overrides without a wildcard and ` +
      `${numberText(WILDCARD_OVERRIDES_MAX)} with one or of a CIDR block. ${CREATES_NAMESPACE}`,
  ],
  notFound:
    'No namespace has this id, or the key lacks the permission to create a namespace with this ' +
    'name.',
  rules: requireNamespace,
  examples: {
    pattern: {
      summary: 'Another limit for all identifiers that begin with vip_',
      request: {
        namespaceName: 'email.send',
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
      },
      ...ok({ overrideId: OVERRIDE_ID }),
    },
    block: {
      summary: 'Another limit for all addresses of a CIDR block',
      request: {
        namespaceName: 'email.send',
        identifier: '203.0.113.0/24',
        cidr: true,
        limit: 100,
        duration: 60_000,
      },
      ...ok({ overrideId: OVERRIDE_ID }),
    },
    leases: {
      summary: 'Another limit of checks, and of leases',
      request: {
        namespaceName: 'email.send',
        identifier: 'acme',
        limit: 1_000,
        duration: 60_000,
        concurrency: 20,
      },
      ...ok({ overrideId: OVERRIDE_ID }),
    },
    ended: {
      summary: 'An end that is in the past',
      request: {
        namespaceName: 'email.send',
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
        expires: 1_700_000_000_000,
      },
      ...badRequestV1(
        '"expires" must be a Unix time in ms, in the future; got 1700000000000, which is ' +
          '2023-11-14T22:13:20Z',
      ),
    },
    invalid: {
      summary: 'A limit of 0, which only v2 sets',
      request: { namespaceName: 'email.send', identifier: 'vip_*', limit: 0, duration: 60_000 },
      ...badRequestV1('"limit" must be an integer from 1 to 9007199254740991; got 0'),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'vip_*', limit: 100, duration: 60_000 },
      ...NAMESPACE_REQUIRED,
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: {
        namespaceId: NO_NAMESPACE_ID,
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
      },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
});
