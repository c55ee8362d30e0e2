/** The texts and the examples of POST /v2/ratelimit.listOverrides. */

import { badRequestV2, notFoundV2, OVERRIDE_ID, ok, REQUEST_ID } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { PAGES } from '../../texts/sentences.ts';
import { listOverridesV2, response } from './list-overrides.ts';

export const listOverridesV2Texts = documented(listOverridesV2, response, {
  tag: 'Overrides',
  summary: 'List the overrides of a namespace (v2)',
  description: [`Lists the overrides of a namespace, or of a pattern of namespaces. ${PAGES}`],
  notFound: 'The namespace does not exist.',
  examples: {
    page: {
      summary: 'The first page of one override, of two',
      request: { namespace: 'push', limit: 1 },
      ...ok({
        meta: { requestId: REQUEST_ID },
        data: [{ overrideId: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000 }],
        pagination: { hasMore: true, cursor: '1' },
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { namespace: 'push', limit: 101 },
      ...badRequestV2(
        'body.limit',
        '"limit" must be an integer from 1 to 100; got 101',
        'give an integer from 1 to 100',
      ),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespace: 'nowhere' },
      ...notFoundV2('there is no namespace "nowhere"'),
    },
  },
});
