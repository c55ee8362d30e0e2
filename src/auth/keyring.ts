/**
 * The keys that one acceptor accepts. A header that was verified before costs one look-up in a
 * bounded map; any other costs one SHA-256 and a look-up by digest. A header that does not verify
 * is never remembered, so nobody can fill the map from outside. Failures are ApiErrors (401) that
 * say what is missing, never the key.
 */

import { ApiError, AUTHORIZATION_PLACE } from '../errors.ts';
import { KEY_TEXT_MAX, VERIFIED_TOKENS_MAX } from '../limits.ts';
import type { KeyRecord } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { digestKey } from './keys.ts';
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
const REMEMBERED_MAX = 'Bearer '.length + KEY_TEXT_MAX;

/** The scheme in any case, as HTTP has it; the key is visible ASCII. */
const BEARER = /^bearer +([\x21-\x7e]+) *$/i;

const BARE = new RegExp(`^[\\x21-\\x7e]{1,${KEY_TEXT_MAX}}$`);

export class Keyring {
  readonly #byDigest = new Map<string, Key>();
  readonly #verified = new Map<string, Key>();
  readonly #clock: Clock;
  /** The last header that verified: most callers have one key, and to compare is half a look-up. */
  #last = '';
  #lastKey: Key | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Holds from now on. What was added and removed is not there any more. A key may be there twice,
   * as a stored one and by the settings.
   */
  change({ added, removed }: KeyChanges): void {
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
    this.#verified.clear();
    this.#last = '';
    this.#lastKey = undefined;
  }

  /** @param authorization the whole header, '' when there is none */
  verify(authorization: string): Key {
    let key = this.#lastKey;
    if (key === undefined || authorization !== this.#last) {
      key = this.#verified.get(authorization) ?? this.#lookUp(authorization);
      this.#last = authorization;
      this.#lastKey = key;
    }
    this.requireValid(key);
    return key;
  }

  /** @param token a header that holds the key alone, '' when there is none */
  verifyBare(token: string): Key {
    if (BARE.test(token)) return this.verify(`Bearer ${token}`);
    const what = token === '' ? 'is missing' : 'is not of that form';
    throw new ApiError('UNAUTHORIZED', `the header "X-Weir-Key: <key>" ${what}`);
  }

  /**
   * Asked when the head of a request is there, and again with its body, which may be much later.
   * @throws ApiError (401)
   */
  requireValid({ isRevoked, expiresMs }: Key): void {
    if (isRevoked) throw new ApiError('UNAUTHORIZED', 'the API key was revoked');
    if (expiresMs !== null) requireTime(expiresMs, this.#clock.nowMs());
  }

  #lookUp(authorization: string): Key {
    if (authorization === '') {
      throw malformed('the header "Authorization: Bearer <key>" is missing');
    }
    const token = BEARER.exec(authorization)?.[1];
    if (token === undefined || token.length > KEY_TEXT_MAX) {
      throw malformed('the header Authorization is not of the form "Bearer <key>"');
    }
    // By digest: whatever the time of a look-up tells, it tells of the digest of a wrong guess.
    const key = this.#byDigest.get(digestKey(token));
    if (key === undefined) {
      throw new ApiError('UNAUTHORIZED', 'the API key is not known here, or was revoked');
    }
    if (authorization.length <= REMEMBERED_MAX) {
      if (this.#verified.size >= VERIFIED_TOKENS_MAX) this.#verified.clear();
      this.#verified.set(authorization, key);
    }
    return key;
  }
}

/** There is no key to look up: the fault is in the request, as its place says. */
function malformed(message: string): ApiError {
  const fix = 'send the header "Authorization: Bearer <key>"';
  return new ApiError('UNAUTHORIZED', message, { location: AUTHORIZATION_PLACE, fix });
}

/** @throws ApiError (401) for a key that expires at a time */
export function requireTime(expiresMs: number | null, nowMs: number): void {
  if (expiresMs === null || expiresMs > nowMs) return;
  throw new ApiError('UNAUTHORIZED', 'the API key has expired');
}
