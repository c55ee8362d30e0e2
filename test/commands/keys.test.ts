/** `weir keys` on a running server and offline. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROLES } from '../../src/auth/roles.ts';
import { EXIT } from '../../src/core/exit.ts';
import { removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';
import { withStore } from '../support/store.ts';
import { commandServer, ISO_TIME, runWeir } from '../support/weir-command.ts';

const commands = commandServer();
const { weir, lines } = commands;

describe('weir keys', () => {
  const permissions = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
  const permissionArgs = permissions.flatMap((permission) => ['--permission', permission]);
  const check = ['check', 'a', '--limit', '5', '--duration', '1h'];

  test('creates, lists and revokes', async () => {
    const args = ['keys', 'create', '--name', 'gateway', '--expires', '30d', ...permissionArgs];
    const [{ keyId, key }] = await lines(args);
    const env = { WEIR_KEY: `${key}` };
    expect((await weir(check, env)).code).toBe(EXIT.OK);
    expect(await lines(['keys', 'list'])).toContainEqual({
      keyId,
      name: 'gateway',
      permissions,
      createdAt: expect.any(Number),
      expires: expect.any(Number),
    });
    const forbidden = await weir(['keys', 'list'], env);
    expect([forbidden.code, forbidden.stderr]).toEqual([
      EXIT.SERVER_ERROR,
      expect.stringContaining('FORBIDDEN: '),
    ]);
    expect(await lines(['keys', 'revoke', `${keyId}`])).toEqual([{}]);
    expect((await weir(check, env)).stderr).toContain('UNAUTHORIZED: ');
  });

  test('prints a key once, and a table without characters that a terminal interprets', async () => {
    const name = 'a\u001b[2J\u202e\u009b name';
    const created = await weir(['keys', 'create', '--name', name, ...permissionArgs]);
    expect([created.code, created.stderr]).toEqual([EXIT.OK, '']);
    const [id, key, note, end] = created.stdout.split('\n');
    expect([note, end]).toEqual(['The key is shown only now: store it safely.', '']);
    const keyId = id.replace('key id: ', '');
    const env = { WEIR_KEY: key.replace('key:    ', '') };
    expect((await weir(check, env)).code).toBe(EXIT.OK);
    const [header, ...rows] = (await weir(['keys', 'list'])).stdout.split('\n');
    expect(header).toMatch(/^KEY ID +NAME +CREATED +EXPIRES +PERMISSIONS$/);
    const row = rows.find((row) => row.startsWith(keyId)) ?? '';
    const cells = `^${keyId} +"a.u001b.2J.u.202e..u.9b. name" +${ISO_TIME} +never +${permissions.join(' ')}$`;
    expect(row).toMatch(new RegExp(cells));
    expect(row.indexOf('never')).toBe(header.indexOf('EXPIRES'));
    expect((await weir(['keys', 'revoke', keyId])).stdout).toBe(`Key ${keyId} is revoked.\n`);
  });

  test('creates a key with the permissions of a role, and with others', async () => {
    const { permissions } = ROLES.viewer;
    const create = async (...args: string[]) => {
      const [{ keyId }] = await lines(['keys', 'create', '--name', 'k', ...args]);
      const keys = await lines(['keys', 'list']);
      return keys.find((one) => one.keyId === keyId)?.permissions;
    };
    expect(await create('--role', 'viewer')).toEqual(permissions);
    const others = ['--permission', 'keys.read', '--permission', permissions[0]];
    expect(await create('--role', 'viewer', ...others)).toEqual([...permissions, 'keys.read']);
    for (const [args, message] of [
      [['--role', 'root'], '--role must be one of viewer, operator, admin; got "root"'],
      [['--role', 'toString'], '--role must be one of viewer, operator, admin; got "toString"'],
      [[], '--role or --permission is required'],
    ] as const) {
      const { code, stderr } = await weir(['keys', 'create', '--name', 'k', ...args]);
      expect([code, stderr]).toEqual([EXIT.USAGE, `weir: ${message}\n`]);
    }
  });

  test('names the option in place of the field that the server rejects', async () => {
    const create = ['keys', 'create', '--name', 'k', '--permission', 'ratelimit.default.limit'];
    const { code, stderr } = await weir(create);
    expect([code, stderr]).toEqual([
      EXIT.SERVER_ERROR,
      expect.stringMatching(/^weir: BAD_REQUEST: --permission must be .*<namespaceId>/),
    ]);
  });

  test('accepts an expiry as a duration or a date', async () => {
    const args = ['keys', 'create', '--name', 'k', '--permission', '*', '--expires'];
    const [{ keyId }] = await lines([...args, '2100-01-31T12:00:00+02:00']);
    const keys = await lines(['keys', 'list']);
    expect(keys.find((one) => one.keyId === keyId)?.expires).toBe(Date.UTC(2100, 0, 31, 10));
  });

  test('creates a key offline only in the data directory of a stopped server', async () => {
    const own = temporaryDirectory();
    const args = ['keys', 'create', '--offline', '--name', 'back in', '--role', 'admin'];
    expect((await weir([...args, '--data-dir', commands.dataDir])).stderr).toContain(
      'is in use by another weir',
    );
    const empty = await weir([...args, '--data-dir', join(own, 'mistyped')]);
    expect([empty.code, empty.stderr]).toEqual([2, expect.stringContaining('--data-dir must be')]);
    expect(readdirSync(own)).toEqual([]);
    withStore(own, () => {});
    const offline = (name: string, permission: string, ...rest: string[]) => {
      const values = ['--name', name, '--permission', permission, '--data-dir', own];
      // As its own process, because a command that fails leaves the directory open.
      return runWeir('', ['keys', 'create', '--offline', ...values, ...rest]);
    };
    // The validation of the API applies.
    for (const [wrong, message] of [
      [offline('k', 'everything'), '--permission must be'],
      [offline('', '*'), '--name must be'],
      [offline('k', 'ratelimit.rlns_0.limit'), 'there is no namespace with the id'],
    ] as const) {
      expect([(await wrong).code, (await wrong).stderr]).toEqual([
        2,
        expect.stringContaining(message),
      ]);
    }
    const [{ key }] = await lines(args, { WEIR_DATA_DIR: own });
    for (const name of ['store.db', 'lock']) {
      expect(readFileSync(join(own, name)).includes(`${key}`)).toBe(false);
    }
    const other = await startServer(own, {
      args: ['--counters', '1024', '--acceptors', '1'],
      env: { WEIR_ROOT_KEY: undefined },
    });
    // Only the first start on a directory creates a root key.
    expect(other.stdout()).not.toContain('weir_');
    const env = { WEIR_URL: other.url, WEIR_KEY: `${key}` };
    expect((await lines(['keys', 'list'], env)).map(({ name }) => name)).toEqual(['back in']);
    expect(await other.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(own);
  });
});
