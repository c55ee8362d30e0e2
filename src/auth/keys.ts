/**
 * API keys and their records. A key is a prefix and 256 random bits. Only its SHA-256 digest is
 * stored, sent to other threads or compared; the key itself is never stored.
 */

import { createHash, createHmac, randomBytes } from 'node:crypto';
import { ID_BYTES, makeId } from '../core/ids.ts';

const PREFIX = 'weir_';
const KEY_ID_PREFIX = 'key_';

export function makeKey(): string {
  return PREFIX + randomBytes(32).toString('base64url');
}

export function digestKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

/** @param expiresMs Unix time in ms, null for never */
export function newKeyRecord(
  key: string,
  name: string,
  permissions: string[],
  createdMs: number,
  expiresMs: number | null,
): KeyRecord {
  return {
    id: makeId(KEY_ID_PREFIX),
    digest: digestKey(key),
    name,
    permissions,
    createdMs,
    expiresMs,
  };
}

/**
 * The record of the key that the settings contain. With one store it has the same id at every
 * start, so that the audit log can name it. The hash key ensures that the id reveals nothing about
 * the key.
 */
export function configuredKeyRecord(
  key: string,
  createdMs: number,
  hashKey: Uint8Array,
): KeyRecord {
  const record = rootKeyRecord(key, 'configured root key', createdMs);
  const mac = createHmac('sha256', hashKey).update(`key id of ${record.digest}`).digest('hex');
  return { ...record, id: KEY_ID_PREFIX + mac.slice(0, 2 * ID_BYTES) };
}

/** The record of a key that has all permissions and does not expire. */
export function rootKeyRecord(key: string, name: string, createdMs: number): KeyRecord {
  return newKeyRecord(key, name, ['*'], createdMs, null);
}

export interface KeyRecord {
  id: string;
  /** SHA-256 of the key, in hexadecimal. */
  digest: string;
  name: string;
  permissions: string[];
  createdMs: number;
  /** Unix time in ms from which the key is rejected; null for never. */
  expiresMs: number | null;
}
