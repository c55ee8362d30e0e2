/** The texts and the examples of POST /v1/ratelimits.deleteBlock. */

import { NAMESPACE_REQUIRED, notFoundV1, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireNamespace } from '../../texts/request-rules.ts';
import { deleteBlock, response } from './delete-block.ts';

export const deleteBlockTexts = documented(deleteBlock, response, {
  tag: 'Blocks',
  summary: 'End the block of an identifier',
  description: [
    'Ends a block before its time. The response is sent when no check is denied by it any more. ' +
      'The override, the policy or the limit that applied before applies again.',
  ],
  notFound: 'The namespace does not exist, or the identifier is not blocked in it.',
  rules: requireNamespace,
  examples: {
    ended: {
      summary: 'Ended',
      request: { namespaceName: 'email.send', identifier: 'user_8241' },
      ...ok({}),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: { identifier: 'user_8241' },
      ...NAMESPACE_REQUIRED,
    },
    notBlocked: {
      summary: 'The identifier is not blocked',
      request: { namespaceName: 'email.send', identifier: 'nobody' },
      ...notFoundV1('"nobody" is not blocked in that namespace'),
    },
  },
});
