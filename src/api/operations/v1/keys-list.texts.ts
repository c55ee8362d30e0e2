/** The texts and the examples of GET /v1/keys.list. */

import { KEY_ID, ok, PAGE_TOO_LARGE } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { listKeys, response } from './keys-list.ts';

export const listKeysTexts = documented(listKeys, response, {
  tag: 'Keys',
  summary: 'List keys',
  description: [
    'Lists the ids, names and permissions of all keys, never the keys themselves. The key of ' +
      '`WEIR_ROOT_KEY` is the first one. The others are in the order of creation.',
  ],
  examples: {
    page: {
      summary: 'The first page of two keys, of three',
      request: { limit: 2 },
      ...ok({
        keys: [
          {
            keyId: 'key_5c1d2b7e9f30a4468d1e0b77',
            name: 'configured root key',
            permissions: ['*'],
            createdAt: 1795179540600,
          },
          {
            keyId: KEY_ID,
            name: 'web server',
            permissions: ['ratelimit.*.limit'],
            createdAt: 1795179540600,
            expires: 4102444800000,
          },
        ],
        cursor: '1',
        total: 3,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 101 },
      ...PAGE_TOO_LARGE(100),
    },
  },
});
