/** The texts and the examples of GET /v1/analytics.getIdentifiers. */

import { ANALYTICS_IDENTIFIERS_MAX } from '../../../core/constants.ts';
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
import { getIdentifiers, response } from './analytics-get-identifiers.ts';

export const getIdentifiersTexts = documented(getIdentifiers, response, {
  tag: 'Analytics',
  summary: 'Show the busiest identifiers',
  description: [
    'Lists the identifiers of a namespace, or of all namespaces that the key may read, that ' +
      'were denied most often, and those that used most tokens, ' +
      'in whole hours. A denied lease counts as a denied check, and no lease uses tokens. ' +
      'Without `start` it covers the current hour.',
    `weir keeps ${ANALYTICS_IDENTIFIERS_MAX} identifiers of each list at most. A page has the ` +
      'same positions of both lists.',
    'weir counts identifiers in a sketch of a fixed size, so counts may be too high: by ' +
      '`error` at most. An identifier is in the list if it had a larger share of the checks ' +
      `of its namespace than about 1 in 1 000. ${ANALYTICS_OF_THIS_MACHINE}`,
  ],
  notFound: 'The namespace does not exist.',
  examples: {
    hour: {
      summary: 'The current hour',
      request: { namespaceName: 'login' },
      ...ok({
        namespace: { id: NAMESPACE_ID, name: 'login' },
        start: RESET - HOUR_MS,
        end: RESET,
        complete: true,
        denied: [{ identifier: '203.0.113.2', count: 1, error: 0 }],
        spent: [{ identifier: '203.0.113.2', count: 100, error: 0 }],
      }),
    },
    all: {
      summary: 'All namespaces',
      request: { limit: 1 },
      ...ok({
        start: RESET - HOUR_MS,
        end: RESET,
        complete: true,
        denied: [
          {
            identifier: '203.0.113.2',
            namespace: { id: NAMESPACE_ID, name: 'login' },
            count: 1,
            error: 0,
          },
        ],
        spent: [
          {
            identifier: '203.0.113.2',
            namespace: { id: NAMESPACE_ID, name: 'login' },
            count: 100,
            error: 0,
          },
        ],
      }),
    },
    unknown: {
      summary: 'An unknown namespace',
      request: { namespaceId: NO_NAMESPACE_ID },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
});
