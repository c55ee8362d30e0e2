/** The texts and the examples of POST /v1/ratelimits.endHold. */

import { badRequestV1, NO_NAMESPACE_ID, NO_SUCH_ID, notFoundV1, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { endHold, response } from './end-hold.ts';

export const endHoldTexts = documented(endHold, response, {
  tag: 'Refund, reset, inspect, explain',
  summary: 'End a live reservation or lease by its handle',
  description: [
    'Ends one live hold of an identifier. A reservation is cancelled: its tokens return, as far ' +
      'as they can. A lease is released. The client learns it when it commits or renews.',
    'Of a reservation of several checks only the check of this identifier is cancelled. The ' +
      'others stay live.',
    'The audit log gets an entry `hold.end`. If it cannot be written, the response is a 503, ' +
      'although the hold has ended.',
  ],
  notFound: 'No namespace has this id, or the identifier has no live hold with this handle.',
  examples: {
    lease: {
      summary: 'A lease is released',
      request: { namespace: 'jobs', identifier: 'tenant_5', handle: '1c-09f3' },
      ...ok({ kind: 'lease', released: 1 }),
    },
    reservation: {
      summary: 'A reservation is cancelled',
      request: { identifier: 'org_1', handle: '2k-7be0' },
      ...ok({ kind: 'reservation', released: 4_000 }),
    },
    unknown: {
      summary: 'The hold has ended before',
      request: { namespace: 'jobs', identifier: 'tenant_6', handle: '1c-09f3' },
      ...notFoundV1('"tenant_6" has no live reservation or lease with the handle "1c-09f3"'),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: { namespace: NO_NAMESPACE_ID, identifier: 'tenant_5', handle: '1c-09f3' },
      ...notFoundV1(NO_SUCH_ID),
    },
    invalid: {
      summary: 'The handle is missing',
      request: { identifier: 'tenant_5' },
      ...badRequestV1(
        '"handle" is required: the "handle" of an inspection, a text of 1 to 64 characters',
      ),
    },
  },
});
