/** Starts of a server, and what stops them. */

import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import type { LimitResponse } from '../support/http.ts';
import {
  freePort,
  removeDirectory,
  type ServerProcess,
  spawnServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { withStore } from '../support/store.ts';
import { SMALL } from '../support/test-server.ts';

const own = useDataDirectory(SMALL);
const { start, started } = own;

describe('the first start', () => {
  test('prints a key, a line that exports it, and a command with which a check works', async () => {
    const server = await start({ env: { WEIR_ROOT_KEY: undefined } });
    const lines = server.stdout().split('\n');
    const [exported, command, ...more] = lines.filter((line) => line.includes('weir_'));
    expect(more).toEqual([]);
    const [, url, authorization, type, body] =
      /^curl -s (\S+) -H '(.*)' -H '(.*)' -d '(.*)'$/.exec(command) ?? [];
    const headers = Object.fromEntries([authorization, type].map((text) => text.split(': ')));
    const check = async (to: string) => {
      const response = await fetch(to, { method: 'POST', headers, body });
      return (await response.json()) as LimitResponse;
    };
    expect(await check(url)).toMatchObject({ success: true, limit: 10, remaining: 9 });

    expect(await server.stop()).toEqual({ code: 0, signal: null });
    const key = /weir_[\w-]+/.exec(command)?.[0] ?? '';
    expect(exported).toBe(`export WEIR_KEY=${key}`);
    expect(key.length).toBe(48);
    expect(server.stderr()).not.toContain(key);
    for (const name of readdirSync(own.dataDir)) {
      expect(readFileSync(join(own.dataDir, name)).includes(key)).toBe(false);
    }

    const again = await start({ env: { WEIR_ROOT_KEY: undefined } });
    expect(again.stdout()).not.toContain('weir_');
    expect(await check(url.replace(/:\d+/, `:${again.port}`))).toMatchObject({ success: true });
  });

  test('makes the directory 0700 and its files 0600 under any umask', async () => {
    const before = process.umask(0);
    try {
      own.dataDir = join(own.dataDir, 'deep', 'down');
      await start();
      expect(statSync(own.dataDir).mode & 0o777).toBe(0o700);
      for (const name of readdirSync(own.dataDir)) {
        expect([name, statSync(join(own.dataDir, name)).mode & 0o777]).toEqual([name, 0o600]);
      }
    } finally {
      process.umask(before);
    }
  });

  test('whose key could not be printed does not store it: the next start prints another', async () => {
    const failed = await spawnServer(own.dataDir);
    failed.child.stdout?.destroy();
    const { code } = await failed.exited;
    expect(code === 0).toBe(false);
    expect(failed.stderr()).toContain('EPIPE');
    const server = await start({ env: { WEIR_ROOT_KEY: undefined } });
    expect(server.stdout()).toMatch(/weir_[\w-]{43}/);
  });
});

describe('a second instance does not start, and prints one sentence', () => {
  const sentenceOf = async (failed: ServerProcess) => {
    expect(await failed.exited).toEqual({ code: EXIT.CANNOT_SERVE, signal: null });
    expect(failed.stdout()).toBe('');
    expect(failed.stderr().trim().split('\n').length).toBe(1);
    return failed.stderr();
  };

  test('on the same port', async () => {
    const server = await start();
    const other = join(own.dataDir, 'other');
    const failed = await spawnServer(other, { args: ['--port', String(server.port)] });
    expect(await sentenceOf(failed)).toContain(
      `127.0.0.1:${server.port} (WEIR_PORT): another process uses`,
    );
    const admin = new URL(server.adminUrl).port;
    const failedToo = await spawnServer(other, { args: ['--admin-port', admin] });
    expect(await sentenceOf(failedToo)).toContain(
      `${admin} (WEIR_ADMIN_PORT): another process uses`,
    );
    expect(existsSync(other)).toBe(false);
  });

  test('on the same port, started at the same time', async () => {
    const other = temporaryDirectory();
    const port = ['--port', String(await freePort())];
    const both = await Promise.all([
      spawnServer(own.dataDir, { args: [...SMALL, ...port] }),
      spawnServer(other, { args: [...SMALL, ...port] }),
    ]);
    started.push(...both);
    await waitUntil('one of them serves and the other has ended', () => {
      const serving = both.filter((server) => server.stdout().includes('serves checks'));
      const ended = both.filter((server) => server.child.exitCode === EXIT.CANNOT_SERVE);
      return serving.length === 1 && ended.length === 1;
    });
    expect(both.map((server) => server.stderr()).join('')).toContain(
      '(WEIR_PORT): another process uses this port',
    );
    // The one that serves may use this directory.
    await Promise.all(both.map((server) => server.stop()));
    removeDirectory(other);
  });

  test('on the same data directory; it starts after the first was killed', async () => {
    const server = await start();
    const failed = await spawnServer(own.dataDir);
    expect(await sentenceOf(failed)).toContain(`${own.dataDir} is in use by another weir`);
    server.child.kill('SIGKILL');
    await server.exited;
    await start();
  });
});

describe('the start', () => {
  test('on a Node without a binary prints what to install, in one sentence', async () => {
    const versions = { ...process.versions, modules: '999', node: '26.99.0' };
    const preload = `Object.defineProperty(process,'versions',{value:${JSON.stringify(versions)}})`;
    const failed = await spawnServer(own.dataDir, {
      execArgv: ['--import', `data:text/javascript,${encodeURIComponent(preload)}`],
    });
    expect(await failed.exited).toEqual({ code: EXIT.CANNOT_SERVE, signal: null });
    expect(failed.stderr().trim().split('\n').length).toBe(1);
    expect(failed.stderr()).toContain('no binary for Node 26.99.0');
  });

  test('stops at an invalid setting with one sentence', async () => {
    const failed = await spawnServer(own.dataDir, { args: ['--port', 'http'] });
    expect((await failed.exited).code).toBe(EXIT.USAGE);
    const sentence = 'weir: --port must be an integer from 0 to 65535; got "http"\n';
    expect([failed.stdout(), failed.stderr()]).toEqual(['', sentence]);
  });

  test('rejects a store whose write-ahead log was damaged after a kill, instead of losing records', async () => {
    const server = await start({ env: { WEIR_ROOT_KEY: undefined } });
    await waitUntil('it is ready', async () => (await fetch(`${server.adminUrl}/readyz`)).ok);
    server.child.kill('SIGKILL');
    await server.exited;
    for (const damage of ['emptied', 'flipped', 'lost']) {
      const copy = join(own.dataDir, damage);
      mkdirSync(copy);
      for (const name of ['lock', 'store.db', 'store.db-wal']) {
        cpSync(join(own.dataDir, name), join(copy, name));
      }
      const log = join(copy, 'store.db-wal');
      const bytes = readFileSync(log);
      bytes[200] ^= 1;
      if (damage === 'lost') removeDirectory(log);
      else writeFileSync(log, damage === 'emptied' ? '' : bytes);
      expect(() => withStore(copy, () => {})).toThrow('was acknowledged');
    }
    const failed = await spawnServer(join(own.dataDir, 'lost'));
    expect((await failed.exited).code).toBe(EXIT.CANNOT_SERVE);
    expect(failed.stderr()).toContain('was acknowledged');
    expect(failed.stdout()).toBe('');
  });
});
