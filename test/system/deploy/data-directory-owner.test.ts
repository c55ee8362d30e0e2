/**
 * A server of an ordinary user on data directories of other users, which orchestrators mount. Only
 * root can create these. Node and the build are copied, because other users may not be able to read
 * their directories. test/core/file-ownership.test.ts has the rules of owners and modes.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, cpSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../../src/core/exit.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { isMissing } from '../../support/programs/program.ts';
import {
  removeDirectory,
  type ServerOptions,
  type ServerProcess,
  spawnServer,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const UID = 65_534;
const ROOT = new URL('../../..', import.meta.url).pathname;

const directory = temporaryDirectory();
const main = join(directory, 'app/dist/cli.js');
const node = join(directory, 'node');
const asUser = ['setpriv', `--reuid=${UID}`, `--regid=${UID}`, '--clear-groups'];
const args = ['--counters', '1024', '--acceptors', '1', '--workers', '1'];
const options: ServerOptions = { args, main, node, commandPrefix: asUser };
const canChangeUser = process.getuid?.() === 0 && !isMissing('setpriv', '--version');

let serial = 0;
function makeDirectory(mode: number, uid: number, gid: number): string {
  const path = join(directory, `data-${serial++}`);
  mkdirSync(path);
  chownSync(path, uid, gid);
  chmodSync(path, mode);
  return path;
}

const modeOf = (path: string) => statSync(path).mode & 0o7777;
/** Files of the directory with a wrong mode or owner. */
const looseFiles = (path: string) => {
  return readdirSync(path).filter((name) => {
    const { uid } = statSync(join(path, name));
    return modeOf(join(path, name)) !== 0o600 || uid !== UID;
  });
};

describe.skipIf(!canChangeUser)('a server that is not root', () => {
  const started: ServerProcess[] = [];
  const start = async (dataDir: string): Promise<ServerProcess> => {
    const server = await startServer(dataDir, options);
    started.push(server);
    return server;
  };
  beforeAll(() => {
    chmodSync(directory, 0o755);
    cpSync(process.execPath, node);
    const list = ['ls', '--omit=dev', '--all', '--parseable'];
    // The exit code is not 0, because packages of other platforms are missing.
    const { stdout } = spawnSync('npm', list, { cwd: ROOT, encoding: 'utf8' });
    const packages = stdout.trim().split('\n').slice(1);
    expect(packages.length).toBeGreaterThan(5);
    for (const path of ['dist', 'package.json', ...packages.map((path) => relative(ROOT, path))]) {
      cpSync(join(ROOT, path), join(directory, 'app', path), { recursive: true });
    }
    execFileSync('chmod', ['-R', 'a+rX', join(directory, 'app')]);
  }, 300_000);
  afterEach(async () => {
    for (const server of started.splice(0)) {
      server.child.kill('SIGKILL');
      await server.exited;
    }
  });
  afterAll(() => removeDirectory(directory));

  test('serves on a directory of root and its group, and again after a stop', async () => {
    const dataDir = makeDirectory(0o2770, 0, UID);
    const body = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
    for (const remaining of [9, 8]) {
      const server = await start(dataDir);
      expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining });
      expect(readdirSync(dataDir)).toEqual(expect.arrayContaining(['lock', 'store.db-wal']));
      expect(looseFiles(dataDir)).toEqual([]);
      // The warning may follow the line with the address.
      await waitUntil('it serves', () => server.stderr().includes('"msg":"serving"'));
      const lines = server.stderr().split('\n');
      const warning = lines.find((line) => {
        return line.includes('the data directory belongs to another user');
      });
      const expected = { level: 40, dataDir, ownerUid: 0, mode: '2770' };
      expect(JSON.parse(warning!)).toMatchObject(expected);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    }
    expect(looseFiles(dataDir)).toEqual([]);
    expect(modeOf(dataDir)).toBe(0o2770);
  });

  test('ends with one sentence if a file belongs to another user', async () => {
    const dataDir = makeDirectory(0o777, 0, 0);
    await (await start(dataDir)).stop();
    const path = join(dataDir, 'store.db');
    chownSync(path, 0, 0);
    chmodSync(path, 0o666);
    const server = await spawnServer(dataDir, options);
    started.push(server);
    expect(await server.exited).toEqual({ code: EXIT.CANNOT_SERVE, signal: null });
    expect(server.stderr()).toBe(
      `weir: the data directory ${dataDir} cannot be used: files in it belong to another user:` +
        ` store.db (uid 0, mode 0666); weir runs as uid ${UID}, and its files` +
        ` must belong to that user (chown -R ${UID} ${dataDir})\n`,
    );
  });

  test('starts after a run as root, and replaces the checkpoint files of that run', async () => {
    const dataDir = makeDirectory(0o700, UID, UID);
    await (await start(dataDir)).stop();
    const root = await startServer(dataDir, { args });
    const body = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < 100; i++) await sendCheck(root.port, { ...body, identifier: `user_${i}` });
    expect(await root.stop()).toEqual({ code: 0, signal: null });
    // Root creates the files like this in an empty directory; one file is readable for all users.
    for (const name of readdirSync(dataDir)) {
      if (name.startsWith('counters')) chownSync(join(dataDir, name), 0, 0);
    }
    chmodSync(join(dataDir, 'counters-3.1'), 0o644);
    const server = await start(dataDir);
    await waitUntil('it serves', () => server.stderr().includes('"msg":"serving"'));
    expect(server.stderr()).toContain(
      `${join(dataDir, 'counters-3.1')} is skipped: it belongs to uid 0, and weir runs as uid ${UID}`,
    );
    expect(await sendCheck(server.port, body)).toMatchObject({ success: true });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    expect(looseFiles(dataDir)).toEqual([]);
    const again = await start(dataDir);
    expect(await sendCheck(again.port, body)).toMatchObject({ remaining: 8 });
  });
});
