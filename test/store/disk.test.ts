/** Disks that fail a real server, at its start and while it runs. */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { done, type Fields, operate } from '../support/api.ts';
import { check, errorOf, LASTING_MS } from '../support/http.ts';
import {
  cleanEnvironment,
  MAIN,
  type Running,
  removeDirectory,
  spawnServer,
  startServer,
  temporaryDirectory,
  until,
} from '../support/server.ts';

const ARGS = ['--counters', '1024', '--acceptors', '2'];

let dataDir: string;
beforeEach(() => {
  dataDir = temporaryDirectory();
});
afterEach(() => removeDirectory(dataDir));

const set = (server: Running, identifier: string, fields: Fields = {}) => {
  const said = { namespaceName: 'disk', identifier, limit: 5, duration: LASTING_MS, ...fields };
  return operate(server.port, 'ratelimits.setOverride', said);
};
const limitOf = async (server: Running, identifier: string) => {
  const body = { namespace: 'disk', identifier, limit: 1, duration: LASTING_MS, cost: 0 };
  return (await check(server.port, body)).limit;
};

/** A store with a record of each kind, and whole: its log is in it. */
async function fill(directory: string): Promise<void> {
  const server = await startServer(directory, { args: ARGS });
  for (let i = 0; i < 50; i++) expect((await set(server, `user_${i}`)).status).toBe(200);
  expect((await set(server, 'user_*')).status).toBe(200);
  await done(server.port, 'keys.create', { name: 'k', permissions: ['*'] });
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}

/** What a start that must not succeed said; the code is 1 and nothing was printed. */
async function refusal(): Promise<string> {
  const server = await spawnServer(dataDir, { args: ARGS });
  const exit = await server.exited;
  expect([exit, server.stdout()]).toEqual([{ code: 1, signal: null }, '']);
  const sentences = server.stderr().trim().split('\n');
  expect(sentences.length).toBe(1);
  return sentences[0];
}

