/**
 * API keys as text and as digests. A key is 256 random bits behind a prefix; what is kept, sent to
 * other threads or compared is its SHA-256. Nothing here ever holds on to a key.
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
 * The record of the key that the settings give: in one store it has the same id at every start, so
 * that the audit log names it. The hash key keeps the id from telling anything of the key.
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

/** The record of a key that may do everything and does not expire. */
export function rootKeyRecord(key: string, name: string, createdMs: number): KeyRecord {
  return newKeyRecord(key, name, ['*'], createdMs, null);
}

export interface KeyRecord {
  id: string;
  /** SHA-256 of the key, in hexadecimal; the key itself is nowhere. */
  digest: string;
  name: string;
  permissions: string[];
  createdMs: number;
  /** Unix time in ms from which the key is refused; null for never. */
  expiresMs: number | null;
}
