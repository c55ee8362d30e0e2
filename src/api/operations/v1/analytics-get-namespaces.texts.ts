/** The texts and the examples of GET /v1/analytics.getNamespaces. */

import { badRequestV1, FIGURES, HOUR_MS, NAMESPACE_ID, ok, RESET } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { ANALYTICS_OF_THIS_MACHINE } from '../../texts/sentences.ts';
import { getNamespaces, response } from './analytics-get-namespaces.ts';

export const getNamespacesTexts = documented(getNamespaces, response, {
  tag: 'Analytics',
  summary: 'Show what the namespaces use',
  description: [
    'Shows how many checks were allowed and denied in each namespace, and their tokens. ' +
      'Without parameters it covers the current hour and the 23 hours before it.',
    `${ANALYTICS_OF_THIS_MACHINE} A response includes every check that was answered ` +
      'before its request; checks of a new namespace appear when the namespace is stored, ' +
      'after some milliseconds. A gateway check that a policy decides by several windows ' +
      'counts once.',
  ],
  forbidden: 'the API key lacks the permission "ratelimit.*.read_analytics"',
  examples: {
    day: {
      summary: 'The current hour and 23 hours before it',
      request: {},
      ...ok({
        start: RESET - 24 * HOUR_MS,
        end: RESET,
        namespaces: [{ id: NAMESPACE_ID, name: 'login', ...FIGURES }],
        total: 1,
      }),
    },
    invalid: {
      summary: 'A range that ends before it begins',
      request: { start: RESET, end: RESET - HOUR_MS },
      ...badRequestV1(`"start" must be before "end"; got ${RESET} and ${RESET - HOUR_MS}`),
    },
  },
});
