/** The texts and the examples of POST /v1/keys.revoke. */

import { badRequestV1, conflictV1, KEY_ID, notFoundV1, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { response, revokeKey } from './keys-revoke.ts';

export const revokeKeyTexts = documented(revokeKey, response, {
  tag: 'Keys',
  summary: 'Revoke a key',
  description: ['Removes a key. The response is sent when every thread rejects the key.'],
  notFound: 'No key has this id.',
  conflict:
    'The key is that of `WEIR_ROOT_KEY`. Or it is the only key with the permission `*`, or the ' +
    'last of them to expire.',
  examples: {
    revoked: {
      summary: 'Revoked',
      request: { keyId: KEY_ID },
      ...ok({}),
    },
    invalid: {
      summary: 'The id is missing',
      request: {},
      ...badRequestV1('"keyId" is required: a text of 1 to 512 characters'),
    },
    unknown: {
      summary: 'No key has this id',
      request: { keyId: 'key_000000000000000000000000' },
      ...notFoundV1('there is no key with that id'),
    },
    configured: {
      summary: 'The key of WEIR_ROOT_KEY cannot be revoked',
      request: { keyId: 'key_5c1d2b7e9f30a4468d1e0b77' },
      ...conflictV1(
        'key_5c1d2b7e9f30a4468d1e0b77 is the key of WEIR_ROOT_KEY: remove the setting and restart',
      ),
    },
  },
});
