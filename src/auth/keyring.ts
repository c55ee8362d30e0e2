/**
 * The keys that one acceptor accepts. A header that was verified before costs one look-up in a
 * bounded map; any other costs one SHA-256 and a look-up by digest. A header that does not verify
 * is never remembered, so nobody can fill the map from outside. Failures are ApiErrors (401) that
 * say what is missing, never the key.
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

/** A header padded beyond the longest key is looked up each time: it is not worth its memory. */
const CACHED_HEADER_MAX_CHARACTERS = 'Bearer '.length + KEY_MAX_CHARACTERS;

/** The scheme in any case, as HTTP has it; the key is visible ASCII. */
const BEARER_HEADER = /^bearer +([\x21-\x7e]+) *$/i;

const BARE_KEY = new RegExp(`^[\\x21-\\x7e]{1,${KEY_MAX_CHARACTERS}}$`);

export class Keyring {
  readonly #byDigest = new Map<string, Key>();
  readonly #verifiedHeaders = new Map<string, Key>();
  readonly #clock: Clock;
  /** The last header that verified: most callers have one key, and to compare is half a look-up. */
  #lastHeader = '';
  #lastKey: Key | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Holds from now on. What was added and removed is not there any more. A key may be there twice,
   * as a stored one and by the settings.
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

  /** @param authorization the whole header, '' when there is none */
  verify(authorization: string): Key {
    let key = this.#lastKey;
    if (key === undefined || authorization !== this.#lastHeader) {
      key = this.#verifiedHeaders.get(authorization) ?? this.#lookUp(authorization);
      this.#lastHeader = authorization;
      this.#lastKey = key;
    }
    this.requireValid(key);
    return key;
  }

  /** @param token a header that holds the key alone, '' when there is none */
  verifyBareKey(token: string): Key {
    if (BARE_KEY.test(token)) return this.verify(`Bearer ${token}`);
    const what = token === '' ? 'is missing' : 'is not of that form';
    throw new ApiError('UNAUTHORIZED', `the header "X-Weir-Key: <key>" ${what}`);
  }

  /**
   * Asked when the head of a request is there, and again with its body, which may be much later.
   * @throws ApiError (401)
   */
  requireValid({ isRevoked, expiresMs }: Key): void {
    if (isRevoked) throw new ApiError('UNAUTHORIZED', 'the API key was revoked');
    if (expiresMs !== null) requireUnexpired(expiresMs, this.#clock.nowMs());
  }

  #lookUp(authorization: string): Key {
    if (authorization === '') {
      throw malformedHeader('the header "Authorization: Bearer <key>" is missing');
    }
    const token = BEARER_HEADER.exec(authorization)?.[1];
    if (token === undefined || token.length > KEY_MAX_CHARACTERS) {
      throw malformedHeader('the header Authorization is not of the form "Bearer <key>"');
    }
    // By digest: whatever the time of a look-up tells, it tells of the digest of a wrong guess.
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

/** There is no key to look up: the fault is in the request, as its place says. */
function malformedHeader(message: string): ApiError {
  const fix = 'send the header "Authorization: Bearer <key>"';
  return new ApiError('UNAUTHORIZED', message, { location: AUTHORIZATION_LOCATION, fix });
}

/** @throws ApiError (401) for a key that expires at a time */
export function requireUnexpired(expiresMs: number | null, nowMs: number): void {
  if (expiresMs === null || expiresMs > nowMs) return;
  throw new ApiError('UNAUTHORIZED', 'the API key has expired');
}
