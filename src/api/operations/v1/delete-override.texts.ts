/** The texts and the examples of POST /v1/ratelimits.deleteOverride. */

import { NAMESPACE_REQUIRED, notFoundV1, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireNamespace } from '../../texts/request-rules.ts';
import { OVERRIDE_NOT_FOUND } from '../../texts/sentences.ts';
import { deleteOverrideV1, response } from './delete-override.ts';

export const deleteOverrideV1Texts = documented(deleteOverrideV1, response, {
  tag: 'Overrides',
  summary: 'Delete an override (v1)',
  description: [
    'Deletes the override with this identifier or pattern. The response is sent when no check ' +
      'uses it any more.',
  ],
  notFound: OVERRIDE_NOT_FOUND,
  rules: requireNamespace,
  examples: {
    deleted: {
      summary: 'Deleted',
      request: { namespaceName: 'sms', identifier: 'vip_*' },
      ...ok({}),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'vip_*' },
      ...NAMESPACE_REQUIRED,
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespaceName: 'sms', identifier: 'nobody' },
      ...notFoundV1('there is no override of "nobody" in that namespace'),
    },
  },
});
