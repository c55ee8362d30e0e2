/** Backups of a stopped server, as docs/operations.md describes them. */

import { copyFileSync, cpSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const OPTIONS = { args: ['--counters', '1024', '--workers', '1', '--acceptors', '1'] };
const LIMITS = { limit: 100, duration: LONGEST_WINDOW_MS };

let directory: string;
let dataDir: string;
let server: ServerProcess;
beforeEach(() => {
  directory = temporaryDirectory();
  dataDir = join(directory, 'data');
});
afterEach(() => {
  server.child.kill('SIGKILL');
  removeDirectory(directory);
});

const start = async () => {
  server = await startServer(dataDir, OPTIONS);
};
const stop = async () => expect(await server.stop()).toEqual({ code: 0, signal: null });
const setOverride = (identifier: string) =>
  callOperationOk(server.port, 'ratelimits.setOverride', {
    namespaceName: 'default',
    identifier,
    ...LIMITS,
  });
const overrides = async () => {
  const fields = { namespaceName: 'default' };
  const page = await callOperationOk(server.port, 'ratelimits.listOverrides', fields);
  return (page.overrides as { identifier: string }[]).map(({ identifier }) => identifier);
};
const remaining = async () => {
  const decision = await sendCheck(server.port, { identifier: 'user_1', ...LIMITS });
  return (decision as { remaining: number }).remaining;
};

describe('a copy of the data directory', () => {
  test('of a stopped server has its records and counters when it is put back', async () => {
    await start();
    await setOverride('before_*');
    expect(await remaining()).toBe(99);
    await stop();
    cpSync(dataDir, join(directory, 'copy'), { recursive: true });
    await start();
    await setOverride('after_*');
    expect(await remaining()).toBe(98);
    await stop();

    renameSync(dataDir, join(directory, 'newer'));
    renameSync(join(directory, 'copy'), dataDir);
    await start();
    expect(await overrides()).toEqual(['before_*']);
    expect(await remaining()).toBe(98);
    await stop();
  });

  test('with an older store beside a newer lock is rejected until the lock is removed', async () => {
    await start();
    await setOverride('before_*');
    await stop();
    const older = join(directory, 'older.db');
    copyFileSync(join(dataDir, 'store.db'), older);
    await start();
    await setOverride('after_*');
    await stop();
    copyFileSync(older, join(dataDir, 'store.db'));
    await expect(start()).rejects.toThrow(/cannot be trusted: it is at revision .* older copy/);
    for (const name of readdirSync(dataDir)) {
      if (/^(lock|store\.db-.*)$/.test(name)) rmSync(join(dataDir, name));
    }
    await start();
    expect(await overrides()).toEqual(['before_*']);
    await stop();
  });
});
