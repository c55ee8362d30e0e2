/** Several requests in one packet, which are decided in the request's own turn, or not. */

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  exchange,
  type LimitResponse,
  LONGEST_WINDOW_MS,
  requestBytes,
  sendCheck,
} from '../support/http.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';

const body = (identifier: string, limit = 1_000) => {
  return JSON.stringify({ identifier, limit, duration: LONGEST_WINDOW_MS });
};
const remainingOf = (text: string) => (JSON.parse(text) as LimitResponse).remaining;

describe('decided in place, a connection', () => {
  let server: ServerProcess;
  const dataDir = temporaryDirectory();
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--counters', '65536'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  test('with 100 requests in one packet gets 100 answers, in order', async () => {
    const all = Buffer.concat(
      Array.from({ length: 100 }, () => requestBytes({ body: body('pipelined') })),
    );
    const answers = await exchange(server.port, [all], 100);
    expect(answers.map((answer) => remainingOf(answer.body))).toEqual(
      Array.from({ length: 100 }, (_, i) => 999 - i),
    );
  });

  test('with good and bad requests in one packet gets each its answer, and stays open', async () => {
    const parts = [
      { body: body('mixed') },
      { body: 'nonsense' },
      { path: '/nowhere', body: body('mixed') },
      { method: 'HEAD', body: '' },
      { headers: { Authorization: 'Bearer wrong' }, body: body('mixed') },
      { headers: { 'Content-Type': 'text/plain' }, body: body('mixed') },
      { body: body('mixed') },
    ];
    const packet = Buffer.concat(parts.map(requestBytes));
    const methods = parts.map(({ method = 'POST' }) => method);
    const statuses = await exchange(server.port, [packet], parts.length, false, methods);
    expect(statuses.map(({ status }) => status)).toEqual([200, 400, 404, 405, 401, 415, 200]);
  });
});

describe('decided by a worker, a connection', () => {
  let server: ServerProcess;
  const dataDir = temporaryDirectory();
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--counters', '65536', '--decide', 'worker'] });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  test('that sends a second check before the first is answered is closed by uWebSockets.js', async () => {
    const two = Buffer.concat([0, 1].map(() => requestBytes({ body: body('two') })));
    const heard = await new Promise<string>((resolve) => {
      let text = '';
      const socket = connect(server.port, '127.0.0.1', () => socket.write(two));
      socket.on('data', (data) => {
        text += data;
      });
      socket.on('error', () => {});
      socket.on('close', () => resolve(text));
    });
    expect(heard).toBe('');
    // The first was whole, so it was counted; the second was never seen.
    const look = { identifier: 'two', limit: 1_000, duration: LONGEST_WINDOW_MS, cost: 0 };
    expect(await sendCheck(server.port, look)).toMatchObject({ remaining: 999 });
  });

  test('gets errors in order, as many as it sends in one packet: they need no worker', async () => {
    const bad = Buffer.concat([0, 1, 2].map(() => requestBytes({ body: 'nonsense' })));
    const answers = await exchange(server.port, [bad], 3);
    expect(answers.map(({ status }) => status)).toEqual([400, 400, 400]);
  });
});
