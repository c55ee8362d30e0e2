/** Disk failures at the start and at run time: changes are rejected, and nothing is lost. */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SHARDS } from '../../../src/core/constants.ts';
import { EXIT } from '../../../src/core/exit.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { errorIn, LONGEST_WINDOW_MS, readMetric, sendCheck } from '../../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../../support/operations.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import {
  CLI_PATH,
  cleanEnvironment,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  spawnServer,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const ARGS = ['--counters', '1024', '--workers', '1', '--acceptors', IS_LONG ? '2' : '1'];

const CUTS = trialCount(2, 50);
/** In the long form a multiple of the three files, so that each is damaged. */
const DAMAGES = trialCount(1, 120);
/** Changes after a disk had free space again. */
const WRITES = trialCount(5, 40);

let dataDir: string;
beforeEach(() => {
  dataDir = temporaryDirectory();
});
afterEach(() => removeDirectory(dataDir));

const setOverride = (server: ServerProcess, identifier: string, fields: Fields = {}) => {
  const body = {
    namespaceName: 'disk',
    identifier,
    limit: 5,
    duration: LONGEST_WINDOW_MS,
    ...fields,
  };
  return callOperation(server.port, 'ratelimits.setOverride', body);
};
const limitOf = async (server: ServerProcess, identifier: string) => {
  const body = { namespace: 'disk', identifier, limit: 1, duration: LONGEST_WINDOW_MS, cost: 0 };
  return (await sendCheck(server.port, body)).limit;
};

/** A data directory that tests copy. */
let template: string | undefined;
afterAll(() => {
  if (template !== undefined) removeDirectory(template);
});

/** Fills a data directory: a store with a record of each kind, and an empty write-ahead log. */
async function fill(directory: string): Promise<void> {
  if (template === undefined) {
    template = temporaryDirectory();
    const server = await startServer(template, { args: ARGS });
    for (let i = 0; i < 50; i++) expect((await setOverride(server, `user_${i}`)).status).toBe(200);
    expect((await setOverride(server, 'user_*')).status).toBe(200);
    await callOperationOk(server.port, 'keys.create', { name: 'k', permissions: ['*'] });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  }
  cpSync(template, directory, { recursive: true });
}

/** The content of a store, read through operations. */
async function readStoreContents(server: ServerProcess): Promise<unknown[]> {
  const { overrides } = await callOperationOk(server.port, 'ratelimits.exportOverrides', {
    limit: 1_000,
  });
  const { keys } = await callOperationOk(server.port, 'keys.list');
  const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
  return [
    overrides,
    (keys as Fields[]).map(({ keyId, name }) => [keyId, name]).slice(1),
    namespaces,
  ];
}

/** A serving server, or the message of a failed start. */
async function startOrError(directory: string): Promise<ServerProcess | string> {
  const server = await spawnServer(directory, { args: ARGS, env: { WEIR_ROOT_KEY: ROOT_KEY } });
  await waitUntil('it serves or has ended', () => {
    return server.child.exitCode !== null || server.stdout().includes('serves checks');
  });
  if (server.child.exitCode === null) return server;
  const exit = await server.exited;
  expect([exit, server.stdout()]).toEqual([{ code: EXIT.CANNOT_SERVE, signal: null }, '']);
  return server.stderr().trim();
}

/** The message of a start that must fail. */
async function startError(): Promise<string> {
  const message = await startOrError(dataDir);
  if (typeof message !== 'string') throw new Error('the server has started');
  expect(message.split('\n').length).toBe(1);
  return message;
}

describe('a start ends with one message if the store', () => {
  test(`is empty, truncated at ${CUTS} places, missing, or a directory`, async () => {
    await fill(dataDir);
    const path = join(dataDir, 'store.db');
    const whole = readFileSync(path);
    const { size } = statSync(path);
    for (let cut = 0; cut < CUTS; cut++) {
      truncateSync(path, Math.floor((size * cut) / CUTS));
      expect(await startError()).toMatch(
        new RegExp(`^weir: the store ${path} cannot be trusted: `),
      );
      writeFileSync(path, whole);
    }
    rmSync(path);
    expect(await startError()).toContain(`${path} is missing although it was created before`);
    mkdirSync(path);
    expect(await startError()).toContain(`${path} is a directory, not a regular file`);
    rmSync(path, { recursive: true });
    writeFileSync(path, whole, { mode: 0o600 });
    const server = await startServer(dataDir, { args: ARGS });
    expect(await limitOf(server, 'user_7')).toBe(5);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    recordMeasurement(
      'P4',
      'store truncated, missing, or no file',
      `${CUTS + 2} starts`,
      'all rejected',
    );
  }, 300_000);

  test(`has bit flips, cuts or overwrites in any file, ${DAMAGES} times, unless no data is lost`, async () => {
    const seed = newSeed();
    const below = seededRandom(seed);
    await fill(dataDir);
    // A kill leaves records in the write-ahead log.
    const server = await startServer(dataDir, { args: ARGS });
    for (let i = 50; i < 60; i++) expect((await setOverride(server, `user_${i}`)).status).toBe(200);
    const before = await readStoreContents(server);
    server.child.kill('SIGKILL');
    await server.exited;
    // Files of counters are left out: damage to them fails no start (see
    // `test/engine/memory/checkpoint/checkpoint.test.ts`).
    const names = readdirSync(dataDir).filter((name) => !name.startsWith('counters-'));
    const files = names.map((name) => join(dataDir, name));
    const whole = new Map(files.map((file) => [file, readFileSync(file)]));
    let rejected = 0;
    for (let i = 0; i < DAMAGES; i++) {
      const file = files.filter((one) => whole.get(one)!.length > 0)[(i + seed) % 3];
      const bytes = Buffer.from(whole.get(file)!);
      const at = below(bytes.length);
      const kind = below(3);
      if (kind === 0) bytes[at] ^= 1 << below(8);
      else if (kind === 1)
        bytes.fill(below(256), at, Math.min(at + 1 + below(5_000), bytes.length));
      writeFileSync(file, kind === 2 ? bytes.subarray(0, at) : bytes);
      const found = await startOrError(dataDir);
      if (typeof found === 'string') {
        rejected++;
        const message = new RegExp(`^weir: (the store|the data directory|${dataDir})`);
        expect([file, at, kind, found]).toEqual([file, at, kind, expect.stringMatching(message)]);
        expect(found).toContain(dataDir);
      } else {
        const after = await readStoreContents(found);
        expect([file, at, kind, await found.stop()]).toEqual([
          file,
          at,
          kind,
          { code: 0, signal: null },
        ]);
        expect([file, at, kind, after]).toEqual([file, at, kind, before]);
      }
      for (const name of readdirSync(dataDir)) rmSync(join(dataDir, name));
      for (const [path, content] of whole) writeFileSync(path, content, { mode: 0o600 });
    }
    const measured = `${rejected} rejected, ${DAMAGES - rejected} complete, 0 empty; seed ${seed}`;
    recordMeasurement('P4', 'damaged files', `${DAMAGES} starts`, measured);
  }, 900_000);

  test('is below a file, or in a directory where no file can be created', async () => {
    const file = join(dataDir, 'file');
    writeFileSync(file, '');
    const outer = dataDir;
    for (const path of [join(file, 'data'), ...(IS_LONG ? ['/proc/weir', '/dev/null'] : [])]) {
      dataDir = path;
      expect(await startError()).toMatch(
        new RegExp(`^weir: the data directory ${path} cannot be used`),
      );
    }
    dataDir = outer;
  });

  test('is unreadable', async () => {
    await fill(dataDir);
    const path = join(dataDir, 'store.db');
    chmodSync(path, 0o000);
    // Root can read every file, unless it drops these capabilities.
    const drop = '--bounding-set=-dac_override,-dac_read_search';
    const unprivileged = process.getuid?.() === 0 ? ['setpriv', drop] : [];
    const args = [CLI_PATH, '--port', '0', '--admin-port', '0', '--data-dir', dataDir, ...ARGS];
    const [command, ...rest] = [...unprivileged, process.execPath, ...args];
    const child = spawn(command, rest, { env: cleanEnvironment() as NodeJS.ProcessEnv });
    let stderr = '';
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect([code, stderr.trim().split('\n').length]).toEqual([EXIT.CANNOT_SERVE, 1]);
    expect(stderr).toMatch(new RegExp(`^weir: the (store|data directory) ${dataDir}`));
  });
});

function mountAt(path: string): void {
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=3m,mode=0700', 'tmpfs', path]);
}

/** Only root can mount. In CI, where no test may be skipped, the tests fail instead. */
function isMountUnavailable(): boolean {
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
const withoutMount = isMountUnavailable();

/** Runs a test with its own file system, below the data directory. */
function withMount(work: (mount: string) => Promise<void>) {
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

/** Changes get a 503 and have no effect, and checks are answered. */
async function expectNoChange(server: ServerProcess): Promise<void> {
  const attempts: [Parameters<typeof callOperation>[1], Fields][] = [
    [
      'ratelimits.setOverride',
      { namespaceName: 'disk', identifier: 'rejected', limit: 9, duration: 1_000 },
    ],
    [
      'ratelimits.setOverride',
      { namespaceName: 'disk', identifier: 'existing', limit: 9, duration: 1_000 },
    ],
    ['ratelimits.deleteOverride', { namespaceName: 'disk', identifier: 'existing' }],
    ['keys.create', { name: 'k', permissions: ['*'] }],
  ];
  for (const [operation, fields] of attempts) {
    const response = await callOperation(server.port, operation, fields);
    expect([operation, response.status]).toEqual([operation, 503]);
    expect(response.headers['retry-after']).toBe('1');
    expect(errorIn(response).message).toContain('the store cannot be written to at the moment');
  }
  const missing = { namespaceName: 'disk', identifier: 'missing' };
  expect((await callOperation(server.port, 'ratelimits.deleteOverride', missing)).status).toBe(404);
  expect([await limitOf(server, 'existing'), await limitOf(server, 'rejected')]).toEqual([5, 1]);
  // A new namespace in a check is counted at once, and becomes durable later.
  const body = { namespace: 'new', identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
  const { remaining } = await sendCheck(server.port, body);
  expect((await sendCheck(server.port, body)).remaining).toBe(remaining - 1);
  expect((await callOperation(server.port, 'ratelimits.listNamespaces')).status).toBe(200);
}

async function expectRecovery(server: ServerProcess): Promise<void> {
  await waitUntil('changes are accepted again', async () => {
    return (await setOverride(server, 'rejected')).status === 200;
  });
  expect(await limitOf(server, 'rejected')).toBe(5);
  await waitUntil('the namespace of the check is durable', async () => {
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    return (namespaces as Fields[]).some(({ name }) => name === 'new');
  });
}

/** Tests are skipped if strace is missing or may not attach; in CI they fail instead. */
const withoutTrace =
  spawnSync('strace', ['-qq', '-e', 'trace=none', 'true']).status !== 0 &&
  process.env.CI === undefined;

/** Makes system calls of a server fail until the server or the trace ends. */
async function injectSyscallFault({ child: { pid } }: ServerProcess, calls: string, fault: string) {
  const options = ['-f', '-qq', '-e', `trace=${calls}`, '-e', `inject=${calls}:${fault}`];
  const trace = spawn('strace', [...options, '-p', String(pid)], { stdio: 'ignore' });
  const ended = new Promise((resolve) => trace.on('close', resolve));
  await waitUntil('the server is traced', () => {
    return !/^TracerPid:\t0$/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  });
  const end = () => {
    trace.kill('SIGINT');
    return ended;
  };
  return { ended, end };
}

describe('while the server runs,', () => {
  test.skipIf(withoutMount)(
    'a full disk makes changes fail with 503; checks go on, and changes work again with free space',
    withMount(async (mount) => {
      const directory = join(mount, 'data');
      const server = await startServer(directory, { args: ARGS });
      expect((await setOverride(server, 'existing')).status).toBe(200);
      const filler = join(mount, 'filler');
      const fillUp = () => {
        execFileSync('sh', ['-c', `cat /dev/zero >> ${filler} 2>/dev/null || true`]);
      };
      // Fill it again after a failed change, because that empties the write-ahead log.
      let attempts = 0;
      fillUp();
      await waitUntil('the disk is full', async () => {
        return (await setOverride(server, `filling_${attempts++}`)).status === 503;
      });
      expect(statSync(join(directory, 'store.db-wal')).size).toBe(0);
      fillUp();
      await expectNoChange(server);
      rmSync(filler);
      await expectRecovery(server);
      for (let i = 0; i < WRITES; i++) {
        expect((await setOverride(server, `after_${i}`)).status).toBe(200);
      }
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      const again = await startServer(directory, { args: ARGS });
      expect([
        await limitOf(again, 'existing'),
        await limitOf(again, `after_${WRITES - 1}`),
      ]).toEqual([5, 5]);
      expect(await again.stop()).toEqual({ code: 0, signal: null });
    }),
  );

  // A file system with a file open for writing cannot be remounted read-only.
  const isReadOnly = (server: ServerProcess) => {
    return injectSyscallFault(server, 'pwrite64,ftruncate', 'error=EROFS');
  };
  const hasSizeLimit = async (server: ServerProcess) => {
    const limitFiles = (bytes: string) => {
      execFileSync('prlimit', ['--pid', String(server.child.pid), `--fsize=${bytes}`]);
    };
    limitFiles('1:');
    return { end: async () => limitFiles('unlimited:') };
  };
  test.skipIf(withoutTrace).each([
    ['a file size limit', hasSizeLimit],
    ['a read-only disk', isReadOnly],
  ] as const)('%s makes changes fail with 503, and they work again later', async (_, begin) => {
    const server = await startServer(dataDir, { args: ARGS });
    expect((await setOverride(server, 'existing')).status).toBe(200);
    const fault = await begin(server);
    await expectNoChange(server);
    await fault.end();
    await expectRecovery(server);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('no change to a store that was removed, moved or replaced is acknowledged', async () => {
    const removals: ((directory: string) => void)[] = [
      (directory) => renameSync(directory, `${directory}.moved`),
      (directory) => rmSync(join(directory, 'store.db-wal')),
      (directory) => {
        const path = join(directory, 'store.db');
        const copy = readFileSync(path);
        rmSync(path);
        writeFileSync(path, copy);
      },
    ];
    if (IS_LONG) {
      removals.push((directory) => rmSync(directory, { recursive: true }));
      removals.push((directory) => rmSync(join(directory, 'store.db')));
    }
    for (const [i, remove] of removals.entries()) {
      const directory = join(dataDir, String(i));
      const server = await startServer(directory, { args: ARGS });
      expect((await setOverride(server, 'existing')).status).toBe(200);
      remove(directory);
      await expectNoChange(server);
      await waitUntil('the log reports the failure', () => {
        return server.stderr().includes('the store cannot be written to');
      });
      server.child.kill('SIGKILL');
      await server.exited;
    }
    const trials = `${removals.length} ways`;
    recordMeasurement(
      'P4',
      'store removed at run time',
      trials,
      'checks answered, changes 503, 0 acknowledged',
    );
  });

  test('symbolic links in place of counter files are not followed, and each failure is counted', async () => {
    const server = await startServer(dataDir, { args: ARGS });
    const target = join(dataDir, 'target');
    writeFileSync(target, 'original', { mode: 0o644 });
    const paths = Array.from({ length: SHARDS }, (_, shard) => [0, 1].map((n) => `${shard}.${n}`))
      .flat()
      .map((name) => join(dataDir, `counters-${name}`));
    for (const path of paths) {
      // Atomically: a worker would create the file again otherwise.
      symlinkSync(target, `${path}.link`);
      renameSync(`${path}.link`, path);
    }
    await waitUntil('each shard has failed', async () => {
      for (let id = 0; id < 50; id++) expect(await limitOf(server, `user_${id}`)).toBe(1);
      const body = { namespace: 'disk', identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
      expect((await sendCheck(server.port, body)).success).toBeDefined();
      const failures = await readMetric(server.adminUrl, 'weir_checkpoint_failures_total');
      return failures >= SHARDS && server.stderr().includes('"error":"ELOOP"');
    });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    expect([readFileSync(target, 'utf8'), statSync(target).mode & 0o777]).toEqual([
      'original',
      0o644,
    ]);
    const again = await startServer(dataDir, { args: ARGS });
    await waitUntil('the log reports the links', () =>
      again.stderr().includes('is a symbolic link'),
    );
    expect(await again.stop()).toEqual({ code: 0, signal: null });
    expect(readFileSync(target, 'utf8')).toBe('original');
    expect(paths.filter((path) => existsSync(path) && !lstatSync(path).isFile())).toEqual([]);
  });

  test.skipIf(withoutTrace)(
    'a change whose fsync fails is rejected, and does not reappear after a crash',
    async () => {
      const server = await startServer(dataDir, { args: ARGS });
      expect((await setOverride(server, 'existing')).status).toBe(200);
      const trace = await injectSyscallFault(server, 'fsync,fdatasync', 'error=EIO:when=1');
      const response = await setOverride(server, 'existing', { limit: 9 });
      expect([response.status, errorIn(response).message]).toEqual([
        503,
        expect.stringContaining('nothing was changed'),
      ]);
      server.child.kill('SIGKILL');
      await server.exited;
      await trace.ended;
      const again = await startServer(dataDir, { args: ARGS });
      expect(await limitOf(again, 'existing')).toBe(5);
      expect(await again.stop()).toEqual({ code: 0, signal: null });
    },
  );

  test.skipIf(withoutMount)(
    'a start on a read-only disk ends with one message',
    withMount(async (mount) => {
      dataDir = join(mount, 'data');
      await fill(dataDir);
      execFileSync('mount', ['-o', 'remount,ro', mount]);
      expect(await startError()).toMatch(
        new RegExp(`^weir: the data directory ${dataDir} cannot be used: .*read-only`),
      );
      dataDir = join(mount, '..');
    }),
  );
});
