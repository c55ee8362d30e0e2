/**
 * The operations on API keys. A key is shown once, when it is made; what is kept is its digest. A
 * key grants no more than it has. Failures are ApiErrors, in the order 400, 403, 404, 409.
 */

import Type from 'typebox';
import { type KeyRecord, makeKey, newKeyRecord } from '../../auth/keys.ts';
import {
  CREATE_ACTION,
  GLOBAL_PERMISSIONS,
  missingPermissionError,
  NAMESPACE_ACTIONS,
  namespaceNameIn,
  nearestPermission,
  readPermission,
} from '../../auth/permissions.ts';
import {
  AMOUNT_MAX,
  KEY_NAME_MAX_CHARACTERS,
  KEYS_MAX,
  NAMESPACE_ID_PREFIX,
  PAGE_MAX,
  PERMISSIONS_MAX,
} from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { createValidator, integer, text } from '../../core/schema.ts';
import { keyCreation, keyRevocation } from '../../registry/audit-entries.ts';
import type { Registry } from '../../registry/registry.ts';
import { isoTime } from '../../shared-memory/clock.ts';
import { namespaceNotFound } from '../common/namespace-reference.ts';
import type { OperationHandler } from '../common/operation-context.ts';
import { pageFields, pageOf } from '../common/pages.ts';

const JSON_OBJECT = { takes: 'a JSON object' };

const createKeyValidator = createValidator(
  Type.Object(
    {
      name: text(1, KEY_NAME_MAX_CHARACTERS),
      permissions: Type.Array(Type.String({ takes: 'a permission' }), {
        minItems: 1,
        maxItems: PERMISSIONS_MAX,
        takes: `an array of 1 to ${PERMISSIONS_MAX} permissions`,
      }),
      expires: Type.Optional(integer(1, AMOUNT_MAX, 'a Unix time in ms, an integer')),
    },
    JSON_OBJECT,
  ),
);
const listKeysValidator = createValidator(Type.Object(pageFields(PAGE_MAX), { takes: 'a query' }));
const revokeKeyValidator = createValidator(Type.Object({ keyId: text(1, 512) }, JSON_OBJECT));

/**
 * A key as a request, or the command line, wants it.
 * @param namespaceIdOf finds the id of a namespace by name, for an error
 * @throws ApiError (400)
 */
export function newKey(
  input: unknown,
  nowMs: number,
  namespaceIdOf: (namespace: string) => string | undefined = () => undefined,
): { key: string; record: KeyRecord } {
  const { name, permissions, expires } = createKeyValidator.validate(input);
  requireValidPermissions(permissions, namespaceIdOf);
  if (expires !== undefined && expires <= nowMs) {
    const got = `${expires}, which is ${isoTime(expires)}`;
    const message = `"expires" must be a Unix time in ms, in the future; got ${got}`;
    throw new ApiError('BAD_REQUEST', message);
  }
  const key = makeKey();
  const granted = [...new Set(permissions)];
  return { key, record: newKeyRecord(key, name, granted, nowMs, expires ?? null) };
}

export const createKey: OperationHandler = ({ registry, permissions, nowMs, audit }, input) => {
  const { key, record } = newKey(input, nowMs(), (name) => {
    const id = registry.namespaceByName(name)?.id;
    return permissions.may('read_namespace', id) ? id : undefined;
  });
  permissions.requireGlobal('keys.create');
  const missing = record.permissions.find((permission) => !permissions.grants(permission));
  if (missing !== undefined) throw missingPermissionError([missing]);
  addKey(registry, record);
  audit(keyCreation(record));
  return { keyId: record.id, key };
};

export const listKeys: OperationHandler = ({ registry, permissions }, input) => {
  const asked = listKeysValidator.validate(input);
  permissions.requireGlobal('keys.read');
  const { items, rest } = pageOf(registry.keys(), asked, PAGE_MAX);
  const keys = items.map(({ id: keyId, name, permissions, createdMs, expiresMs }) => {
    const expires = expiresMs === null ? {} : { expires: expiresMs };
    return { keyId, name, permissions, createdAt: createdMs, ...expires };
  });
  return { keys, ...rest };
};

export const revokeKey: OperationHandler = ({ registry, permissions, nowMs, audit }, input) => {
  const { keyId } = revokeKeyValidator.validate(input);
  permissions.requireGlobal('keys.revoke');
  const key = registry.key(keyId);
  // The id is not repeated: it may be a key, by mistake.
  if (key === undefined) throw new ApiError('NOT_FOUND', 'there is no key of that id');
  if (!registry.isStored(key)) {
    const message = `${keyId} is the key of WEIR_ROOT_KEY: take it out of the settings and restart`;
    throw new ApiError('CONFLICT', message);
  }
  const ends = ({ expiresMs }: KeyRecord) => expiresMs ?? Number.POSITIVE_INFINITY;
  const isRoot = (one: KeyRecord) => one.permissions.includes('*') && ends(one) > nowMs();
  const others = registry.keys().filter((other) => other !== key && isRoot(other));
  if (isRoot(key) && !others.some((other) => ends(other) >= ends(key))) {
    const which = others.length === 0 ? 'with the permission "*"' : 'with "*" that lasts so long';
    const message = `${keyId} is the last key ${which}: create another one before`;
    throw new ApiError('CONFLICT', message);
  }
  registry.removeKey(key);
  audit(keyRevocation(key));
  return {};
};

/**
 * Keeps a key, which may come from the command line as well.
 * @throws ApiError (400, 404) where there is no room for it, or no namespace that it names
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
    const message = `there are ${KEYS_MAX} keys already, which is the most that weir keeps`;
    throw new ApiError('BAD_REQUEST', `${message}: revoke one`);
  }
  registry.addKey(record);
}

/** All permissions, for an error. */
const ACCEPTED_PERMISSIONS =
  `${['*', ...GLOBAL_PERMISSIONS].map((permission) => `"${permission}"`).join(', ')},` +
  ' "ratelimit.*.<action>" or "ratelimit.<namespaceId>.<action>", where <action> is' +
  ` ${NAMESPACE_ACTIONS.join(', ')} or, with * only, ${CREATE_ACTION}`;

/** @throws ApiError (400) for the first text that is no permission */
function requireValidPermissions(
  granted: readonly string[],
  namespaceIdOf: (namespace: string) => string | undefined,
): void {
  for (const [i, permission] of granted.entries()) {
    if (readPermission(permission) !== false) continue;
    const named = namespaceNameIn(permission);
    const near = nearestPermission(permission);
    const meant = near === undefined ? '' : `: did you mean ${near}?`;
    const hint = named === undefined ? meant : `: ${namespaceIdHint(named, namespaceIdOf(named))}`;
    const got = `${formatValue(permission)}${hint}`;
    throw new ApiError(
      'BAD_REQUEST',
      `"permissions[${i}]" must be ${ACCEPTED_PERMISSIONS}; got ${got}`,
    );
  }
}

/** What to write in place of the name of a namespace. */
function namespaceIdHint(name: string, id: string | undefined): string {
  const rule = `a namespace is named by its id, which begins with "${NAMESPACE_ID_PREFIX}"`;
  return id === undefined
    ? `${rule} (weir namespaces list shows them)`
    : `${rule}; the id of ${formatValue(name)} is "${id}"`;
}
