import { rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../support/guarantees.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  parseResponses,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { DECIDE_MODES, spawnServer, waitUntil } from '../support/server.ts';

describe.each(DECIDE_MODES)('decided %s:', (mode) => {
  const FAULT = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
  const SMALL = ['--counters', '1024', '--acceptors', '2', '--decide', mode];

  const own = useDataDirectory(SMALL);
  const { start, started } = own;

  /** Starts a server and causes a fault in its first acceptor. */
  const startFaulty = async (fault: string, args: string[]) => {
    const file = join(own.dataDir, 'strike');
    const env = { FAULT: fault, FAULT_FILE: file };
    const server = await start({ args, execArgv: ['--import', FAULT], env });
    writeFileSync(file, '');
    await waitUntil('the fault is injected', () => server.stderr().includes('fault injected'));
    return server;
  };

  const limitBody = (identifier: string) => {
    return JSON.stringify({ identifier, limit: 10, duration: LONGEST_WINDOW_MS });
  };

  describe('SIGTERM', () => {
    test('answers requests in flight, closes connections and exits with 0', async () => {
      // It drains until the connections are closed; on a busy machine that takes a while.
      const server = await start({ args: [...SMALL, '--drain-ms', '30000'] });
      const whole = requestBytes({ body: limitBody('inflight') });
      const received: string[] = [];
      const sockets = await Promise.all(
        Array.from({ length: 20 }, (_, i) => {
          return new Promise<ReturnType<typeof connect>>((resolve) => {
            const socket = connect(server.port, '127.0.0.1', () => resolve(socket));
            socket.setEncoding('latin1');
            socket.on('data', (data) => {
              received[i] = (received[i] ?? '') + data;
            });
          });
        }),
      );
      // When the signal comes, half of them have sent a part of a request, and half are idle.
      for (const [i, socket] of sockets.entries()) {
        if (i % 2 === 0) socket.write(whole.subarray(0, whole.length - 5));
      }
      await sendCheck(server.port, { identifier: 'x', limit: 1, duration: 1_000 });
      server.child.kill('SIGTERM');
      await waitUntil('it is no longer ready', async () => {
        return (await fetch(`${server.adminUrl}/readyz`)).status === 503;
      });
      expect((await fetch(`${server.adminUrl}/livez`)).status).toBe(200);
      await waitUntil('new connections are rejected', () => {
        return fetch(server.url).then(
          () => false,
          () => true,
        );
      });
      for (const [i, socket] of sockets.entries()) {
        socket.write(i % 2 === 0 ? whole.subarray(whole.length - 5) : whole);
      }
      expect(await server.exited).toEqual({ code: 0, signal: null });
      const responses = received.flatMap((text) => parseResponses(text).answers);
      expect(responses.length).toBe(20);
      for (const { status, headers } of responses) {
        expect([status, headers.connection]).toEqual([200, 'close']);
      }
      expect(server.stderr()).toContain('"stopped"');
    });

    test('does not wait for idle connections longer than the drain time', async () => {
      const server = await start({ args: [...SMALL, '--drain-ms', '300'] });
      const socket = connect(server.port, '127.0.0.1').on('error', () => {});
      await new Promise((resolve) => socket.on('connect', resolve));
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    });

    test('and SIGINT, one after the other, end an idle server', async () => {
      const server = await start({ args: [...SMALL, '--drain-ms', '60000'] });
      server.child.kill('SIGINT');
      server.child.kill('SIGTERM');
      expect(await server.exited).toEqual({ code: 0, signal: null });
    });
  });

  describe('SIGTERM in special moments', () => {
    test('right after the start stops the server without a failure in the log', async () => {
      for (let i = 0; i < 3; i++) {
        const server = await start();
        expect(await server.stop()).toEqual({ code: 0, signal: null });
        expect(server.stderr()).not.toMatch(/"level":[45]0/);
      }
    });

    test('as soon as the first acceptor listens ends the process with 0', async () => {
      const server = await spawnServer(own.dataDir, {
        args: ['--acceptors', '8', '--counters', '1024', '--decide', mode],
      });
      started.push(server);
      await waitUntil('it accepts connections', () => {
        return new Promise((resolve) => {
          const socket = connect(server.port, '127.0.0.1', () => resolve(true));
          socket.on('connect', () => socket.destroy()).on('error', () => resolve(false));
        });
      });
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    });

    test('while an acceptor is unresponsive ends the process, but not with 0', async () => {
      const server = await startFaulty('block', [...SMALL, '--drain-ms', '100']);
      const { code } = await server.stop();
      expect(code === 0).toBe(false);
      expect(server.stderr()).toMatch(/did not end|is unresponsive/);
    });
  });

  describe('an acceptor', () => {
    const DEATHS = trialCount(1, 10);
    test.each([
      ['throw', 'acceptor 0 failed: Error: injected fault'],
      ['reject', 'acceptor 0 failed: Error: injected fault'],
      ['exit', 'acceptor 0 ended by itself, with code 3'],
      ['block', 'acceptor 0 is unresponsive: no heartbeat for 1000 ms'],
    ])(
      'that fails or is unresponsive (%s) ends the process, with one sentence and no dump',
      async (fault, sentence) => {
        const tookMs: number[] = [];
        for (let death = 0; death < DEATHS; death++) {
          const server = await startFaulty(fault, SMALL);
          const startMs = performance.now();
          const { code, signal } = await server.exited;
          tookMs.push(Math.round(performance.now() - startMs));
          expect(code === 0).toBe(false);
          expect(signal).not.toBe('SIGABRT');
          const sentences = server
            .stderr()
            .split('\n')
            .filter((line) => line.startsWith('weir: '));
          expect(sentences.length).toBe(1);
          expect(sentences[0]).toContain(sentence);
          expect(server.stderr()).not.toMatch(/native stack|FATAL|Aborted/i);
          rmSync(join(own.dataDir, 'strike'));
        }
        const ended = `the process ended after ${Math.max(...tookMs)} ms at most, never with 0`;
        recordMeasurement('P8', `acceptor: ${fault}, ${mode}`, `${DEATHS} deaths`, ended);
      },
      120_000,
    );

    test('in which a request fails answers it with a 500, logs the cause, and keeps serving', async () => {
      const args = ['--counters', '1024', '--acceptors', '1', '--decide', mode];
      const server = await startFaulty('assertion', args);
      const body = '{"identifier":"\\u0041","limit":5,"duration":3600000}';
      const response = await sendRequest(server.port, { body });
      expect(response.status).toBe(500);
      expect(errorIn(response)).toMatchObject({ code: 'INTERNAL_SERVER_ERROR' });
      expect(response.body).not.toContain('internal detail');
      await waitUntil('the log has the cause', () =>
        server.stderr().includes('an internal detail'),
      );
      const { requestId } = errorIn(response);
      const line = server
        .stderr()
        .split('\n')
        .find((text) => text.includes(requestId));
      expect(JSON.parse(line ?? '')).toMatchObject({ msg: 'a request failed', requestId });
      const check = { identifier: 'b', limit: 5, duration: LONGEST_WINDOW_MS };
      expect(await sendCheck(server.port, check)).toMatchObject({ success: true, remaining: 4 });
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    });
  });
});
