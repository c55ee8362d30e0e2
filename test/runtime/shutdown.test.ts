/** SIGTERM, and failures of an acceptor. */

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { errorIn, LONGEST_WINDOW_MS, repeatUntilClosed, requestBytes } from '../support/http.ts';
import { DECIDE_MODES, spawnServer, waitUntil } from '../support/server.ts';

const FAULT = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
const SMALL = ['--counters', '1024', '--acceptors', '2', '--workers', '1'];
const CHECK = { identifier: 'inflight', limit: 10, duration: LONGEST_WINDOW_MS };
const own = useDataDirectory(SMALL);

/** Starts a server and causes a fault in its first acceptor. */
const startFaulty = async (fault: string, args: string[]) => {
  const file = join(own.dataDir, 'strike');
  const env = { FAULT: fault, FAULT_FILE: file };
  const server = await own.start({ args, execArgv: ['--import', FAULT], env });
  writeFileSync(file, '');
  await waitUntil('the fault is injected', () => server.stderr().includes('fault injected'));
  return server;
};

describe('SIGTERM', () => {
  test.each(DECIDE_MODES)(
    'answers requests in flight, closes connections and exits with 0, decided %s',
    async (mode) => {
      // It drains until the connections are closed; on a busy machine that takes a while.
      const args = [...SMALL, '--decide', mode, '--drain-ms', '60000'];
      const server = await own.start({ args });
      const whole = requestBytes({ body: JSON.stringify(CHECK) });
      const sockets = Array.from({ length: 20 }, () => connect(server.port, '127.0.0.1'));
      const responses = sockets.map((socket) => repeatUntilClosed(socket, whole));
      await Promise.all(sockets.map((socket) => once(socket, 'connect')));
      // When the signal comes, half of them have sent a part of a request, and half are idle.
      for (const [i, socket] of sockets.entries()) {
        if (i % 2 === 0) socket.write(whole.subarray(0, whole.length - 5));
      }
      await server.check({ identifier: 'x', limit: 1, duration: 1_000 });
      server.child.kill('SIGTERM');
      await waitUntil('it is no longer ready', async () => {
        return (await fetch(`${server.adminUrl}/readyz`)).status === 503;
      });
      expect((await fetch(`${server.adminUrl}/livez`)).status).toBe(200);
      await waitUntil('new connections are refused', () => {
        return new Promise((resolve) => {
          const socket = connect(server.port, '127.0.0.1', () => resolve(false));
          socket.on('connect', () => socket.destroy());
          socket.on('error', (error) => resolve('code' in error && error.code === 'ECONNREFUSED'));
        });
      });
      for (const [i, socket] of sockets.entries()) {
        socket.write(i % 2 === 0 ? whole.subarray(whole.length - 5) : whole);
      }
      expect(await server.exited).toEqual({ code: 0, signal: null });
      for (const { answers, rest } of responses.map((read) => read())) {
        expect(rest).toBe('');
        expect(answers.every(({ status }) => status === 200)).toBe(true);
        expect(answers.at(-1)?.headers.connection).toBe('close');
      }
      expect(server.stderr()).toContain('"stopped"');
      expect(server.stderr()).not.toMatch(/"level":[45]0/);
    },
  );

  test('does not wait for idle connections longer than the drain time', async () => {
    const server = await own.start({ args: [...SMALL, '--drain-ms', '50'] });
    const socket = connect(server.port, '127.0.0.1').on('error', () => {});
    await once(socket, 'connect');
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('and SIGINT, one after the other, end an idle server', async () => {
    const server = await own.start({ args: [...SMALL, '--drain-ms', '60000'] });
    server.child.kill('SIGINT');
    server.child.kill('SIGTERM');
    expect(await server.exited).toEqual({ code: 0, signal: null });
  });

  test('as soon as the first acceptor listens ends the process with 0', async () => {
    const server = await spawnServer(own.dataDir, {
      args: ['--acceptors', '4', '--counters', '1024'],
    });
    own.started.push(server);
    await waitUntil('it accepts connections', () => {
      return new Promise((resolve) => {
        const socket = connect(server.port, '127.0.0.1', () => resolve(true));
        socket.on('connect', () => socket.destroy()).on('error', () => resolve(false));
      });
    });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});

describe('an acceptor', () => {
  test.each([
    ['throw', 'failed: Error: injected fault'],
    ['reject', 'failed: Error: injected fault'],
    ['exit', 'ended by itself, with code 3'],
  ])('that fails (%s) ends the process, with one sentence and no dump', async (fault, why) => {
    const server = await startFaulty(fault, SMALL);
    expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' });
    const sentences = server.stderr().match(/^weir: .*$/gm);
    expect(sentences).toEqual([expect.stringMatching(`^weir: acceptor 0 ${why}`)]);
    expect(server.stderr()).not.toMatch(/native stack|FATAL|Aborted/i);
  });

  test('in which a request fails answers it with a 500, logs the cause, and keeps serving', async () => {
    const server = await startFaulty('assertion', ['--counters', '1024', '--acceptors', '1']);
    const body = '{"identifier":"\\u0041","limit":5,"duration":3600000}';
    const response = await server.send({ body });
    expect(response.status).toBe(500);
    expect(errorIn(response)).toMatchObject({ code: 'INTERNAL_SERVER_ERROR' });
    expect(response.body).not.toContain('internal detail');
    await waitUntil('the log has the cause', () => server.stderr().includes('an internal detail'));
    const { requestId } = errorIn(response);
    const lines = server.stderr().split('\n');
    const line = lines.find((text) => text.includes(requestId));
    expect(JSON.parse(line ?? '')).toMatchObject({ msg: 'a request failed', requestId });
    expect(await server.check(CHECK)).toMatchObject({ success: true, remaining: 9 });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});
