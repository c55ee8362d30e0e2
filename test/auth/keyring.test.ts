import { describe, expect, test } from 'vitest';
import { Keyring } from '../../src/auth/keyring.ts';
import { type KeyRecord, makeKey, rootKeyRecord } from '../../src/auth/keys.ts';
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
  test('accepts its keys, again and again, and no others', () => {
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

  test('stays right when more spellings of a header were verified than it remembers', () => {
    const key = makeKey();
    const keyring = keyringOf(rootKeyRecord(key, 'test', 0));
    for (let i = 0; i < VERIFIED_TOKENS_MAX + 10; i++) {
      const scheme = [...'bearer'].map((c, bit) => ((i >> bit) & 1 ? c.toUpperCase() : c)).join('');
      expect(keyring.verify(`${scheme}${' '.repeat(1 + (i >> 6))}${key}`).id).toMatch(/^key_/);
    }
    expect(keyring.verify(`Bearer${' '.repeat(10_000)}${key}`).id).toMatch(/^key_/);
  });

  test('refuses a remembered key from the moment that it expires', () => {
    const key = makeKey();
    const record = { ...rootKeyRecord(key, 'test', 0), expiresMs: clock.nowMs() + 50 };
    const keyring = keyringOf(record);
    expect(keyring.verify(`Bearer ${key}`).id).toBe(record.id);
    while (clock.nowMs() < record.expiresMs);
    expect(() => keyring.verify(`Bearer ${key}`)).toThrow('expired');
  });

  test('accepts keys that are added and forgets those that are removed, remembered or not', () => {
    const [kept, revoked, added] = [makeKey(), makeKey(), makeKey()];
    const removed = [rootKeyRecord(revoked, 'revoked', 0)];
    const keyring = keyringOf(rootKeyRecord(kept, 'kept', 0), ...removed);
    for (const key of [kept, revoked, kept, revoked]) keyring.verify(`Bearer ${key}`);
    const held = keyring.verify(`Bearer ${revoked}`);
    keyring.apply({ added: [rootKeyRecord(added, 'added', 0)], removed });
    expect(held.isRevoked).toBe(true);
    expect(() => keyring.verify(`Bearer ${revoked}`)).toThrow('revoked');
    for (const key of [kept, added]) {
      expect(keyring.verify(`Bearer ${key}`)).toMatchObject({ isRevoked: false });
    }
  });

  test('takes no key that was added and removed in one change', () => {
    const key = makeKey();
    const record = rootKeyRecord(key, 'short', 0);
    const keyring = keyringOf();
    keyring.apply({ added: [record], removed: [record] });
    expect(() => keyring.verify(`Bearer ${key}`)).toThrow('revoked');
  });

  test('goes on accepting a key by the settings when its stored twin is removed', () => {
    const key = makeKey();
    const [stored, configured] = [rootKeyRecord(key, 'stored', 0), rootKeyRecord(key, 'set', 0)];
    const keyring = keyringOf(stored, configured);
    keyring.apply({ added: [], removed: [stored] });
    expect(keyring.verify(`Bearer ${key}`).id).toBe(configured.id);
  });

  test('knows digests only', () => {
    const key = makeKey();
    expect(key).toMatch(/^weir_[\w-]{43}$/);
    expect(JSON.stringify(rootKeyRecord(key, 'test', 0))).not.toContain(key.slice(5));
  });
});

test('permissions: every form of "limit" and "create_namespace"', () => {
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
