/** The texts and the examples of POST /v1/keys.create. */

import { KEYS_MAX } from '../../../core/constants.ts';
import {
  badRequestV1,
  KEY_ID,
  NO_NAMESPACE_ID,
  NO_SUCH_ID,
  notFoundV1,
  ok,
} from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { describePermissions } from '../../texts/request-rules.ts';
import { createKey, response } from './keys-create.ts';

export const createKeyTexts = documented(createKey, response, {
  tag: 'Keys',
  summary: 'Create a key',
  description: [
    'Creates an API key. Only this response shows the key, because the store has only its ' +
      'digest. The key of the request must have each permission of the new key. A server has ' +
      `at most ${KEYS_MAX} keys.`,
  ],
  notFound: 'A permission names a namespace that does not exist.',
  rules: describePermissions,
  examples: {
    created: {
      summary: 'A key for checks that does not expire',
      request: {
        name: 'web server',
        permissions: ['ratelimit.*.limit', 'ratelimit.*.create_namespace'],
      },
      ...ok({ keyId: KEY_ID, key: 'weir_5uHO4mJ0o9p3kq1nV2xT7cY8dWzR6bLfA0sE4gQhUiM' }),
    },
    invalid: {
      summary: 'An expiry in the past',
      request: { name: 'web server', permissions: ['ratelimit.*.limit'], expires: 1_700_000_000 },
      ...badRequestV1(
        '"expires" must be a Unix time in ms, in the future; got 1700000000, which is ' +
          '1970-01-20T16:13:20Z',
      ),
    },
    unknownNamespace: {
      summary: 'A permission in a namespace that does not exist',
      request: { name: 'web server', permissions: [`ratelimit.${NO_NAMESPACE_ID}.limit`] },
      ...notFoundV1(NO_SUCH_ID),
    },
  },
});
