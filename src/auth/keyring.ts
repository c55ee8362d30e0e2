/**
 * The keys that one acceptor accepts. A header that was verified before costs one look-up in a
 * bounded map; any other costs one SHA-256 and a look-up by digest. A header that does not verify
 * is never remembered, so nobody can fill the map from outside. Failures are ApiErrors (401) that
 * say what is missing, never the key.
 */

import { timingSafeEqual } from 'node:crypto';
import { ApiError } from '../errors.ts';
import { KEY_TEXT_MAX, VERIFIED_TOKENS_MAX } from '../limits.ts';
import type { KeyRecord } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { digestKey } from './keys.ts';
import { Permissions } from './permissions.ts';

export interface Key {
  id: string;
  digest: string;
  permissions: Permissions;
  expiresMs: number | null;
}

/** The scheme in any case, as HTTP has it; the key is visible ASCII. */
const BEARER = /^bearer +([\x21-\x7e]+) *$/i;

export class Keyring {
  readonly #byDigest = new Map<string, Key>();
  readonly #verified = new Map<string, Key>();
  readonly #clock: Clock;

  constructor(records: readonly KeyRecord[], clock: Clock) {
    this.#clock = clock;
    for (const { id, digest, permissions, expiresMs } of records) {
      const key = { id, digest, permissions: new Permissions(permissions), expiresMs };
      this.#byDigest.set(digest, key);
    }
  }

  /** @param authorization the whole header, '' when there is none */
  verify(authorization: string): Key {
    const key = this.#verified.get(authorization) ?? this.#lookUp(authorization);
    if (key.expiresMs !== null && key.expiresMs <= this.#clock.nowMs()) {
      throw new ApiError('UNAUTHORIZED', 'the API key has expired');
    }
    return key;
  }

  #lookUp(authorization: string): Key {
    if (authorization === '') {
      throw new ApiError('UNAUTHORIZED', 'the header "Authorization: Bearer <key>" is missing');
    }
    const token = BEARER.exec(authorization)?.[1];
    if (token === undefined || token.length > KEY_TEXT_MAX) {
      throw new ApiError(
        'UNAUTHORIZED',
        'the header Authorization is not of the form "Bearer <key>"',
      );
    }
    const digest = digestKey(token);
    const key = this.#byDigest.get(digest);
    if (key === undefined || !timingSafeEqual(Buffer.from(key.digest), Buffer.from(digest))) {
      throw new ApiError('UNAUTHORIZED', 'the API key is not known here, or was revoked');
    }
    if (this.#verified.size >= VERIFIED_TOKENS_MAX) this.#verified.clear();
    this.#verified.set(authorization, key);
    return key;
  }
}
