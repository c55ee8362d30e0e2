/** The texts and the examples of GET /v1/ratelimits.getOverride. */

import { NAMESPACE_REQUIRED, notFoundV1, OVERRIDE_ID, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { OVERRIDE_NOT_FOUND } from '../../texts/sentences.ts';
import { getOverrideV1, response } from './get-override.ts';

export const getOverrideV1Texts = documented(getOverrideV1, response, {
  tag: 'Overrides',
  summary: 'Get an override (v1)',
  description: [
    'Returns the override with this identifier or pattern. The texts must be equal: `*` is ' +
      'no wildcard here.',
    '`namespaceId` or `namespaceName` is required.',
  ],
  notFound: OVERRIDE_NOT_FOUND,
  examples: {
    found: {
      summary: 'An override of a pattern',
      request: { namespaceName: 'mail', identifier: 'vip_*' },
      ...ok({
        id: OVERRIDE_ID,
        identifier: 'vip_*',
        limit: 100,
        duration: 60_000,
        async: false,
      }),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'vip_*' },
      ...NAMESPACE_REQUIRED,
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespaceName: 'mail', identifier: 'nobody' },
      ...notFoundV1('there is no override of "nobody" in that namespace'),
    },
  },
});
