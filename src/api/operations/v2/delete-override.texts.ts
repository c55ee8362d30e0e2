/** The texts and the examples of POST /v2/ratelimit.deleteOverride. */

import { badRequestV2, notFoundV2, okV2 } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { OVERRIDE_NOT_FOUND } from '../../texts/sentences.ts';
import { deleteOverrideV2, response } from './delete-override.ts';

export const deleteOverrideV2Texts = documented(deleteOverrideV2, response, {
  tag: 'Overrides',
  summary: 'Delete an override (v2)',
  description: [
    'Deletes the override with this identifier or pattern. The response is sent when no check ' +
      'uses it any more.',
  ],
  notFound: OVERRIDE_NOT_FOUND,
  examples: {
    deleted: {
      summary: 'Deleted',
      request: { namespace: 'sms', identifier: 'vip_*' },
      ...okV2({}),
    },
    invalid: {
      summary: 'The namespace is empty',
      request: { namespace: '', identifier: 'vip_*' },
      ...badRequestV2(
        'body.namespace',
        '"namespace" must be a text of 1 to 512 characters; got ""',
        'give a text of 1 to 512 characters',
      ),
    },
    unknown: {
      summary: 'The override does not exist',
      request: { namespace: 'sms', identifier: 'nobody' },
      ...notFoundV2('there is no override of "nobody" in that namespace'),
    },
  },
});
