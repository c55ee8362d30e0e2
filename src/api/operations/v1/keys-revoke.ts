/** POST /v1/keys.revoke. Failures are ApiErrors, in the order 400, 403, 404, 409. */

import type { KeyRecord } from '../../../auth/keys.ts';
import { ApiError } from '../../../core/errors.ts';
import { field, text } from '../../../core/schema.ts';
import { keyRevocation } from '../../../registry/audit-entries.ts';
import { type Result, writeOperation } from '../../common/operation.ts';
import { empty } from '../../common/responses.ts';

export const response = empty;

export const revokeKey = writeOperation({
  name: 'keys.revoke',
  version: 'v1',
  requires: { permission: 'keys.revoke' },
  request: { keyId: field(text(1, 512), 'Id of the key.') },
  handle: ({ registry, permissions, nowMs, audit }, { keyId }): Result<typeof response> => {
    permissions.requireGlobal('keys.revoke');
    const key = registry.key(keyId);
    // The error does not repeat the id: the client may have sent a key by mistake.
    if (key === undefined) throw new ApiError('NOT_FOUND', 'there is no key with that id');
    if (!registry.isStored(key)) {
      const message = `${keyId} is the key of WEIR_ROOT_KEY: remove the setting and restart`;
      throw new ApiError('CONFLICT', message);
    }
    const expiryOf = ({ expiresMs }: KeyRecord) => expiresMs ?? Number.POSITIVE_INFINITY;
    const isRoot = (record: KeyRecord) =>
      record.permissions.includes('*') && expiryOf(record) > nowMs();
    const others = registry.keys().filter((other) => other !== key && isRoot(other));
    if (isRoot(key) && !others.some((other) => expiryOf(other) >= expiryOf(key))) {
      const which = others.length === 0 ? 'with the permission "*"' : 'with "*" that lasts so long';
      const message = `${keyId} is the last key ${which}: create another one first`;
      throw new ApiError('CONFLICT', message);
    }
    registry.removeKey(key);
    audit(keyRevocation(key));
    return {};
  },
});
