/**
 * POST /v1/keys.create. Its response is the only place that shows a key; the store has its digest.
 * A key can create only keys whose permissions it has. Failures are ApiErrors, in the order 400,
 * 403, 404. The command line creates keys with the functions here too.
 */

import Type, { type Static } from 'typebox';
import { type KeyRecord, makeKey, newKeyRecord } from '../../../auth/keys.ts';
import {
  CREATE_ACTION,
  GLOBAL_PERMISSIONS,
  NAMESPACE_ACTIONS,
  namespaceNameIn,
  nearestPermission,
  readPermission,
} from '../../../auth/permissions.ts';
import {
  KEY_NAME_MAX_CHARACTERS,
  KEYS_MAX,
  NAMESPACE_ID_PREFIX,
  PERMISSIONS_MAX,
} from '../../../core/constants.ts';
import { formatValue } from '../../../core/describe.ts';
import { ApiError } from '../../../core/errors.ts';
import { field, text } from '../../../core/schema.ts';
import { keyCreation } from '../../../registry/audit-entries.ts';
import type { Registry } from '../../../registry/registry.ts';
import { expiresField, requireFuture } from '../../common/expires.ts';
import { namespaceNotFound } from '../../common/namespace-reference.ts';
import { type Result, writeOperation } from '../../common/operation.ts';
import { idText, keyId } from '../../common/responses.ts';

export function response() {
  return Type.Object({
    keyId: keyId('Id of the key.'),
    key: idText('weir', 'The key. Only this response shows it.'),
  });
}

export const createKey = writeOperation({
  name: 'keys.create',
  version: 'v1',
  requires: { permission: 'keys.create' },
  request: {
    name: field(text(1, KEY_NAME_MAX_CHARACTERS), 'Name of the key. It need not be unique.'),
    permissions: field(
      Type.Array(Type.String({ accepts: 'a permission' }), {
        minItems: 1,
        maxItems: PERMISSIONS_MAX,
        accepts: `an array of 1 to ${PERMISSIONS_MAX} permissions`,
      }),
      'What the key permits. The key of the request must have each of these permissions.',
    ),
    expires: Type.Optional(
      expiresField(
        'Time from which the key is rejected, in Unix milliseconds. It must be in the future. ' +
          'Without it, the key does not expire.',
      ),
    ),
  },
  handle: ({ registry, permissions, nowMs, audit }, body): Result<typeof response> => {
    const { key, record } = newKey(body, nowMs(), (name) => {
      const id = registry.namespaceByName(name)?.id;
      return permissions.may('read_namespace', id) ? id : undefined;
    });
    permissions.requireGlobal('keys.create');
    const missing = record.permissions.find((permission) => !permissions.grants(permission));
    if (missing !== undefined) throw permissions.missing([missing]);
    addKey(registry, record);
    audit(keyCreation(record));
    return { keyId: record.id, key };
  },
});

/**
 * Makes a key for a valid request, or for the command line.
 * @param namespaceIdOf the id of a namespace by name, for error messages
 * @throws ApiError (400)
 */
export function newKey(
  { name, permissions, expires }: Static<typeof createKey.validator.schema>,
  nowMs: number,
  namespaceIdOf: (namespace: string) => string | undefined = () => undefined,
): { key: string; record: KeyRecord } {
  requireValidPermissions(permissions, namespaceIdOf);
  requireFuture(expires, nowMs);
  const key = makeKey();
  const granted = [...new Set(permissions)];
  return { key, record: newKeyRecord(key, name, granted, nowMs, expires ?? null) };
}

/**
 * Adds a key to the registry, for a request or for the command line.
 * @throws ApiError (400, 404) at the maximum of keys, or for a namespace that does not exist
 */
export function addKey(registry: Registry, record: KeyRecord): void {
  for (const permission of record.permissions) {
    const read = readPermission(permission);
    if (typeof read === 'boolean' || registry.namespaceById(read.namespaceId) !== undefined) {
      continue;
    }
    throw namespaceNotFound({ id: read.namespaceId });
  }
  if (registry.keys().filter((key) => registry.isStored(key)).length >= KEYS_MAX) {
    throw new ApiError('BAD_REQUEST', `the maximum of ${KEYS_MAX} keys is reached: revoke one`);
  }
  registry.addKey(record);
}

/** All permissions, for error messages. */
const ACCEPTED_PERMISSIONS =
  `${['*', ...GLOBAL_PERMISSIONS].map((permission) => `"${permission}"`).join(', ')},` +
  ' "ratelimit.*.<action>" or "ratelimit.<namespaceId>.<action>", where <action> is' +
  ` ${NAMESPACE_ACTIONS.join(', ')} or, with * only, ${CREATE_ACTION}`;

/** @throws ApiError (400) for the first invalid permission */
function requireValidPermissions(
  granted: readonly string[],
  namespaceIdOf: (namespace: string) => string | undefined,
): void {
  for (const [i, permission] of granted.entries()) {
    if (readPermission(permission) !== false) continue;
    const name = namespaceNameIn(permission);
    const nearest = nearestPermission(permission);
    const suggestion = nearest === undefined ? '' : `: did you mean ${nearest}?`;
    const hint =
      name === undefined ? suggestion : `: ${namespaceIdHint(name, namespaceIdOf(name))}`;
    const received = `${formatValue(permission)}${hint}`;
    throw new ApiError(
      'BAD_REQUEST',
      `"permissions[${i}]" must be ${ACCEPTED_PERMISSIONS}; got ${received}`,
    );
  }
}

/** For a permission that names a namespace by its name. */
function namespaceIdHint(name: string, id: string | undefined): string {
  const rule = `a namespace is named by its id, which begins with "${NAMESPACE_ID_PREFIX}"`;
  return id === undefined
    ? `${rule} (weir namespaces list shows the ids)`
    : `${rule}; the id of ${formatValue(name)} is "${id}"`;
}
