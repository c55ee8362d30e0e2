/** The Unix socket beside the port: its path, its file mode, and its removal. */

import {
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { EXIT, type ExitCode } from '../../src/core/exit.ts';
import { UnixSocket } from '../../src/runtime/unix-socket.ts';
import { connectAndCheck, measureSpread } from '../support/acceptor-spread.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import {
  exchange,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  repeatUntilClosed,
  requestBytes,
} from '../support/http.ts';
import { removeDirectory, spawnServer, temporaryDirectory, waitUntil } from '../support/server.ts';
import { SMALL as ONE } from '../support/test-server.ts';

const SMALL = [...ONE, '--acceptors', '2'];
const own = useDataDirectory(SMALL);

let directory = '';
let path = '';
beforeEach(() => {
  directory = temporaryDirectory();
  path = join(directory, 'weir.sock');
  return () => removeDirectory(directory);
});
const start = (more: string[] = []) => own.start({ args: [...SMALL, '--socket', path, ...more] });

const modeOf = (file: string) => statSync(file).mode & 0o7777;

/** Sends a request over the socket. */
async function sendBySocket(method: string, route: string, body = ''): Promise<ParsedResponse> {
  return (await exchange(connect({ path }), [requestBytes({ method, path: route, body })]))[0];
}
const CHECK = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
const sendCheckBySocket = () => sendBySocket('POST', '/v1/ratelimits.limit', JSON.stringify(CHECK));

/** The sentence that a failed start prints. */
async function startError(args: string[], code: ExitCode = EXIT.CANNOT_SERVE): Promise<string> {
  const failed = await spawnServer(join(directory, 'data'), { args: [...SMALL, ...args] });
  expect(await failed.exited).toEqual({ code, signal: null });
  expect([failed.stdout(), failed.stderr().trim().split('\n').length]).toEqual(['', 1]);
  return failed.stderr();
}

describe('the Unix socket', () => {
  test('has all routes of the port, counts in the same counters, and is in the startup message', async () => {
    path = join(directory, "it's here.sock");
    const server = await start();
    expect([modeOf(path), lstatSync(path).isSocket()]).toEqual([0o660, true]);
    const quoted = path.replace("'", "'\\''");
    expect(server.stdout()).toContain(` by curl --unix-socket '${quoted}' http://localhost`);
    const responses = [await sendCheckBySocket(), await sendCheckBySocket()].map(({ body }) =>
      JSON.parse(body),
    );
    expect(responses).toMatchObject([{ remaining: 9 }, { remaining: 8 }]);
    expect(await server.check(CHECK)).toMatchObject({ remaining: 7 });
    expect(JSON.parse((await sendCheckBySocket()).body)).toMatchObject({ remaining: 6 });

    const override = { namespaceName: 'default', identifier: 'over', limit: 3, duration: 60_000 };
    const made = await sendBySocket('POST', '/v1/ratelimits.setOverride', JSON.stringify(override));
    expect([made.status, made.body]).toEqual([200, expect.stringContaining('rlor_')]);
    expect(await server.check({ ...CHECK, identifier: 'over' })).toMatchObject({
      limit: 3,
    });
    expect((await sendBySocket('GET', '/nowhere')).status).toBe(404);
    const { docs } = JSON.parse((await sendBySocket('GET', '/nowhere')).body).error;
    expect(docs).toContain(`${server.url}/`);
    expect((await sendBySocket('GET', new URL(docs).pathname)).status).toBe(200);
  });

  test('distributes its connections over the acceptors, together with those of the port', async () => {
    const server = await start();
    const tcp = { host: '127.0.0.1', port: server.port };
    for (let i = 0; i < 5; i++) {
      expect(await measureSpread([{ path }, { path }])).toEqual([1, 1]);
      expect(await measureSpread([{ path }, tcp, tcp, { path }])).toEqual([2, 2]);
    }
    const { socket } = await connectAndCheck({ path });
    expect(await server.metric('weir_connections')).toBeGreaterThanOrEqual(1);
    socket.destroy();
  });

  test.each([
    ['0600', 0o600],
    ['666', 0o666],
  ])('has the configured file mode: %s', async (setting, mode) => {
    await start(['--socket-mode', setting]);
    expect(modeOf(path)).toBe(mode);
  });

  test('is closed by a drain and removed at the stop; open connections get responses', async () => {
    const server = await start(['--drain-ms', '60000']);
    const { socket } = await connectAndCheck({ path });
    const request = requestBytes({ method: 'GET', path: '/nowhere' });
    socket.removeAllListeners('close');
    const responses = repeatUntilClosed(socket, request);
    server.child.kill('SIGTERM');
    await waitUntil('new connections are rejected', () =>
      sendCheckBySocket().then(
        () => false,
        () => true,
      ),
    );
    socket.write(request);
    expect(await server.exited).toEqual({ code: 0, signal: null });
    const { answers, rest } = responses();
    expect(rest).toBe('');
    expect(answers.every(({ status }) => status === 404)).toBe(true);
    expect(answers.at(-1)?.headers.connection).toBe('close');
    expect(existsSync(path)).toBe(false);
  });

  test('left by a killed weir is replaced, and is not removed where another file replaced it', async () => {
    const killed = await start();
    killed.child.kill('SIGKILL');
    await killed.exited;
    expect(lstatSync(path).isSocket()).toBe(true);
    const server = await start();
    expect((await sendCheckBySocket()).status).toBe(200);
    removeDirectory(path);
    writeFileSync(path, 'mine');
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    expect(readFileSync(path, 'utf8')).toBe('mine');
  });
});

