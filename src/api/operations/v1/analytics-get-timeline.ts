/** GET /v1/analytics.getTimeline. Failures are ApiErrors, in the order 400, 403, 404, 503. */

import Type from 'typebox';
import { GRANULARITIES, GRANULARITY_MS } from '../../../analytics/granularity.ts';
import { TIMELINE_POINTS_MAX } from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { field } from '../../../core/schema.ts';
import {
  findCounted,
  HOURS_OF_A_DAY,
  rangeFields,
  rangeOf,
  requireAnalytics,
  shownFigures,
  shownNamespace,
  shownRange,
} from '../../common/analytics.ts';
import { namespaceFields } from '../../common/namespace-query.ts';
import { RESPONSE_BYTES, type Result, readOperation } from '../../common/operation.ts';
import { listOf, unixMs } from '../../common/responses.ts';

/** The minutes of a timeline without `start`. */
const TIMELINE_MINUTES = 60;

export function response() {
  return Type.Object({
    namespace: shownNamespace(),
    granularity: Type.Enum([...GRANULARITIES], { description: 'What a point is.' }),
    ...shownRange('the granularity'),
    points: listOf(
      Type.Object({ time: unixMs('Begin of the minute or hour'), ...shownFigures() }),
      'The minutes or hours with checks, in order. Those without checks are left out.',
    ),
  });
}

export const getTimeline = readOperation({
  name: 'analytics.getTimeline',
  version: 'v1',
  requires: { action: 'read_analytics', in: 'the namespace' },
  responseBytesEstimate: RESPONSE_BYTES.figures,
  request: {
    ...namespaceFields(),
    ...rangeFields('the granularity', 'an hour before `end`, or a day with `hour`'),
    granularity: Type.Optional(
      field(
        Type.Enum([...GRANULARITIES], { accepts: GRANULARITIES.join(' or ') }),
        `What a point is. A response has at most ${TIMELINE_POINTS_MAX} points.`,
        'minute',
      ),
    ),
  },
  handle: (context, query): Result<typeof response> => {
    const { namespace, key } = findCounted(context, query);
    const { granularity = 'minute' } = query;
    const unitMs = GRANULARITY_MS[granularity];
    const defaultUnits = granularity === 'minute' ? TIMELINE_MINUTES : HOURS_OF_A_DAY;
    const { from, to, start, end } = rangeOf(context, query, unitMs, defaultUnits);
    if (to - from > TIMELINE_POINTS_MAX) {
      const message =
        `the range from "start" to "end" must have at most ${TIMELINE_POINTS_MAX} points;` +
        ` got ${to - from} of a ${granularity} each`;
      throw new ApiError('BAD_REQUEST', message);
    }
    const points = requireAnalytics(context)
      .timeline(key, granularity, from, to)
      .map(({ time, figures }) => ({ time: time * unitMs, ...figures }));
    return { namespace, granularity, start, end, points };
  },
});
