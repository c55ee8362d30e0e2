/**
 * The sessions of the dashboard, in memory. A session belongs to a key, of which only the id is
 * kept; its own id is known to the browser only, and kept as a digest. A session is valid while its
 * key is: every use looks the key up. Or it belongs to a user whom a proxy has signed in, and can
 * be used only in requests of the proxy for this user. Failures are ApiErrors (401, 503).
 *
 * Failed sign-ins are bounded together, and no failure belongs to a key: a key does not contain its
 * id. A valid key is never rejected because of failures, so no client can lock out its holder. A
 * lookup by digest costs some microseconds, whatever its result.
 */

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { requireUnexpired } from '../../auth/keyring.ts';
import { digestKey, type KeyRecord } from '../../auth/keys.ts';
import { ROLES, type Role } from '../../auth/roles.ts';
import { type UserRoles, userId } from '../../auth/users.ts';
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
  /** The id of its key, or of its user. */
  readonly holderId: string;
  /** Of its user; undefined where it has a key. */
  readonly role: Role | undefined;
  /** None of a key or a role changes. */
  readonly permissions: readonly string[];
  readonly csrfToken: string;
  readonly startedMs: number;
  lastUsedMs: number;
  /** Whether the session has an event stream; it is not idle then. */
  isWatching: boolean;
}

export interface StartedSession {
  session: Session;
  /** For the cookie. */
  id: string;
}

export class Sessions {
  /** By digest of the id, the oldest first. */
  readonly #byDigest = new Map<string, Session>();
  readonly #registry: Registry;
  readonly #roles: UserRoles | undefined;
  readonly #clock: Pick<Clock, 'monotonicMs' | 'nowMs'>;
  readonly #onEnd: (session: Session, reason: string) => void;
  #failedSignIns = 0;
  #failuresSinceMs = 0;

  /**
   * @param roles undefined where no proxy signs in users
   * @param onEnd called when a session has ended, with the reason as a sentence
   */
  constructor(
    registry: Registry,
    roles: UserRoles | undefined,
    clock: Pick<Clock, 'monotonicMs' | 'nowMs'>,
    onEnd: (session: Session, reason: string) => void,
  ) {
    this.#registry = registry;
    this.#roles = roles;
    this.#clock = clock;
    this.#onEnd = onEnd;
  }

  /**
   * Starts a session for the holder of a key.
   * @param earlierId from the cookie of the browser: that session ends
   * @throws ApiError (401, 503)
   */
  signIn(key: string, earlierId?: string): StartedSession {
    const { id, permissions } = this.#verify(key);
    return this.#start({ holderId: id, role: undefined, permissions }, earlierId);
  }

  /** Starts a session for a user whom the proxy has signed in. @throws ApiError (503) */
  signInUser(name: string, earlierId?: string): StartedSession {
    const role = this.#roles!.roleOf(name);
    const { permissions } = ROLES[role];
    return this.#start({ holderId: userId(name), role, permissions }, earlierId);
  }

  #start(
    holder: Pick<Session, 'holderId' | 'role' | 'permissions'>,
    earlierId: string | undefined,
  ): StartedSession {
    const earlier = this.#find(earlierId);
    if (earlier !== undefined) this.end(earlier, 'this browser has signed in again');
    this.endInvalid();
    this.#makeRoom(holder.holderId);
    const id = randomBytes(ID_BYTES).toString('base64url');
    const nowMs = this.#clock.monotonicMs();
    const session: Session = {
      ...holder,
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
   * @param user whom the proxy has signed in; undefined where the request comes without the proxy
   * @throws ApiError (401)
   */
  use(id: string | undefined, user: string | undefined): Session {
    const session = this.#find(id);
    if (session === undefined) {
      const how = user === undefined ? ' with an API key' : '';
      throw new ApiError('UNAUTHORIZED', `there is no session: sign in${how}`);
    }
    if (user === undefined && session.role !== undefined) {
      // It goes on: otherwise a client that has only the cookie could end it.
      const message = 'a user whom the proxy has signed in can use a session through it only';
      throw new ApiError('UNAUTHORIZED', message);
    }
    const isOther = user !== undefined && session.holderId !== userId(user);
    const reason = isOther ? 'the proxy has signed in another user' : this.#endReason(session);
    if (reason !== undefined) {
      this.end(session, reason);
      throw new ApiError('UNAUTHORIZED', reason);
    }
    session.lastUsedMs = this.#clock.monotonicMs();
    return session;
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
  #endReason(session: Session): string | undefined {
    const { startedMs, lastUsedMs, isWatching } = session;
    const keyReason = session.role === undefined && this.#keyEndReason(session.holderId);
    if (keyReason) return keyReason;
    const nowMs = this.#clock.monotonicMs();
    const isIdle = !isWatching && nowMs - lastUsedMs >= DASHBOARD_SESSION_IDLE_MS;
    if (isIdle || nowMs - startedMs >= DASHBOARD_SESSION_MAX_MS) {
      return 'the session has expired: sign in again';
    }
    return undefined;
  }

  #keyEndReason(keyId: string): string | undefined {
    const key = this.#registry.key(keyId);
    if (key === undefined) return 'the API key of the session was revoked';
    const hasExpired = key.expiresMs !== null && key.expiresMs <= this.#clock.nowMs();
    return hasExpired ? 'the API key of the session has expired' : undefined;
  }

  /** A key or a user cannot use up the sessions of all others. */
  #makeRoom(holderId: string): void {
    const own = [...this.#byDigest.values()].filter((session) => session.holderId === holderId);
    if (own.length >= DASHBOARD_SESSIONS_PER_KEY_MAX) {
      const holder = own[0].role === undefined ? 'API key' : 'user';
      this.end(own[0], `newer sessions of the same ${holder} have replaced this one`);
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
      this.countFailure();
      throw error;
    }
  }

  /** Counts a sign-in that has failed. @throws ApiError (503) where many have */
  countFailure(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#failuresSinceMs >= 1_000) {
      this.#failuresSinceMs = nowMs;
      this.#failedSignIns = 0;
    }
    if (this.#failedSignIns >= DASHBOARD_FAILED_SIGN_INS_PER_S) {
      throw new ApiError('SERVICE_UNAVAILABLE', 'too many sign-ins have failed: wait a second');
    }
    this.#failedSignIns++;
  }
}

export function isTokenOf({ csrfToken }: Session, received: string | undefined): boolean {
  const [expected, given] = [Buffer.from(csrfToken), Buffer.from(received ?? '')];
  return expected.length === given.length && timingSafeEqual(expected, given);
}

function digestOf(id: string): string {
  return createHash('sha256').update(id).digest('base64');
}
