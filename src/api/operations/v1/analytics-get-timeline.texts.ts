/** The texts and the examples of GET /v1/analytics.getTimeline. */

import {
  FIGURES,
  HOUR_MS,
  NAMESPACE_ID,
  NAMESPACE_REQUIRED,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  ok,
  RESET,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireNamespace } from '../../texts/request-rules.ts';
import { ANALYTICS_OF_THIS_MACHINE } from '../../texts/sentences.ts';
import { getTimeline, response } from './analytics-get-timeline.ts';

export const getTimelineTexts = documented(getTimeline, response, {
  tag: 'Analytics',
  summary: 'Show what a namespace uses over time',
  description: [
    'Shows the checks of a namespace and their tokens for each minute or hour. Minutes ' +
      'are kept for `WEIR_ANALYTICS_MINUTES`, hours for `WEIR_ANALYTICS_HOURS`.',
    `${ANALYTICS_OF_THIS_MACHINE} Checks at the end of a minute may be counted in the ` +
      'next one, or the other way round, if the main thread of weir is late.',
  ],
  notFound: 'The namespace does not exist.',
  rules: requireNamespace,
  examples: {
    hour: {
      summary: 'An hour of minutes',
      request: { namespaceName: 'login' },
      ...ok({
        namespace: { id: NAMESPACE_ID, name: 'login' },
        granularity: 'minute',
        start: RESET - HOUR_MS,
        end: RESET,
        points: [{ time: RESET - 60_000, ...FIGURES }],
      }),
    },
    invalid: { summary: 'Without a namespace', request: {}, ...NAMESPACE_REQUIRED },
    unknown: {
      summary: 'An unknown namespace',
      request: { namespaceId: NO_NAMESPACE_ID },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
});
