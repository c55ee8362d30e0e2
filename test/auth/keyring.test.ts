import { describe, expect, test } from 'vitest';
import { Keyring } from '../../src/auth/keyring.ts';
import {
  configuredKeyRecord,
  type KeyRecord,
  makeKey,
  rootKeyRecord,
} from '../../src/auth/keys.ts';
import { Permissions } from '../../src/auth/permissions.ts';
import { VERIFIED_TOKENS_MAX } from '../../src/core/constants.ts';
import { Clock, ClockPublisher } from '../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../src/shared-memory/control.ts';

const control = new Control(allocateControl(1, 1));
new ClockPublisher(control);
const clock = new Clock(control);

const keyringOf = (...added: KeyRecord[]) => {
  const keyring = new Keyring(clock);
  keyring.apply({ added, removed: [] });
  return keyring;
};

describe('a keyring', () => {
  test('accepts its keys, also repeatedly, and no others', () => {
    const key = makeKey();
    const keyring = keyringOf(rootKeyRecord(key, 'test', 0));
    for (let i = 0; i < 3; i++) {
      expect(keyring.verify(`Bearer ${key}`).permissions.mayLimitAnywhere).toBe(true);
      expect(() => keyring.verify(`Bearer ${key.slice(0, -1)}`)).toThrow('not known');
      expect(() => keyring.verify(`Bearer ${key}x`)).toThrow('not known');
      expect(() => keyring.verify(key)).toThrow('not of the form');
      expect(() => keyring.verify('')).toThrow('missing');
    }
  });

  test('accepts a key under more spellings of its header than it caches', () => {
    const key = makeKey();
    const keyring = keyringOf(rootKeyRecord(key, 'test', 0));
    for (let i = 0; i < VERIFIED_TOKENS_MAX + 10; i++) {
      const scheme = [...'bearer'].map((c, bit) => ((i >> bit) & 1 ? c.toUpperCase() : c)).join('');
      expect(keyring.verify(`${scheme}${' '.repeat(1 + (i >> 6))}${key}`).id).toMatch(/^key_/);
    }
    expect(keyring.verify(`Bearer${' '.repeat(10_000)}${key}`).id).toMatch(/^key_/);
  });

  test('rejects a cached key as soon as it expires', () => {
    const key = makeKey();
    const record = { ...rootKeyRecord(key, 'test', 0), expiresMs: clock.nowMs() + 3_600_000 };
    const keyring = keyringOf(record);
    expect(keyring.verify(`Bearer ${key}`).id).toBe(record.id);
    // Weir's time goes on from there.
    new ClockPublisher(control, record.expiresMs);
    while (clock.nowMs() < record.expiresMs);
    expect(() => keyring.verify(`Bearer ${key}`)).toThrow('expired');
  });

  test('accepts added keys and rejects removed keys, also cached ones', () => {
    const [unchanged, revoked, added] = [makeKey(), makeKey(), makeKey()];
    const removed = [rootKeyRecord(revoked, 'revoked', 0)];
    const keyring = keyringOf(rootKeyRecord(unchanged, 'unchanged', 0), ...removed);
    for (const key of [unchanged, revoked, unchanged, revoked]) keyring.verify(`Bearer ${key}`);
    const verified = keyring.verify(`Bearer ${revoked}`);
    keyring.apply({ added: [rootKeyRecord(added, 'added', 0)], removed });
    expect(verified.isRevoked).toBe(true);
    expect(() => keyring.verify(`Bearer ${revoked}`)).toThrow('revoked');
    for (const key of [unchanged, added]) {
      expect(keyring.verify(`Bearer ${key}`)).toMatchObject({ isRevoked: false });
    }
  });

  test('rejects a key that was added and removed in one change', () => {
    const key = makeKey();
    const record = rootKeyRecord(key, 'short', 0);
    const keyring = keyringOf();
    keyring.apply({ added: [record], removed: [record] });
    expect(() => keyring.verify(`Bearer ${key}`)).toThrow('revoked');
  });

  test('accepts the configured key after a stored record of the same key is removed', () => {
    const key = makeKey();
    const [stored, configured] = [rootKeyRecord(key, 'stored', 0), rootKeyRecord(key, 'set', 0)];
    const keyring = keyringOf(stored, configured);
    keyring.apply({ added: [], removed: [stored] });
    expect(keyring.verify(`Bearer ${key}`).id).toBe(configured.id);
  });

  test('contains digests only', () => {
    const key = makeKey();
    expect(key).toMatch(/^weir_[\w-]{43}$/);
    expect(JSON.stringify(rootKeyRecord(key, 'test', 0))).not.toContain(key.slice(5));
  });
});

test('the id of the configured key depends on the key and the store, and on nothing else', () => {
  const id = (key: string, hashKey: string, createdMs = 1) => {
    return configuredKeyRecord(key, createdMs, Buffer.from(hashKey)).id;
  };
  expect(id('a', 'store')).toMatch(/^key_[0-9a-f]{24}$/);
  expect(id('a', 'store', 2)).toBe(id('a', 'store'));
  expect(new Set([id('a', 'store'), id('b', 'store'), id('a', 'other')]).size).toBe(3);
});

test('each form of the permissions "limit" and "create_namespace" grants its actions', () => {
  const rows: [string[], boolean, boolean, boolean, boolean][] = [
    [[], false, false, false, false],
    [['*'], true, true, true, true],
    [['ratelimit.*.limit'], true, true, true, false],
    [['ratelimit.rlns_a.limit'], false, true, false, false],
    [['ratelimit.rlns_b.limit'], false, false, false, false],
    [['ratelimit.*.create_namespace'], false, false, false, true],
    [['ratelimit.rlns_a.create_namespace', 'ratelimit.*', 'limit'], false, false, false, false],
  ];
  for (const [granted, anywhere, inA, unknown, create] of rows) {
    const permissions = new Permissions(granted);
    expect([
      permissions.mayLimitAnywhere,
      permissions.may('limit', 'rlns_a'),
      permissions.may('limit', undefined),
      permissions.mayCreateNamespace,
    ]).toEqual([anywhere, inA, unknown, create]);
  }
  expect(() => new Permissions([]).require('limit', 'rlns_a')).toThrow(
    '"ratelimit.*.limit" or "ratelimit.rlns_a.limit"',
  );
});
