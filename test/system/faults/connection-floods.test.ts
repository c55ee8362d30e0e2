/** Many connections at once, and stops and failures while they arrive. */

import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { connectAndCheck, connectionsPerAcceptor } from '../../support/acceptor-spread.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, parseResponses, readMetric, requestBytes } from '../../support/http.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';

const FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;

const args = (acceptors: number) => ['--counters', '1024', '--acceptors', String(acceptors)];
const own = useDataDirectory(args(4));

test('connections that arrive in a flood all get a response, and are counted', async () => {
  const server = await own.start();
  const target = { host: '127.0.0.1', port: server.port };
  const all = await Promise.all(Array.from({ length: 500 }, () => connectAndCheck(target)));
  expect(await readMetric(server.adminUrl, 'weir_connections')).toBe(500);
  expect(connectionsPerAcceptor(all)).toEqual([125, 125, 125, 125]);
  for (const { socket } of all) socket.destroy();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

const BODY = `{"identifier":"a","limit":10,"duration":${LONGEST_WINDOW_MS}}`;

/** Clients that reconnect for each check. @returns a function that stops them */
async function openManyConnections(server: ServerProcess): Promise<() => Promise<void>> {
  const bytes = requestBytes({ body: BODY });
  let responded = 0;
  let going = true;
  const one = () => {
    return new Promise<void>((resolve) => {
      const socket = connect(server.port, '127.0.0.1', () => socket.write(bytes));
      let received = '';
      socket.setEncoding('latin1');
      socket.on('data', (data) => {
        received += data;
        if (parseResponses(received).answers.length === 1) socket.destroy();
      });
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        responded += parseResponses(received).answers.length;
        resolve();
      });
    });
  };
  const client = async () => {
    while (going) await one();
  };
  const clients = Array.from({ length: 16 }, client);
  await waitUntil('clients are served', () => responded > 200);
  return async () => {
    going = false;
    await Promise.all(clients);
  };
}

describe('while connections arrive,', () => {
  test.each([0, 200])('a stop with a drain of %i ms exits with 0', async (drainMs) => {
    for (let round = 0; round < trialCount(2, 8); round++) {
      const server = await own.start({ args: [...args(4), '--drain-ms', String(drainMs)] });
      const leave = await openManyConnections(server);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      await leave();
      expect(server.stderr()).not.toMatch(/"level":[456]0|native|weir:/);
    }
  });

  test.each([0, 1])(
    'acceptor %i that ends by itself ends the process with one message',
    async (index) => {
      const file = join(own.dataDir, 'strike');
      const env = { FAULT: 'exit', FAULT_FILE: file, FAULT_ACCEPTOR: String(index) };
      const server = await own.start({ args: args(2), execArgv: ['--import', FAULT], env });
      const leave = await openManyConnections(server);
      writeFileSync(file, '');
      expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' });
      await leave();
      const said = server
        .stderr()
        .split('\n')
        .filter((line) => line.startsWith('weir: '));
      expect(said).toEqual([`weir: acceptor ${index} ended by itself, with code 3`]);
    },
  );
});
