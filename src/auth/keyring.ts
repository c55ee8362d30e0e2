/**
 * The keys that one acceptor accepts. A header that was verified before costs one lookup in a
 * bounded map; any other header costs one SHA-256 and a lookup by digest. Only valid headers are
 * cached, so clients without a key cannot fill the map. Failures are ApiErrors (401) that say what
 * is missing and never contain the key.
 */

import { KEY_MAX_CHARACTERS, VERIFIED_TOKENS_MAX } from '../core/constants.ts';
import { ApiError, AUTHORIZATION_LOCATION } from '../core/errors.ts';
import type { Clock } from '../shared-memory/clock.ts';
import { digestKey, type KeyRecord } from './keys.ts';
import { Permissions } from './permissions.ts';

export interface Key {
  readonly id: string;
  readonly permissions: Permissions;
  readonly expiresMs: number | null;
  isRevoked: boolean;
}

export interface KeyChanges {
  added: readonly KeyRecord[];
  removed: readonly KeyRecord[];
}

/** A longer header has more than one blank, and is verified each time: a cache would grow. */
const CACHED_HEADER_MAX_CHARACTERS = 'Bearer '.length + KEY_MAX_CHARACTERS;

/** The scheme ignores case, as in HTTP; a key consists of visible ASCII characters. */
const BEARER_HEADER = /^bearer +([\x21-\x7e]+) *$/i;

const BARE_KEY = new RegExp(`^[\\x21-\\x7e]{1,${KEY_MAX_CHARACTERS}}$`);

export class Keyring {
  readonly #byDigest = new Map<string, Key>();
  readonly #verifiedHeaders = new Map<string, Key>();
  readonly #clock: Clock;
  /** Most clients use one key, and a comparison costs half of a lookup. */
  #lastHeader = '';
  #lastKey: Key | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Adds keys, then removes keys. A key that is in both lists is removed. A stored key and the
   * configured key may have the same digest, so a removal compares the id.
   */
  apply({ added, removed }: KeyChanges): void {
    if (added.length === 0 && removed.length === 0) return;
    for (const { id, digest, permissions, expiresMs } of added) {
      const key = { id, permissions: new Permissions(permissions), expiresMs, isRevoked: false };
      this.#byDigest.set(digest, key);
    }
    for (const { id, digest } of removed) {
      const key = this.#byDigest.get(digest);
      if (key?.id !== id) continue;
      key.isRevoked = true;
      this.#byDigest.delete(digest);
    }
    this.#verifiedHeaders.clear();
    this.#lastHeader = '';
    this.#lastKey = undefined;
  }

  /** @param authorization the whole header; '' if there is none */
  verify(authorization: string): Key {
    let key = this.#lastKey;
    if (key === undefined || authorization !== this.#lastHeader) {
      key = this.#verifiedHeaders.get(authorization) ?? this.#verifyUncached(authorization);
      this.#lastHeader = authorization;
      this.#lastKey = key;
    }
    this.requireValid(key);
    return key;
  }

  /** @param token the header that contains only the key; '' if there is none */
  verifyBareKey(token: string): Key {
    if (BARE_KEY.test(token)) return this.verify(`Bearer ${token}`);
    const fault = token === '' ? 'is missing' : 'is not of that form';
    throw new ApiError('UNAUTHORIZED', `the header "X-Weir-Key: <key>" ${fault}`);
  }

  /**
   * Finds a key that was verified elsewhere. No check needs it, so there is no index by id.
   * @throws ApiError (401)
   */
  keyById(id: string): Key {
    for (const key of this.#byDigest.values()) {
      if (key.id !== id) continue;
      this.requireValid(key);
      return key;
    }
    throw new ApiError('UNAUTHORIZED', 'the API key was revoked');
  }

  /**
   * Called for the head of a request and again for its body, which may arrive much later.
   * @throws ApiError (401)
   */
  requireValid({ isRevoked, expiresMs }: Key): void {
    if (isRevoked) throw new ApiError('UNAUTHORIZED', 'the API key was revoked');
    if (expiresMs !== null) requireUnexpired(expiresMs, this.#clock.nowMs());
  }

  #verifyUncached(authorization: string): Key {
    if (authorization === '') {
      throw malformedHeader('the header "Authorization: Bearer <key>" is missing');
    }
    const token = BEARER_HEADER.exec(authorization)?.[1];
    if (token === undefined || token.length > KEY_MAX_CHARACTERS) {
      throw malformedHeader('the header Authorization is not of the form "Bearer <key>"');
    }
    // The timing of a lookup by digest reveals nothing about the key.
    const key = this.#byDigest.get(digestKey(token));
    if (key === undefined) {
      throw new ApiError('UNAUTHORIZED', 'the API key is not known here, or was revoked');
    }
    if (authorization.length <= CACHED_HEADER_MAX_CHARACTERS) {
      if (this.#verifiedHeaders.size >= VERIFIED_TOKENS_MAX) this.#verifiedHeaders.clear();
      this.#verifiedHeaders.set(authorization, key);
    }
    return key;
  }
}

/** An error with a location: the request is malformed, so no key was looked up. */
function malformedHeader(message: string): ApiError {
  const fix = 'send the header "Authorization: Bearer <key>"';
  return new ApiError('UNAUTHORIZED', message, { location: AUTHORIZATION_LOCATION, fix });
}

/**
 * @param expiresMs null for never
 * @throws ApiError (401)
 */
export function requireUnexpired(expiresMs: number | null, nowMs: number): void {
  if (expiresMs === null || expiresMs > nowMs) return;
  throw new ApiError('UNAUTHORIZED', 'the API key has expired');
}
