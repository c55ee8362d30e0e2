/** The texts and the examples of GET /v1/ratelimits.listOverrides. */

import { notFoundV1, OVERRIDE_ID, ok, PAGE_TOO_LARGE } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { PAGES } from '../../texts/sentences.ts';
import { listOverridesV1, response } from './list-overrides.ts';

export const listOverridesV1Texts = documented(listOverridesV1, response, {
  tag: 'Overrides',
  summary: 'List the overrides of a namespace or of all (v1)',
  description: [
    `Lists the overrides of a namespace, or of a pattern of namespaces. ${PAGES}`,
    'Without `namespaceId` and `namespaceName`, the overrides of all namespaces are listed that ' +
      'the key may read, each with its namespace, as in an export.',
  ],
  notFound: 'The namespace does not exist.',
  examples: {
    page: {
      summary: 'The first page of one override, of two',
      request: { namespaceName: 'push', limit: 1 },
      ...ok({
        overrides: [
          { id: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000, async: false },
        ],
        cursor: '1',
        total: 2,
      }),
    },
    all: {
      summary: 'The first page of all namespaces',
      request: { limit: 1 },
      ...ok({
        overrides: [
          {
            namespaceName: 'push',
            ...{ id: OVERRIDE_ID, identifier: 'vip_*', limit: 100, duration: 60_000, async: false },
          },
        ],
        cursor: '1',
        total: 2,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { namespaceName: 'push', limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
    unknownNamespace: {
      summary: 'The namespace does not exist',
      request: { namespaceName: 'nowhere' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
  },
});
