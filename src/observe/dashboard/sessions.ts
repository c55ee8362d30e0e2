/**
 * The sessions of the dashboard, in memory. A session belongs to a key, of which only the id is
 * kept; its own id is known to the browser only, and kept as a digest. A session is valid while its
 * key is: every use looks the key up. Failures are ApiErrors (401, 503).
 *
 * Failed sign-ins are bounded together, and no failure belongs to a key: a key does not contain its
 * id. A valid key is never rejected because of failures, so no client can lock out its holder. A
 * lookup by digest costs some microseconds, whatever its result.
 */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { requireUnexpired } from '../../auth/keyring.ts';
import { digestKey, type KeyRecord } from '../../auth/keys.ts';
import {
  DASHBOARD_FAILED_SIGN_INS_PER_S,
  DASHBOARD_SESSION_IDLE_MS,
  DASHBOARD_SESSION_MAX_MS,
  DASHBOARD_SESSIONS_MAX,
  DASHBOARD_SESSIONS_PER_KEY_MAX,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import type { Registry } from '../../registry/registry.ts';
import type { Clock } from '../../shared-memory/clock.ts';

/** 256 bits. */
const ID_BYTES = 32;
const ID = /^[\w-]{43}$/;

export interface Session {
  readonly keyId: string;
  readonly csrfToken: string;
  readonly startedMs: number;
  lastUsedMs: number;
  /** Whether the session has an event stream; it is not idle then. */
  isWatching: boolean;
}

export class Sessions {
  /** By digest of the id, the oldest first. */
  readonly #byDigest = new Map<string, Session>();
  readonly #registry: Registry;
  readonly #clock: Pick<Clock, 'monotonicMs' | 'nowMs'>;
  readonly #onEnd: (session: Session, reason: string) => void;
  #failedSignIns = 0;
  #failuresSinceMs = 0;

  /** @param onEnd called when a session has ended, with the reason as a sentence */
  constructor(
    registry: Registry,
    clock: Pick<Clock, 'monotonicMs' | 'nowMs'>,
    onEnd: (session: Session, reason: string) => void,
  ) {
    this.#registry = registry;
    this.#clock = clock;
    this.#onEnd = onEnd;
  }

  /**
   * Starts a session for the holder of a key.
   * @param earlierId from the cookie of the browser: that session ends
   * @returns the session, and its id for the cookie
   * @throws ApiError (401, 503)
   */
  signIn(key: string, earlierId?: string): { session: Session; id: string } {
    const record = this.#verify(key);
    const earlier = this.#find(earlierId);
    if (earlier !== undefined) this.end(earlier, 'this browser has signed in again');
    this.endInvalid();
    this.#makeRoom(record.id);
    const id = randomBytes(ID_BYTES).toString('base64url');
    const nowMs = this.#clock.monotonicMs();
    const session: Session = {
      keyId: record.id,
      csrfToken: randomBytes(ID_BYTES).toString('base64url'),
      startedMs: nowMs,
      lastUsedMs: nowMs,
      isWatching: false,
    };
    this.#byDigest.set(digestOf(id), session);
    return { session, id };
  }

  /**
   * Finds the session of a request, and notes its use.
   * @param id from the cookie; undefined without one
   * @throws ApiError (401)
   */
  use(id: string | undefined): { session: Session; key: KeyRecord } {
    const session = this.#find(id);
    if (session === undefined) {
      throw new ApiError('UNAUTHORIZED', 'there is no session: sign in with an API key');
    }
    const reason = this.#endReason(session);
    if (reason !== undefined) {
      this.end(session, reason);
      throw new ApiError('UNAUTHORIZED', reason);
    }
    session.lastUsedMs = this.#clock.monotonicMs();
    return { session, key: this.#registry.key(session.keyId)! };
  }

  #find(id: string | undefined): Session | undefined {
    return id !== undefined && ID.test(id) ? this.#byDigest.get(digestOf(id)) : undefined;
  }

  end(session: Session, reason: string): void {
    for (const [digest, other] of this.#byDigest) {
      if (other !== session) continue;
      this.#byDigest.delete(digest);
      this.#onEnd(session, reason);
      return;
    }
  }

  /** Ends the sessions whose key is not valid any more, or whose time is over. */
  endInvalid(): void {
    for (const session of [...this.#byDigest.values()]) {
      const reason = this.#endReason(session);
      if (reason !== undefined) this.end(session, reason);
    }
  }

  /** @returns why the session must end; undefined where it goes on */
  #endReason({ keyId, startedMs, lastUsedMs, isWatching }: Session): string | undefined {
    const key = this.#registry.key(keyId);
    if (key === undefined) return 'the API key of the session was revoked';
    if (key.expiresMs !== null && key.expiresMs <= this.#clock.nowMs()) {
      return 'the API key of the session has expired';
    }
    const nowMs = this.#clock.monotonicMs();
    const isIdle = !isWatching && nowMs - lastUsedMs >= DASHBOARD_SESSION_IDLE_MS;
    if (isIdle || nowMs - startedMs >= DASHBOARD_SESSION_MAX_MS) {
      return 'the session has expired: sign in again';
    }
    return undefined;
  }

  /** A key cannot use up the sessions of all others. */
  #makeRoom(keyId: string): void {
    const own = [...this.#byDigest.values()].filter((session) => session.keyId === keyId);
    if (own.length >= DASHBOARD_SESSIONS_PER_KEY_MAX) {
      this.end(own[0], 'newer sessions of the same API key have replaced this one');
    }
    if (this.#byDigest.size < DASHBOARD_SESSIONS_MAX) return;
    throw new ApiError('SERVICE_UNAVAILABLE', 'too many sessions are open: sign out elsewhere');
  }

  /** @throws ApiError (401, or 503 where many sign-ins have failed) */
  #verify(key: string): KeyRecord {
    // The timing of a lookup by digest reveals nothing about the key.
    const record = this.#registry.keyByDigest(digestKey(key));
    try {
      if (record === undefined) {
        throw new ApiError('UNAUTHORIZED', 'the API key is not known here, or was revoked');
      }
      requireUnexpired(record.expiresMs, this.#clock.nowMs());
      return record;
    } catch (error) {
      this.#requireFewFailures();
      this.#failedSignIns++;
      throw error;
    }
  }

  #requireFewFailures(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#failuresSinceMs >= 1_000) {
      this.#failuresSinceMs = nowMs;
      this.#failedSignIns = 0;
    }
    if (this.#failedSignIns < DASHBOARD_FAILED_SIGN_INS_PER_S) return;
    throw new ApiError('SERVICE_UNAVAILABLE', 'too many sign-ins have failed: wait a second');
  }
}

export function isTokenOf({ csrfToken }: Session, received: string | undefined): boolean {
  const [expected, given] = [Buffer.from(csrfToken), Buffer.from(received ?? '')];
  return expected.length === given.length && timingSafeEqual(expected, given);
}

function digestOf(id: string): string {
  return createHash('sha256').update(id).digest('base64');
}
