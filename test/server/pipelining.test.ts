/** Several requests in one packet, decided in place, by a worker or with tokens from Redis. */

import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { describeEngines } from '../support/engine-modes.ts';
import {
  checkBody,
  exchange,
  LONGEST_WINDOW_MS,
  remainingIn,
  requestBytes,
} from '../support/http.ts';
import { useServer } from '../support/test-server.ts';

describe('decided in place, a connection', () => {
  const server = useServer();

  test('with 100 requests in one packet gets 100 responses in order', async () => {
    const all = Buffer.concat(
      Array.from({ length: 100 }, () => requestBytes({ body: checkBody('pipelined') })),
    );
    const responses = await exchange(server.port, [all], 100);
    expect(responses.map(remainingIn)).toEqual(Array.from({ length: 100 }, (_, i) => 999 - i));
  });

  test('with valid and invalid requests in one packet gets all responses, and stays open', async () => {
    const parts = [
      { body: checkBody('mixed') },
      { body: 'nonsense' },
      { path: '/nowhere', body: checkBody('mixed') },
      { method: 'HEAD', body: '' },
      { headers: { Authorization: 'Bearer wrong' }, body: checkBody('mixed') },
      { headers: { 'Content-Type': 'text/plain' }, body: checkBody('mixed') },
      { body: checkBody('mixed') },
    ];
    const packet = Buffer.concat(parts.map(requestBytes));
    const methods = parts.map(({ method = 'POST' }) => method);
    const statuses = await exchange(server.port, [packet], parts.length, false, methods);
    expect(statuses.map(({ status }) => status)).toEqual([200, 400, 404, 405, 401, 415, 200]);
  });
});

/** A check waits for a decision of a later turn. */
const WAITING_MODES = ['worker', 'redis'] as const;

describeEngines(
  'decided by %s, a connection',
  (mode) => {
    const server = useServer({ mode });

    test('that sends a second check before the first is decided is closed by uWebSockets.js', async () => {
      const two = Buffer.concat([0, 1].map(() => requestBytes({ body: checkBody('two') })));
      const received = await new Promise<string>((resolve) => {
        let text = '';
        const socket = connect(server.port, '127.0.0.1', () => socket.write(two));
        socket.on('data', (data) => {
          text += data;
        });
        socket.on('error', () => {});
        socket.on('close', () => resolve(text));
      });
      expect(received).toBe('');
      // The first check was complete, so it was counted; the second reached no handler.
      const look = { identifier: 'two', limit: 1_000, duration: LONGEST_WINDOW_MS, cost: 0 };
      expect(await server.check(look)).toMatchObject({ remaining: 999 });
    });

    test('gets all errors of one packet in order: they need no worker', async () => {
      const bad = Buffer.concat([0, 1, 2].map(() => requestBytes({ body: 'nonsense' })));
      const responses = await exchange(server.port, [bad], 3);
      expect(responses.map(({ status }) => status)).toEqual([400, 400, 400]);
    });
  },
  WAITING_MODES,
);
