/** The texts and the examples of POST /v2/ratelimit.setOverride. */

import {
  badRequestV2,
  END,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV2,
  OVERRIDE_ID,
  okV2,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import {
  APPLIES,
  CREATES_NAMESPACE,
  ENDS,
  LIMITS_LEASES,
  SETS_OVERRIDE,
} from '../../texts/sentences.ts';
import { response, setOverrideV2 } from './set-override.ts';

export const setOverrideV2Texts = documented(setOverrideV2, response, {
  tag: 'Overrides',
  summary: 'Set an override (v2)',
  description: [
    SETS_OVERRIDE,
    'An override that v2 sets is synchronous. A limit of 0 denies every check with a cost.',
    APPLIES,
    LIMITS_LEASES,
    ENDS,
    'The precedence, patterns and maximums are those of `ratelimits.setOverride`.',
    CREATES_NAMESPACE,
  ],
  notFound:
    'No namespace has this id, or the key lacks the permission to create a namespace with this ' +
    'name.',
  examples: {
    exact: {
      summary: 'A limit of 0 denies every check',
      request: { namespace: 'api', identifier: 'abuser', limit: 0, duration: 60_000 },
      ...okV2({ overrideId: OVERRIDE_ID }),
    },
    ending: {
      summary: 'A higher limit until a time',
      request: {
        namespace: 'api',
        identifier: 'acme',
        limit: 1_000,
        duration: 60_000,
        expires: END,
      },
      ...okV2({ overrideId: OVERRIDE_ID }),
    },
    invalid: {
      summary: 'A duration that is too short',
      request: { namespace: 'api', identifier: 'abuser', limit: 0, duration: 999 },
      ...badRequestV2(
        'body.duration',
        '"duration" must be an integer number of milliseconds from 1000 to 3155760000000; got 999',
        'give an integer number of milliseconds from 1000 to 3155760000000',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'abuser', limit: 0, duration: 60_000 },
      ...notFoundV2(NO_SUCH_ID),
    },
  },
});
