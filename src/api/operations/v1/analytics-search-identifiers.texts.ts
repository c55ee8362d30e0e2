/** The texts and the examples of GET /v1/analytics.searchIdentifiers. */

import { ANALYTICS_SEARCHED_HOURS, ANALYTICS_SEARCHES_MAX } from '../../../core/constants.ts';
import {
  HOUR_MS,
  NAMESPACE_ID,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  ok,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { ANALYTICS_OF_THIS_MACHINE } from '../../texts/sentences.ts';
import { response, searchIdentifiers } from './analytics-search-identifiers.ts';

export const searchIdentifiersTexts = documented(searchIdentifiers, response, {
  tag: 'Analytics',
  summary: 'Search identifiers by prefix',
  description: [
    'Lists the known identifiers that begin with a text, in a namespace or in all namespaces ' +
      'that the key may read. Counters have hashes of identifiers and no texts. So other ' +
      'identifiers may exist: `ratelimits.findIdentifier` finds one by its whole text.',
    'The texts come from three sources: the analytics of the current hour and the ' +
      `${ANALYTICS_SEARCHED_HOURS - 1} hours before, the ` +
      '[recent decisions](#analyticsgetdecisions), and the overrides for one identifier. ' +
      'Overrides need `read_override`. A source that is off is left out.',
    `Counts are those of the analytics, with their error bounds. ${ANALYTICS_OF_THIS_MACHINE}`,
    `Up to ${ANALYTICS_SEARCHES_MAX} searches run at a time. Another one is a 503, and may be ` +
      'sent again.',
  ],
  notFound: 'The namespace does not exist.',
  examples: {
    found: {
      summary: 'In one namespace',
      request: { prefix: '203.0.113.', namespaceName: 'login' },
      ...ok({
        start: RESET - ANALYTICS_SEARCHED_HOURS * HOUR_MS,
        end: RESET,
        identifiers: [
          {
            identifier: '203.0.113.2',
            namespace: { id: NAMESPACE_ID, name: 'login' },
            denied: { count: 1, error: 0 },
            spent: { count: 100, error: 0 },
            lastDeniedAt: RESET - 59_400,
            sources: ['analytics', 'decisions'],
          },
        ],
        truncated: false,
      }),
    },
    unknown: {
      summary: 'An unknown namespace',
      request: { prefix: 'user_', namespaceId: NO_NAMESPACE_ID },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
});
