/** The settings of a proxy that signs in users of the dashboard. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { loadSettings } from '../../src/config/load.ts';
import {
  PROXY_SECRET_MAX_CHARACTERS,
  PROXY_SECRET_MIN_CHARACTERS,
} from '../../src/core/constants.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const FILE = join(directory, 'secret');
const SECRET = 's'.repeat(PROXY_SECRET_MIN_CHARACTERS);
const HEADER = { WEIR_DASHBOARD_USER_HEADER: 'X-Forwarded-User' };
const PROXY = { ...HEADER, WEIR_DASHBOARD_PROXY_SECRET_FILE: FILE };

function load(env: Record<string, string>, secret = SECRET) {
  writeFileSync(FILE, secret);
  return loadSettings([], env)?.dashboardProxy;
}

describe('the settings of a proxy that signs in users', () => {
  test('are absent by default, and a secret may end with a line break', () => {
    expect(load({})).toBeUndefined();
    for (const secret of [SECRET, `${SECRET}\n`, `${SECRET}\r\n`]) {
      expect(load(PROXY, secret)).toMatchObject({ userHeader: 'X-Forwarded-User', secret: SECRET });
    }
    const longest = 's'.repeat(PROXY_SECRET_MAX_CHARACTERS);
    expect(load(PROXY, longest)?.secret).toBe(longest);
  });

  test('map users to roles; all others are viewers, unless * has another role', () => {
    const rolesOf = (text: string, names: string[]) => {
      const { roles } = load({ ...PROXY, WEIR_DASHBOARD_USER_ROLES: text })!;
      return names.map((name) => roles.roleOf(name));
    };
    const names = ['ann@example.com', 'Ann@example.com', 'bob', 'uid=eve', '*', ''];
    const text = 'ann@example.com=admin, bob = operator,uid=eve=operator';
    const others = (role: string) => ['admin', role, 'operator', 'operator', role, role];
    expect(rolesOf(text, names)).toEqual(others('viewer'));
    expect(rolesOf(`${text},*=operator`, names)).toEqual(others('operator'));
    expect(load(PROXY)?.roles.roleOf('ann')).toBe('viewer');
  });

  test.each<[env: Record<string, string>, message: string]>([
    [HEADER, 'WEIR_DASHBOARD_USER_HEADER requires WEIR_DASHBOARD_PROXY_SECRET_FILE, which is not'],
    [{ WEIR_DASHBOARD_PROXY_SECRET_FILE: FILE }, 'requires WEIR_DASHBOARD_USER_HEADER, which is'],
    [{ WEIR_DASHBOARD_USER_ROLES: 'ann=admin' }, 'WEIR_DASHBOARD_USER_ROLES requires WEIR_DASH'],
    [{ ...PROXY, WEIR_DASHBOARD: 'false' }, 'requires the dashboard, which is off'],
    [{ ...PROXY, WEIR_ADMIN_HOST: '0.0.0.0' }, 'requires the dashboard, which is off'],
    [
      { ...HEADER, WEIR_DASHBOARD_PROXY_SECRET_FILE: '/nowhere' },
      '/nowhere (WEIR_DASHBOARD_PROXY_SECRET_FILE) cannot be read',
    ],
    ...['Host', 'cookie', 'Origin', 'X-Weir-Csrf', 'X_User', 'Content-Type', 'a b', 'a:'].map(
      (name) => {
        const env = { ...PROXY, WEIR_DASHBOARD_USER_HEADER: name };
        return [env, 'must be the name of a header: '] as [typeof env, string];
      },
    ),
    ...[
      ['ann', '"ann" in "ann"'],
      ['ann=root', '"ann=root" in "ann=root"'],
      ['ann=Admin', '"ann=Admin" in "ann=Admin"'],
      ['=admin', '"=admin" in "=admin"'],
      ['ann=admin,', '"" in "ann=admin,"'],
      ['\u00e4nn=admin', '"\u00e4nn=admin" in'],
      ['*@example.com=toString', '"*@example.com=toString" in'],
      ['ann=admin, ann=viewer', 'two roles for "ann"'],
    ].map(([roles, got]) => {
      const env = { ...PROXY, WEIR_DASHBOARD_USER_ROLES: roles };
      return [env, `the user * stands for all users that are not named; got ${got}`] as [
        typeof env,
        string,
      ];
    }),
  ])('%j stop the start', (env, message) => {
    expect(() => load(env)).toThrow(message);
  });

  test.each([
    ['', 'got nothing'],
    ['\n', 'got nothing'],
    [SECRET.slice(1), `got a text of ${PROXY_SECRET_MIN_CHARACTERS - 1} characters`],
    ['s'.repeat(PROXY_SECRET_MAX_CHARACTERS + 1), 'got a text of 513 characters'],
    [`${SECRET}\n${SECRET}`, 'got a text of 65 characters'],
    [`${SECRET} s`, 'got a text of 34 characters'],
    [`${SECRET}\u00e4`, 'got a text of 33 characters'],
  ])('a file with %j stops the start, and the message does not contain it', (secret, got) => {
    const message = `the secret in ${FILE} must be 32 to 512 visible ASCII characters without`;
    expect(() => load(PROXY, secret)).toThrow(message);
    expect(() => load(PROXY, secret)).toThrow(got);
    expect(() => load(PROXY, secret)).not.toThrow('sss');
  });
});
