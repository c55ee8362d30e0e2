/** GET /v1/keys.list. Failures are ApiErrors, in the order 400, 403. */

import Type from 'typebox';
import { PAGE_MAX } from '../../../core/constants.ts';
import { type Result, readOperation } from '../../common/operation.ts';
import { pageFields, pageOf } from '../../common/pages.ts';
import { keyId, listOf, named, pageState, unixMs } from '../../common/responses.ts';

export function response() {
  const key = Type.Object({
    keyId: keyId('Id of the key.'),
    name: named('Name of the key.'),
    permissions: listOf(Type.String(), 'What the key permits.'),
    createdAt: unixMs('Time of its creation'),
    expires: Type.Optional(unixMs('Only for a key that expires: time from which it is rejected')),
  });
  return Type.Object({
    keys: listOf(key, 'The keys, in the order of their creation.'),
    ...pageState(),
  });
}

export const listKeys = readOperation({
  name: 'keys.list',
  version: 'v1',
  requires: { permission: 'keys.read' },
  request: pageFields(PAGE_MAX),
  handle: ({ registry, permissions }, query): Result<typeof response> => {
    permissions.requireGlobal('keys.read');
    const { items, rest } = pageOf(registry.keys(), query, PAGE_MAX);
    const keys = items.map(({ id, name, permissions, createdMs, expiresMs }) => {
      const expires = expiresMs === null ? {} : { expires: expiresMs };
      return { keyId: id, name, permissions, createdAt: createdMs, ...expires };
    });
    return { keys, ...rest };
  },
});
