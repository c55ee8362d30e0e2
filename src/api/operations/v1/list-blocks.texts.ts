/** The texts and the examples of GET /v1/ratelimits.listBlocks. */

import {
  END,
  NAMESPACE_ID,
  notFoundV1,
  OVERRIDE_ID,
  ok,
  PAGE_TOO_LARGE,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { PAGES } from '../../texts/sentences.ts';
import { listBlocks, response } from './list-blocks.ts';

/** The time at which the server of the examples starts. */
const CREATED = RESET - 60_000;

export const listBlocksTexts = documented(listBlocks, response, {
  tag: 'Blocks',
  summary: 'List the blocked identifiers of a namespace or of all',
  description: [
    `Lists the blocks of a namespace, or of all namespaces that the key may read. ${PAGES} ` +
      'Blocks that have ended are not listed.',
  ],
  notFound: 'The namespace does not exist.',
  examples: {
    page: {
      summary: 'The blocks of a namespace',
      request: { namespaceName: 'email.send' },
      ...ok({
        blocks: [
          {
            id: OVERRIDE_ID,
            namespaceId: NAMESPACE_ID,
            namespaceName: 'email.send',
            identifier: 'user_8241',
            created: CREATED,
            expires: END,
            reason: 'sends spam, ticket 5512',
            usage: { applied: 0, since: CREATED },
          },
        ],
        total: 1,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespaceName: 'nowhere' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
  },
});
