/** Disk failures at the start and at run time: changes are rejected, and nothing is lost. */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { EXIT } from '../../../src/core/exit.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { errorIn, LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../../support/operations.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  spawnServer,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const ARGS = ['--counters', '1024', '--workers', '1', '--acceptors', IS_LONG ? '2' : '1'];

/** In the long form a multiple of the three files, so that each is damaged. */
const DAMAGES = trialCount(1, 120);
/** Changes after a disk had free space again. */
const WRITES = trialCount(5, 40);

const own = useDataDirectory(ARGS);
const start = async (directory = own.dataDir) => {
  const server = await startServer(directory, { args: ARGS });
  own.started.push(server);
  return server;
};
const stop = async (server: ServerProcess) => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
};
/** Files of the data directory whose damage fails a start. */
const storeFiles = () => {
  const names = readdirSync(own.dataDir).filter((name) => !name.startsWith('counters-'));
  return names.map((name) => join(own.dataDir, name));
};

const setOverride = (server: ServerProcess, identifier: string, limit = 5) => {
  const fields = { namespaceName: 'disk', identifier, limit, duration: LONGEST_WINDOW_MS };
  return callOperation(server.port, 'ratelimits.setOverride', fields);
};
const setExisting = async (server: ServerProcess, identifier = 'existing') => {
  expect((await setOverride(server, identifier)).status).toBe(200);
};
const limitOf = async (server: ServerProcess, identifier: string) => {
  const body = { namespace: 'disk', identifier, limit: 1, duration: LONGEST_WINDOW_MS, cost: 0 };
  return (await sendCheck(server.port, body)).limit;
};

/** Fills a data directory: a store with a record of each kind, and an empty write-ahead log. */
async function fill(directory: string): Promise<void> {
  const server = await start(directory);
  for (let i = 0; i < 50; i++) await setExisting(server, `user_${i}`);
  await setExisting(server, 'user_*');
  await callOperationOk(server.port, 'keys.create', { name: 'k', permissions: ['*'] });
  await stop(server);
}

/** The content of a store, read through operations. */
async function readStoreContents(server: ServerProcess): Promise<unknown[]> {
  const all = { limit: 1_000 };
  const { overrides } = await callOperationOk(server.port, 'ratelimits.exportOverrides', all);
  const { keys } = await callOperationOk(server.port, 'keys.list');
  const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
  const made = (keys as Fields[]).map(({ keyId, name }) => [keyId, name]).slice(1);
  return [overrides, made, namespaces];
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
async function startError(directory = own.dataDir): Promise<string> {
  const message = await startOrError(directory);
  if (typeof message !== 'string') throw new Error('the server has started');
  expect(message.split('\n').length).toBe(1);
  return message;
}

test(`a start with bit flips, cuts or overwrites in any file ends with one message, ${DAMAGES} times, unless no data is lost`, async () => {
  const seed = newSeed();
  const below = seededRandom(seed);
  await fill(own.dataDir);
  // A kill leaves records in the write-ahead log.
  const server = await start();
  for (let i = 50; i < 60; i++) await setExisting(server, `user_${i}`);
  const before = await readStoreContents(server);
  server.child.kill('SIGKILL');
  await server.exited;
  const files = storeFiles();
  const whole = new Map(files.map((file) => [file, readFileSync(file)]));
  let rejected = 0;
  for (let i = 0; i < DAMAGES; i++) {
    const file = files.filter((one) => whole.get(one)!.length > 0)[(i + seed) % 3];
    const bytes = Buffer.from(whole.get(file)!);
    const at = below(bytes.length);
    const kind = below(3);
    if (kind === 0) bytes[at] ^= 1 << below(8);
    else if (kind === 1) bytes.fill(below(256), at, Math.min(at + 1 + below(5_000), bytes.length));
    writeFileSync(file, kind === 2 ? bytes.subarray(0, at) : bytes);
    const found = await startOrError(own.dataDir);
    if (typeof found === 'string') {
      rejected++;
      const message = new RegExp(`^weir: (the store|the data directory|${own.dataDir})`);
      expect([file, at, kind, found]).toEqual([file, at, kind, expect.stringMatching(message)]);
      expect(found).toContain(own.dataDir);
    } else {
      const after = await readStoreContents(found);
      await stop(found);
      expect([file, at, kind, after]).toEqual([file, at, kind, before]);
    }
    for (const name of readdirSync(own.dataDir)) rmSync(join(own.dataDir, name));
    for (const [path, content] of whole) writeFileSync(path, content, { mode: 0o600 });
  }
  const measured = `${rejected} rejected, ${DAMAGES - rejected} complete, 0 empty; seed ${seed}`;
  recordMeasurement('P4', 'damaged files', `${DAMAGES} starts`, measured);
}, 900_000);

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
    const mount = join(own.dataDir, 'mount');
    mkdirSync(mount);
    mountAt(mount);
    try {
      await work(mount);
    } finally {
      execFileSync('umount', ['--lazy', mount]);
    }
  };
}

