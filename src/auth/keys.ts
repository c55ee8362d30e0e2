/**
 * API keys as text and as digests. A key is 256 random bits behind a prefix; what is kept, sent to
 * other threads or compared is its SHA-256. Nothing here ever holds on to a key.
 */

import { createHash, randomBytes } from 'node:crypto';
import type { KeyRecord } from '../store/store.ts';

const PREFIX = 'weir_';

export function makeKey(): string {
  return PREFIX + randomBytes(32).toString('base64url');
}

export function digestKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

export function makeId(prefix: string): string {
  return prefix + randomBytes(12).toString('hex');
}

/** @param expiresMs Unix time in ms, null for never */
export function newKeyRecord(
  key: string,
  name: string,
  permissions: string[],
  createdMs: number,
  expiresMs: number | null,
): KeyRecord {
  return { id: makeId('key_'), digest: digestKey(key), name, permissions, createdMs, expiresMs };
}

/** The record of a key that may do everything and does not expire. */
export function rootRecord(key: string, name: string, createdMs: number): KeyRecord {
  return newKeyRecord(key, name, ['*'], createdMs, null);
}
