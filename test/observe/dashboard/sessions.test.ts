import { beforeEach, describe, expect, test } from 'vitest';
import { newKeyRecord } from '../../../src/auth/keys.ts';
import { UserRoles } from '../../../src/auth/users.ts';
import {
  DASHBOARD_FAILED_SIGN_INS_PER_S,
  DASHBOARD_SESSION_IDLE_MS,
  DASHBOARD_SESSION_MAX_MS,
  DASHBOARD_SESSIONS_MAX,
  DASHBOARD_SESSIONS_PER_KEY_MAX,
} from '../../../src/core/constants.ts';
import type { ApiError } from '../../../src/core/errors.ts';
import { Sessions } from '../../../src/observe/dashboard/sessions.ts';
import { Registry } from '../../../src/registry/registry.ts';
import { DataDirectory } from '../../../src/registry/store/directory.ts';
import { SqliteStore } from '../../../src/registry/store/sqlite.ts';
import { useDataDirectory } from '../../support/data-directory.ts';

const EXPIRED = 'key-that-has-expired';
const KEYS = Array.from({ length: 20 }, (_, i) => `key-number-${i}`);

describe('sessions', () => {
  const own = useDataDirectory([]);
  let nowMs: number;
  let ended: string[];
  let sessions: Sessions;
  beforeEach(() => {
    const directory = DataDirectory.open(own.dataDir);
    const store = SqliteStore.open(directory);
    const registry = new Registry(store);
    for (const key of KEYS) registry.addConfiguredKey(newKeyRecord(key, key, ['*'], 0, null));
    registry.addConfiguredKey(newKeyRecord(EXPIRED, 'expired', ['*'], 0, 500));
    store.close();
    directory.close();
    nowMs = 0;
    ended = [];
    const roles = new UserRoles('ann=admin');
    const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs };
    sessions = new Sessions(registry, roles, clock, (_session, reason) => ended.push(reason));
  });
  const isOpen = (id: string) => {
    try {
      return sessions.use(id, undefined) !== undefined;
    } catch {
      return false;
    }
  };

  test('are not started with an expired key, whose failures are bounded like those of others', () => {
    nowMs = 1_000;
    const codeOf = (key: string) => {
      try {
        sessions.signIn(key);
        return 'OK';
      } catch (error) {
        return (error as ApiError).code;
      }
    };
    const failures = Array.from({ length: DASHBOARD_FAILED_SIGN_INS_PER_S }, (_, i) => {
      return codeOf(i % 2 === 0 ? EXPIRED : 'unknown');
    });
    expect(new Set(failures)).toEqual(new Set(['UNAUTHORIZED']));
    expect([codeOf(EXPIRED), codeOf('unknown')]).toEqual(Array(2).fill('SERVICE_UNAVAILABLE'));
    expect(codeOf(KEYS[0])).toBe('OK');
    nowMs = 2_000;
    expect(codeOf(EXPIRED)).toBe('UNAUTHORIZED');
  });

  test('end when they were not used for the idle time, unless they have a stream', () => {
    const idle = sessions.signIn(KEYS[0]);
    const watching = sessions.signIn(KEYS[0]);
    const used = sessions.signIn(KEYS[0]);
    watching.session.isWatching = true;
    nowMs = DASHBOARD_SESSION_IDLE_MS - 1;
    expect(isOpen(used.id)).toBe(true);
    nowMs = DASHBOARD_SESSION_IDLE_MS;
    expect([idle, watching, used].map(({ id }) => isOpen(id))).toEqual([false, true, true]);
    expect(ended).toEqual(['the session has expired: sign in again']);
  });

  test('of a user end when another one uses them, and are of no use without a user', () => {
    const { session, id } = sessions.signInUser('ann');
    expect(session).toMatchObject({ holderId: 'user:ann', role: 'admin', permissions: ['*'] });
    expect(() => sessions.use(id, undefined)).toThrow('through it only');
    expect(sessions.use(id, 'ann')).toBe(session);
    expect(() => sessions.use(id, 'Ann')).toThrow('the proxy has signed in another user');
    expect(() => sessions.use(id, 'ann')).toThrow('there is no session: sign in');
    const ofKey = sessions.signIn(KEYS[0]);
    expect(() => sessions.use(ofKey.id, 'ann')).toThrow('the proxy has signed in another user');
    expect(ended).toEqual(Array(2).fill('the proxy has signed in another user'));
  });

  test('of a user end by time, and by newer ones of the same user only', () => {
    const first = sessions.signInUser('ann');
    const other = sessions.signInUser('bob');
    const isUsable = (started: { id: string }, user: string) => {
      try {
        return sessions.use(started.id, user) !== undefined;
      } catch {
        return false;
      }
    };
    for (let i = 0; i < DASHBOARD_SESSIONS_PER_KEY_MAX; i++) sessions.signInUser('ann');
    expect([isUsable(first, 'ann'), isUsable(other, 'bob')]).toEqual([false, true]);
    expect(ended).toEqual(['newer sessions of the same user have replaced this one']);
    nowMs = DASHBOARD_SESSION_IDLE_MS;
    expect(isUsable(other, 'bob')).toBe(false);
  });

  test('end at the end of their lifetime, also with a stream', () => {
    const { session, id } = sessions.signIn(KEYS[0]);
    session.isWatching = true;
    nowMs = DASHBOARD_SESSION_MAX_MS - 1;
    expect(isOpen(id)).toBe(true);
    nowMs = DASHBOARD_SESSION_MAX_MS;
    sessions.endInvalid();
    expect([isOpen(id), ended.length]).toEqual([false, 1]);
  });

  test('are bounded: a key replaces its own oldest one, and not that of another key', () => {
    const first = sessions.signIn(KEYS[0]);
    const other = sessions.signIn(KEYS[1]);
    for (let i = 1; i < DASHBOARD_SESSIONS_PER_KEY_MAX; i++) sessions.signIn(KEYS[0]);
    expect([isOpen(first.id), isOpen(other.id)]).toEqual([true, true]);
    sessions.signIn(KEYS[0]);
    expect([isOpen(first.id), isOpen(other.id)]).toEqual([false, true]);
  });

  test('of all keys are bounded: one more is rejected', () => {
    const signIns = Array.from({ length: DASHBOARD_SESSIONS_MAX }, (_, i) => {
      return sessions.signIn(KEYS[i % KEYS.length]);
    });
    expect(() => sessions.signIn(KEYS[0])).toThrow('too many sessions are open');
    sessions.end(signIns[0].session, 'test');
    expect(isOpen(sessions.signIn(KEYS[0]).id)).toBe(true);
  });
});