function fillDisk(filler: string): void {
  execFileSync('sh', ['-c', `cat /dev/zero >> ${filler} 2>/dev/null || true`]);
}

const readiness = async (server: ServerProcess) => {
  const response = await fetch(`${server.adminUrl}/readyz`);
  const { status, reasons = [] } = (await response.json()) as {
    status: string;
    reasons?: string[];
  };
  return { http: response.status, status, reasons };
};

/** Changes get a 503 and have no effect, and checks are answered. */
async function expectNoChange(server: ServerProcess): Promise<void> {
  const remove = (identifier: string) => {
    const names = { namespaceName: 'disk', identifier };
    return callOperation(server.port, 'ratelimits.deleteOverride', names);
  };
  const attempts = [
    () => setOverride(server, 'rejected', 9),
    () => setOverride(server, 'existing', 9),
    () => remove('existing'),
    () => callOperation(server.port, 'keys.create', { name: 'k', permissions: ['*'] }),
  ];
  for (const attempt of attempts) {
    const response = await attempt();
    expect(response).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect(errorIn(response).message).toContain('the store cannot be written to at the moment');
  }
  expect((await remove('missing')).status).toBe(404);
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
      const server = await start(directory);
      await setExisting(server);
      const filler = join(mount, 'filler');
      const fillUp = () => fillDisk(filler);
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
      for (let i = 0; i < WRITES; i++) await setExisting(server, `after_${i}`);
      await stop(server);
      const again = await start(directory);
      const limits = [
        await limitOf(again, 'existing'),
        await limitOf(again, `after_${WRITES - 1}`),
      ];
      expect(limits).toEqual([5, 5]);
      await stop(again);
    }),
  );

  test.skipIf(withoutMount)(
    'a full disk is named in the log and in /readyz, with one line a minute, until it has space again',
    withMount(async (mount) => {
      const directory = join(mount, 'data');
      const server = await start(directory);
      await setExisting(server);
      const filler = join(mount, 'filler');
      fillDisk(filler);
      const check = (identifier: string) => {
        const body = { namespace: 'new', identifier, limit: 9, duration: LONGEST_WINDOW_MS };
        return sendCheck(server.port, body);
      };
      const files = ['store.db', 'analytics.db', ''].map((name) => join(directory, name));
      let sent = 0;
      // A failure empties the write-ahead log, and a change may fit then: the disk is filled again,
      // and the files need not all fail at one time.
      const named = new Set<string>();
      await waitUntil('each file has failed, and checkpoints for seconds', async () => {
        fillDisk(filler);
        for (let i = 0; i < 20; i++) await check(`user_${sent++}`);
        await setOverride(server, `filling_${sent}`);
        const { http, status, reasons } = await readiness(server);
        if (reasons.length > 0) expect([http, status]).toEqual([200, 'degraded']);
        for (const file of files) {
          const fault = `disk: ${file} cannot be written (ENOSPC); `;
          if (reasons.some((reason) => reason.startsWith(fault))) named.add(file);
        }
        const isOld = /the last checkpoint is ([3-9]|\d\d) s old/.test(reasons.join());
        return isOld && named.size === files.length;
      });
      const lines = server
        .stderr()
        .split('\n')
        .filter((line) => /cannot be written/.test(line));
      expect(lines.length).toBe(files.length);
      for (const line of lines) expect(JSON.parse(line)).toMatchObject({ error: 'ENOSPC' });
      expect(server.stderr()).toContain(`"path":"${files[0]}"`);
      expect(server.stderr()).not.toMatch(/rollback|stack/);
      rmSync(filler);
      await waitUntil('it is ready', async () => (await readiness(server)).status === 'ready');
      expect(server.stderr()).toContain('changes are written again');
      await stop(server);
    }),
  );

  test.skipIf(withoutMount)(
    'a namespace that is first used on a full disk counts checks, and is stored when there is space',
    withMount(async (mount) => {
      const directory = join(mount, 'data');
      const server = await start(directory);
      await setExisting(server);
      const filler = join(mount, 'filler');
      fillDisk(filler);
      const body = { namespace: 'new', identifier: 'a', limit: 9, duration: LONGEST_WINDOW_MS };
      await waitUntil('the store fails', async () => {
        fillDisk(filler);
        return (await setOverride(server, 'filling')).status === 503;
      });
      fillDisk(filler);
      const first = await sendCheck(server.port, body);
      const metric = 'weir_decisions_total{namespace="new",outcome="allowed"}';
      const metrics = async () => (await fetch(`${server.adminUrl}/metrics`)).text();
      const list = { namespaceName: 'new' };
      const listed = await callOperation(server.port, 'ratelimits.listOverrides', list);
      expect([listed.status, (await metrics()).includes(metric)]).toEqual([404, false]);
      rmSync(filler);
      await waitUntil('the namespace is stored', async () => {
        const again = await callOperation(server.port, 'ratelimits.listOverrides', list);
        return again.status === 200;
      });
      const second = await sendCheck(server.port, body);
      expect(first.remaining - second.remaining).toBe(1);
      expect(await metrics()).toContain(`${metric} 2\n`);
      await stop(server);
    }),
  );

  test.skipIf(withoutMount)(
    'a start on a full disk ends with one message that names ENOSPC',
    withMount(async (mount) => {
      const directory = join(mount, 'data');
      fillDisk(join(mount, 'filler'));
      mkdirSync(directory);
      expect(await startError(directory)).toBe(
        `weir: the data directory ${directory} cannot be used: ENOSPC: no space left on device`,
      );
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
    const server = await start();
    await setExisting(server);
    const fault = await begin(server);
    await expectNoChange(server);
    await fault.end();
    await expectRecovery(server);
    await stop(server);
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
      const directory = join(own.dataDir, String(i));
      const server = await start(directory);
      await setExisting(server);
      remove(directory);
      await expectNoChange(server);
      await waitUntil('the log reports the failure', () => {
        return server.stderr().includes('the store cannot be written to');
      });
      server.child.kill('SIGKILL');
      await server.exited;
    }
    const measured = 'checks answered, changes 503, 0 acknowledged';
    recordMeasurement('P4', 'store removed at run time', `${removals.length} ways`, measured);
  });

  test.skipIf(withoutTrace)(
    'a change whose fsync fails is rejected, and does not reappear after a crash',
    async () => {
      const server = await start();
      await setExisting(server);
      const trace = await injectSyscallFault(server, 'fsync,fdatasync', 'error=EIO:when=1');
      const response = await setOverride(server, 'existing', 9);
      expect(response.status).toBe(503);
      expect(errorIn(response).message).toContain('nothing was changed');
      server.child.kill('SIGKILL');
      await server.exited;
      await trace.ended;
      const again = await start();
      expect(await limitOf(again, 'existing')).toBe(5);
      await stop(again);
    },
  );

  test.skipIf(withoutMount)(
    'a start on a read-only disk ends with one message',
    withMount(async (mount) => {
      const directory = join(mount, 'data');
      await fill(directory);
      execFileSync('mount', ['-o', 'remount,ro', mount]);
      expect(await startError(directory)).toMatch(
        new RegExp(`^weir: the data directory ${directory} cannot be used: .*read-only`),
      );
    }),
  );
});
