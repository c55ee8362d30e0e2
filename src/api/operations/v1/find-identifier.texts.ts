/** The texts and the examples of POST /v1/ratelimits.findIdentifier. */

import { FOUND_NAMESPACES_MAX } from '../../../core/constants.ts';
import { badRequestV1, NAMESPACE_ID, OVERRIDE_ID, ok, RESET } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { AFTER_ASYNC, LACKS_READ } from '../../texts/sentences.ts';
import { findIdentifier, response } from './find-identifier.ts';

const DECISION = {
  time: RESET - 59_400,
  until: RESET - 59_400,
  decision: 'allowed',
  count: 1,
  cost: 5,
  limit: 5,
  duration: 60_000,
  algorithm: 'fixed',
  remaining: 0,
  reset: RESET,
  source: 'override',
  override: OVERRIDE_ID,
};

export const findIdentifierTexts = documented(findIdentifier, response, {
  tag: 'Refund, reset, inspect, explain',
  summary: 'Find an identifier in all namespaces',
  description: [
    'Says in which namespaces an identifier has a counter, a live reservation or lease, an ' +
      'override for it alone, or a [recent decision](#analyticsgetdecisions). Only ' +
      'namespaces that the key may read are listed. Nothing changes.',
    `A request looks in ${FOUND_NAMESPACES_MAX} namespaces at most, in the order of their ` +
      'creation. Send the `cursor` of the response for the next ones, also if `found` is empty.',
    'An override for several identifiers is shown where it applies, but is no reason to list a ' +
      'namespace. `ratelimits.inspect` lists the reservations and leases.',
    AFTER_ASYNC,
  ],
  forbidden: LACKS_READ,
  examples: {
    found: {
      summary: 'Of a namespace that has one',
      request: { identifier: 'org_7' },
      ...ok({
        identifier: 'org_7',
        found: [
          {
            namespace: { id: NAMESPACE_ID, name: 'checkout' },
            counters: [
              {
                duration: 60_000,
                limit: 5,
                windowStart: 1795179540000,
                current: 5,
                previous: 0,
                algorithms: {
                  fixed: { used: 5, remaining: 0, reset: RESET },
                  sliding: { used: 5, remaining: 0, reset: RESET },
                },
              },
            ],
            last: DECISION,
            override: {
              id: OVERRIDE_ID,
              identifier: 'org_7',
              limit: 5,
              duration: 60_000,
              async: false,
              namespace: 'checkout',
            },
          },
        ],
        total: 2,
      }),
    },
    invalid: {
      summary: 'Without an identifier',
      request: {},
      ...badRequestV1('"identifier" is required: a text of 0 to 512 characters'),
    },
  },
});