describe('a start is stopped by one sentence that names the setting', () => {
  test('where a server listens on the path, which keeps serving', async () => {
    await start();
    const sentence = await startError(['--socket', path]);
    expect(sentence).toContain('WEIR_SOCKET must be a path in a directory');
    expect(sentence).toContain(`got "${path}": a server listens on it`);
    expect((await sendCheckBySocket()).status).toBe(200);
  });

  test('where any other server listens on it, whose socket is not removed', async () => {
    const other = createServer(() => {});
    await new Promise<void>((resolve) => other.listen(path, resolve));
    const reserved = UnixSocket.reserve('WEIR_SOCKET', path);
    await expect(reserved).rejects.toThrow('a server listens on it');
    expect(lstatSync(path).isSocket()).toBe(true);
    other.close();
  });

  test('where two instances start at the same time', async () => {
    const both = await Promise.all(
      ['a', 'b'].map((name) => {
        return spawnServer(join(directory, name), { args: [...SMALL, '--socket', path] });
      }),
    );
    own.started.push(...both);
    await waitUntil('one of them serves and the other has ended', () => {
      const serving = both.filter((server) => server.stdout().includes('serves checks'));
      return (
        serving.length === 1 && both.some((server) => server.child.exitCode === EXIT.CANNOT_SERVE)
      );
    });
    expect(both.map((server) => server.stderr()).join('')).toMatch(
      /WEIR_SOCKET must.*(another weir uses it|a server listens on it)/,
    );
    const serving = both.find((server) => server.child.exitCode === null);
    expect((await sendBySocket('GET', '/nowhere')).body).toContain(serving?.url);
  });

  test.each(['file', 'directory', 'link'])(
    'where the path is a %s, which is not changed',
    async (kind) => {
      const other = join(directory, 'other');
      if (kind === 'file') writeFileSync(path, 'unchanged');
      else if (kind === 'directory') mkdirSync(path);
      else symlinkSync(other, path);
      if (kind === 'link') writeFileSync(other, 'unchanged');
      await expect(UnixSocket.reserve('WEIR_SOCKET', path)).rejects.toThrow('it is not a socket');
      expect(lstatSync(path).isSocket()).toBe(false);
      if (kind !== 'directory') expect(readFileSync(path, 'utf8')).toBe('unchanged');
    },
  );

  test('where the path is too long, or its directory is missing', async () => {
    const long = join(directory, 'x'.repeat(108 - directory.length - 1));
    expect(long.length).toBe(108);
    const sentence = await startError(['--socket', long], EXIT.USAGE);
    expect(sentence).toContain('WEIR_SOCKET must be a path of at most 107 bytes; got 108 bytes: ');
    path = long.slice(0, -1);
    await start();
    expect((await sendCheckBySocket()).status).toBe(200);
    const missing = join(directory, 'missing', 'weir.sock');
    await expect(UnixSocket.reserve('WEIR_SOCKET', missing)).rejects.toThrow(
      /WEIR_SOCKET must be .*missing.*ENOENT/,
    );
  });
});