describe('a start on a store that is damaged ends with one sentence', () => {
  test('emptied, truncated at every tenth, gone, or a directory', async () => {
    await fill(dataDir);
    const path = join(dataDir, 'store.db');
    const whole = readFileSync(path);
    const { size } = statSync(path);
    for (let tenth = 0; tenth < 10; tenth++) {
      truncateSync(path, Math.floor((size * tenth) / 10));
      expect(await refusal()).toMatch(new RegExp(`^weir: the store ${path} cannot be trusted: `));
      writeFileSync(path, whole);
    }
    rmSync(path);
    expect(await refusal()).toContain(`${path} is missing although it was made before`);
    mkdirSync(path);
    expect(await refusal()).toContain(`the store ${path} cannot be trusted: `);
    rmSync(path, { recursive: true });
    writeFileSync(path, whole, { mode: 0o600 });
    const server = await startServer(dataDir, { args: ARGS });
    expect(await limitOf(server, 'user_7')).toBe(5);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('unreadable', async () => {
    await fill(dataDir);
    const path = join(dataDir, 'store.db');
    chmodSync(path, 0o000);
    // Root reads whatever it wants, unless that is taken from it.
    const drop = '--bounding-set=-dac_override,-dac_read_search';
    const lesser = process.getuid?.() === 0 ? ['setpriv', drop] : [];
    const args = [MAIN, '--port', '0', '--admin-port', '0', '--data-dir', dataDir, ...ARGS];
    const [command, ...rest] = [...lesser, process.execPath, ...args];
    const child = spawn(command, rest, { env: cleanEnvironment() as NodeJS.ProcessEnv });
    let said = '';
    child.stderr.on('data', (data) => {
      said += data;
    });
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect([code, said.trim().split('\n').length]).toEqual([1, 1]);
    expect(said).toMatch(new RegExp(`^weir: the (store|data directory) ${dataDir}`));
  });
});

function mountAt(path: string): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=3m,mode=0700', 'tmpfs', path]);
}

/** Only root can mount; where nobody may be skipped, the tests fail instead. */
function cannotMount(): boolean {
  const path = temporaryDirectory();
  try {
    mountAt(path);
    execFileSync('umount', [path]);
    return false;
  } catch {
    return process.env.CI === undefined;
  } finally {
    removeDirectory(path);
  }
}
const withoutMount = cannotMount();

/** A file system of its own for the data directory. */
function mounted(work: (mount: string) => Promise<void>) {
  return async () => {
    const mount = join(dataDir, 'mount');
    mkdirSync(mount);
    mountAt(mount);
    try {
      await work(mount);
    } finally {
      execFileSync('umount', ['--lazy', mount]);
    }
  };
}

/** Changes are refused with a 503, nothing of them is there, and checks go on. */
async function expectNoChange(server: Running): Promise<void> {
  const attempts: [Parameters<typeof operate>[1], Fields][] = [
    [
      'ratelimits.setOverride',
      { namespaceName: 'disk', identifier: 'refused', limit: 9, duration: 1_000 },
    ],
    [
      'ratelimits.setOverride',
      { namespaceName: 'disk', identifier: 'kept', limit: 9, duration: 1_000 },
    ],
    ['ratelimits.deleteOverride', { namespaceName: 'disk', identifier: 'kept' }],
    ['keys.create', { name: 'k', permissions: ['*'] }],
  ];
  for (const [operation, fields] of attempts) {
    const answer = await operate(server.port, operation, fields);
    expect([operation, answer.status]).toEqual([operation, 503]);
    expect(answer.headers['retry-after']).toBe('1');
    expect(errorOf(answer).message).toContain('the store cannot be written to just now');
  }
  const missing = { namespaceName: 'disk', identifier: 'missing' };
  expect((await operate(server.port, 'ratelimits.deleteOverride', missing)).status).toBe(404);
  expect([await limitOf(server, 'kept'), await limitOf(server, 'refused')]).toEqual([5, 1]);
  // A namespace that a check brings counts at once, and is made durable later.
  const body = { namespace: 'new', identifier: 'a', limit: 10, duration: LASTING_MS };
  const { remaining } = await check(server.port, body);
  expect((await check(server.port, body)).remaining).toBe(remaining - 1);
  expect((await operate(server.port, 'ratelimits.listNamespaces')).status).toBe(200);
}

async function expectRecovery(server: Running): Promise<void> {
  await until('changes are taken again', async () => {
    return (await set(server, 'refused')).status === 200;
  });
  expect(await limitOf(server, 'refused')).toBe(5);
  await until('the namespace of a check is durable', async () => {
    const { namespaces } = await done(server.port, 'ratelimits.listNamespaces');
    return (namespaces as Fields[]).some(({ name }) => name === 'new');
  });
}

const WRITES = 40;

/** Where no strace is installed, or may be attached, the one test with it is skipped. */
const withoutTrace = spawnSync('strace', ['-qq', '-e', 'trace=none', 'true']).status !== 0;

describe('a disk that fails while the server runs', () => {
  test.skipIf(withoutMount)(
    'because it is full: changes get a 503, checks go on, and all is well when there is room',
    mounted(async (mount) => {
      const directory = join(mount, 'data');
      const server = await startServer(directory, { args: ARGS });
      expect((await set(server, 'kept')).status).toBe(200);
      const filler = join(mount, 'filler');
      const fillUp = () => {
        execFileSync('sh', ['-c', `cat /dev/zero >> ${filler} 2>/dev/null || true`]);
      };
      // To the last byte, and once more when a change has failed, which empties the log.
      let attempts = 0;
      fillUp();
      await until('it is full', async () => {
        return (await set(server, `filling_${attempts++}`)).status === 503;
      });
      expect(statSync(join(directory, 'store.db-wal')).size).toBe(0);
      fillUp();
      await expectNoChange(server);
      rmSync(filler);
      await expectRecovery(server);
      for (let i = 0; i < WRITES; i++) expect((await set(server, `after_${i}`)).status).toBe(200);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      const again = await startServer(directory, { args: ARGS });
      expect([await limitOf(again, 'kept'), await limitOf(again, `after_${WRITES - 1}`)]).toEqual([
        5, 5,
      ]);
      expect(await again.stop()).toEqual({ code: 0, signal: null });
    }),
  );

  test.skipIf(withoutMount)(
    'because its files may not grow: the same',
    mounted(async (mount) => {
      const server = await startServer(join(mount, 'data'), { args: ARGS });
      expect((await set(server, 'kept')).status).toBe(200);
      const limitFiles = (bytes: string) => {
        execFileSync('prlimit', ['--pid', String(server.child.pid), `--fsize=${bytes}`]);
      };
      limitFiles('1:');
      await expectNoChange(server);
      limitFiles('unlimited:');
      await expectRecovery(server);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    }),
  );

  test.skipIf(withoutTrace)(
    'to make a change durable: it is refused, and does not come back after a crash',
    async () => {
      const server = await startServer(dataDir, { args: ARGS });
      expect((await set(server, 'kept')).status).toBe(200);
      const pid = String(server.child.pid);
      const calls = 'fsync,fdatasync';
      const options = [
        '-f',
        '-qq',
        '-e',
        `trace=${calls}`,
        '-e',
        `inject=${calls}:error=EIO:when=1`,
      ];
      const trace = spawn('strace', [...options, '-p', pid], { stdio: 'ignore' });
      const traced = new Promise((resolve) => trace.on('close', resolve));
      await until('it is traced', () => {
        return !/^TracerPid:\t0$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
      });
      const answer = await set(server, 'kept', { limit: 9 });
      expect([answer.status, errorOf(answer).message]).toEqual([
        503,
        expect.stringContaining('nothing was changed'),
      ]);
      server.child.kill('SIGKILL');
      await server.exited;
      await traced;
      const again = await startServer(dataDir, { args: ARGS });
      expect(await limitOf(again, 'kept')).toBe(5);
      expect(await again.stop()).toEqual({ code: 0, signal: null });
    },
  );

  test.skipIf(withoutMount)(
    'or is read-only at the start, which ends with one sentence',
    mounted(async (mount) => {
      dataDir = join(mount, 'data');
      await fill(dataDir);
      execFileSync('mount', ['-o', 'remount,ro', mount]);
      expect(await refusal()).toMatch(
        new RegExp(`^weir: the data directory ${dataDir} cannot be used: .*read-only`),
      );
      dataDir = join(mount, '..');
    }),
  );
});
