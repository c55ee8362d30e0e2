/** The texts and the examples of GET /v1/analytics.getDecisions. */

import {
  RECENT_DENIALS,
  RECENT_DENIALS_OF_NAMESPACE,
  RECENT_SAMPLES,
} from '../../../core/constants.ts';
import {
  NAMESPACE_ID,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  ok,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { ANALYTICS_OF_THIS_MACHINE } from '../../texts/sentences.ts';
import { getDecisions, response } from './analytics-get-decisions.ts';

export const getDecisionsTexts = documented(getDecisions, response, {
  tag: 'Analytics',
  summary: 'List the recent decisions',
  description: [
    'Lists the denials of the last minutes, and a sample of the allowed checks: which limit ' +
      'applied, where it came from, and what was left. weir keeps them in memory, so a restart ' +
      'removes them, and replaces the oldest ones.',
    'A flood of denials does not replace all others. Denials of an identifier within about a ' +
      'second, by the same limit, are one record with their `count`. In a second, each thread ' +
      `records ${RECENT_DENIALS_OF_NAMESPACE} identifiers of a namespace and ${RECENT_DENIALS} ` +
      'of all namespaces, and the first one of each namespace in any case. `leftOut` says how ' +
      `many denials have no record. Of allowed checks, ${RECENT_SAMPLES} are recorded: the ` +
      'first one of a namespace in a second.',
    `The times of pages are those of weir's clock. ${ANALYTICS_OF_THIS_MACHINE}`,
  ],
  notFound: 'The namespace does not exist.',
  examples: {
    denied: {
      summary: 'The last denial in a namespace',
      request: { namespaceName: 'login', decision: 'denied', limit: 1 },
      ...ok({
        since: RESET - 59_900,
        decisions: [
          {
            id: '0.2',
            namespace: { id: NAMESPACE_ID, name: 'login' },
            identifier: '203.0.113.2',
            time: RESET - 59_400,
            until: RESET - 59_400,
            decision: 'denied',
            count: 1,
            cost: 1,
            limit: 100,
            duration: 60_000,
            algorithm: 'fixed',
            remaining: 0,
            reset: RESET,
            source: 'request',
            leftOut: 0,
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
