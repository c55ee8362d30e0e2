/** Acceptors that are late with a change, but responsive. */

import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { sendCheck } from '../../support/http.ts';
import { callOperation } from '../../support/operations.ts';

const FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
const SMALL = ['--counters', '1024'];

const own = useDataDirectory(SMALL);

describe('an acceptor', () => {
  test('under more load than it can serve counts as responsive, also while a change waits for it', async () => {
    const server = await own.start({ args: [...SMALL, '--acceptors', '1'] });
    // The change is requested before the flood, and published during it.
    const override = { namespaceName: 'a', identifier: 'abc', limit: 5, duration: 1_000 };
    const change = callOperation(server.port, 'ratelimits.setOverride', override);
    const flood = Buffer.from('GET /x HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(10_000));
    const sockets = Array.from({ length: 8 }, () => {
      const socket = connect(server.port, '127.0.0.1').on('error', () => {});
      socket.resume();
      socket.write(flood);
      return socket;
    });
    const changes: number[] = [(await change).status];
    const until = Date.now() + 1_500;
    while (Date.now() < until) {
      const limit = 5 + changes.length;
      const fields = { ...override, limit };
      changes.push((await callOperation(server.port, 'ratelimits.setOverride', fields)).status);
    }
    for (const socket of sockets) socket.destroy();
    expect(changes).toEqual(changes.map(() => 200));
    expect(server.child.exitCode ?? server.child.signalCode).toBeNull();
    const body = { identifier: 'a', limit: 5, duration: 1_000 };
    expect(await sendCheck(server.port, body)).toMatchObject({ success: true });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('that is late delays a change, and counts as responsive', async () => {
    const env = { FAULT: 'delay' };
    const args = [...SMALL, '--acceptors', '2'];
    const server = await own.start({ args, execArgv: ['--import', FAULT], env });
    const override = { namespaceName: 'a', identifier: 'abc', limit: 5, duration: 1_000 };
    expect((await callOperation(server.port, 'ratelimits.setOverride', override)).status).toBe(200);
    expect(server.stderr()).toContain(
      '"acceptor":0,"msg":"an acceptor has not activated a change yet"',
    );
    const body = { namespace: 'a', identifier: 'abc', limit: 9, duration: 1_000 };
    for (let i = 0; i < 4; i++)
      expect(await sendCheck(server.port, body)).toMatchObject({ limit: 5 });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});
