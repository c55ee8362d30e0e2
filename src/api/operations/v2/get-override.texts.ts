/** The texts and the examples of POST /v2/ratelimit.getOverride. */

import { badRequestV2, notFoundV2, OVERRIDE_ID, okV2 } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { OVERRIDE_NOT_FOUND } from '../../texts/sentences.ts';
import { getOverrideV2, response } from './get-override.ts';

export const getOverrideV2Texts = documented(getOverrideV2, response, {
  tag: 'Overrides',
  summary: 'Get an override (v2)',
  description: [
    'Returns the override with this identifier or pattern. The texts must be equal: `*` is ' +
      'no wildcard here.',
  ],
  notFound: OVERRIDE_NOT_FOUND,
  examples: {
    found: {
      summary: 'An override of a pattern',
      request: { namespace: 'mail', identifier: 'vip_*' },
      ...okV2({ overrideId: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000 }),
    },
    invalid: {
      summary: 'The identifier is missing',
      request: { namespace: 'mail' },
      ...badRequestV2(
        'body.identifier',
        '"identifier" is required: a text of 1 to 512 characters',
        'give a text of 1 to 512 characters',
      ),
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespace: 'mail', identifier: 'nobody' },
      ...notFoundV2('there is no override of "nobody" in that namespace'),
    },
  },
});
