/**
 * Connections that are idle or slow, and a client that reads a large response slowly, with both
 * packages of uWebSockets.js. The limits are those of real time.
 */

import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  LONGEST_WINDOW_MS,
  parseResponses,
  readMetric,
  requestBytes,
  sendCheck,
} from '../support/http.ts';
import { sendUntilClosed } from '../support/raw-connection.ts';
import {
  DECIDE_MODES,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const UWS_PACK = new URL('../support/uws-pack.preload.cjs', import.meta.url).pathname;
const WAIT_MS = 30_000;
const fieldsOf = (identifier: string) => ({
  identifier,
  limit: 1_000,
  duration: LONGEST_WINDOW_MS,
});
const body = (identifier: string) => JSON.stringify(fieldsOf(identifier));
const chunks = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n0\r\n`;

describe.each([
  ['the package of the platform', []],
  ['uws-pack', ['--require', UWS_PACK]],
])('with %s,', (_name, execArgv) => {
  describe.each(DECIDE_MODES)('decided %s,', (mode) => {
    const dataDir = temporaryDirectory();
    const socketPath = join(temporaryDirectory(), 'weir.sock');
    let server: ServerProcess;
    beforeAll(async () => {
      const args = ['--counters', '1024', '--acceptors', '1', '--decide', mode];
      server = await startServer(dataDir, { args: [...args, '--socket', socketPath], execArgv });
    });
    afterAll(async () => {
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      for (const path of [dataDir, join(socketPath, '..')]) removeDirectory(path);
    });
    const used = async (identifier: string) => {
      const { remaining } = await sendCheck(server.port, { ...fieldsOf(identifier), cost: 0 });
      return 1_000 - remaining;
    };

    test('a request that closes its connection is the last that is decided, also while its client reads a large response slowly', async () => {
      const one = { ...fieldsOf(''), namespace: 'default', duration: 60_000 };
      const identifiers = Array.from({ length: 100 }, (_, i) => `${'\u0001'.repeat(505)}${i}`);
      const many = JSON.stringify(identifiers.map((identifier) => ({ ...one, identifier })));
      const headers = { 'Content-Length': '', 'Transfer-Encoding': 'chunked' };
      const path = '/v2/ratelimit.multiLimit';
      const first = requestBytes({ path, headers, body: chunks(many) });
      // A Unix socket accepts only a part of a response of 300 KB until the client reads.
      const name = 'weir_decisions_total{namespace="default",outcome="allowed"}';
      // With the first check, the namespace has a metric.
      await sendCheck(server.port, fieldsOf('first'));
      const before = await readMetric(server.adminUrl, name);
      const socket = connect(socketPath);
      socket.pause();
      socket.write(first);
      // In the same packet, or before the response begins, a later request would prevent it.
      await waitUntil('the first request is decided', async () => {
        return (await readMetric(server.adminUrl, name)) >= before + identifiers.length;
      });
      await new Promise((next) => setTimeout(next, 300));
      socket.write(`X-${requestBytes({ body: body('slow') })}`);
      await new Promise((next) => setTimeout(next, 200));
      const { statuses, isClosed } = await sendUntilClosed(socket, [], WAIT_MS);
      expect([statuses, isClosed]).toEqual([[200], true]);
      expect(await used('slow')).toBe(0);
      // Without a later request the client gets the whole response, however late it reads.
      const alone = connect(socketPath);
      alone.pause();
      alone.write(first);
      await new Promise((next) => setTimeout(next, 300));
      const received = await sendUntilClosed(alone, [], WAIT_MS);
      const response = parseResponses(received.text).answers[0];
      expect([JSON.parse(response.body).data.limits.length, received.isClosed]).toEqual([
        100,
        true,
      ]);
    });

    test.runIf(mode === 'in-place')(
      'idle and slow connections are closed after about 10 s, and count nothing',
      async () => {
        const whole = requestBytes({ body: body('trickle') });
        const cut = whole.length - 60;
        const bytes = [...whole.subarray(cut)].map((byte) => Buffer.of(byte));
        const [idle, slow] = await Promise.all([
          sendUntilClosed(server.port, [requestBytes({ body: body('idle') })], WAIT_MS),
          sendUntilClosed(server.port, [whole.subarray(0, cut), ...bytes], WAIT_MS, 500),
        ]);
        expect([idle.text.slice(9, 12), idle.isClosed]).toEqual(['200', true]);
        expect([slow.text, slow.isClosed]).toEqual(['', true]);
        expect([await used('idle'), await used('trickle')]).toEqual([1, 0]);
      },
    );
  });
});
