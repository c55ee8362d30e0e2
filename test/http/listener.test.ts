/** How connections spread over the acceptors, which one of them listens for. */

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { platformPackage } from '../../src/http/binary.ts';
import { trials } from '../faults/promises.ts';
import { LASTING_MS, metric, requestBytes, takeAnswers } from '../support/http.ts';
import { eachOnItsOwn } from '../support/own.ts';
import { type Running, until } from '../support/server.ts';
import { connected, countsOf, spreadOf } from '../support/spread.ts';

const FAULT = new URL('../supervise/fault.mjs', import.meta.url).pathname;

const args = (acceptors: number) => ['--counters', '1024', '--acceptors', String(acceptors)];
const own = eachOnItsOwn(args(4));

const to = (server: Running, count: number) => {
  return Array.from({ length: count }, () => ({ host: '127.0.0.1', port: server.port }));
};

describe('connections', () => {
  test('go to all acceptors in turn, however few they are', async () => {
    const server = await own.start();
    for (let i = 0; i < 20; i++) {
      expect(await spreadOf(to(server, 2))).toEqual([1, 1]);
      expect(await spreadOf(to(server, 4))).toEqual([1, 1, 1, 1]);
      expect(await spreadOf(to(server, 8))).toEqual([2, 2, 2, 2]);
    }
    await until('all are counted as closed', async () => {
      return (await metric(server.adminUrl, 'weir_connections')) === 0;
    });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('go to the only acceptor where there is one', async () => {
    const server = await own.start({ args: args(1) });
    expect(await spreadOf(to(server, 4))).toEqual([4]);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('that come in a flood are all answered, and counted where they are', async () => {
    const server = await own.start();
    const all = await Promise.all(to(server, 500).map(connected));
    expect(await metric(server.adminUrl, 'weir_connections')).toBe(500);
    expect(countsOf(all)).toEqual([125, 125, 125, 125]);
    for (const { socket } of all) socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('cannot be taken away by another listener on the port', async () => {
    const server = await own.start();
    // It asks for SO_REUSEPORT, and would get its share had the server asked for it too.
    const platform = platformPackage();
    const load =
      platform === undefined
        ? "import('uWebSockets.js')"
        : `Promise.resolve(require('${platform}'))`;
    const script =
      `${load}.then(({ App }) => App().listen('127.0.0.1', ` +
      `${server.port}, (listening) => { console.log(listening !== false); process.exit(); }))`;
    const root = new URL('../..', import.meta.url).pathname;
    const { stdout } = spawnSync(process.execPath, ['-e', script], { cwd: root });
    expect(String(stdout).trim()).toBe('false');
  });
});

const BODY = `{"identifier":"a","limit":10,"duration":${LASTING_MS}}`;

/** Clients that come again and again, each for one check. @returns what ends them */
async function crowd(server: Running): Promise<() => Promise<void>> {
  const bytes = requestBytes({ body: BODY });
  let answered = 0;
  let going = true;
  const one = () => {
    return new Promise<void>((resolve) => {
      const socket = connect(server.port, '127.0.0.1', () => socket.write(bytes));
      let received = '';
      socket.setEncoding('latin1');
      socket.on('data', (data) => {
        received += data;
        if (takeAnswers(received).answers.length === 1) socket.destroy();
      });
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        answered += takeAnswers(received).answers.length;
        resolve();
      });
    });
  };
  const client = async () => {
    while (going) await one();
  };
  const clients = Array.from({ length: 16 }, client);
  await until('clients are served', () => answered > 200);
  return async () => {
    going = false;
    await Promise.all(clients);
  };
}

describe('while connections come in,', () => {
  test.each([0, 200])('a stop ends in peace, drained for %i ms', async (drainMs) => {
    for (let round = 0; round < trials(2, 8); round++) {
      const server = await own.start({ args: [...args(4), '--drain-ms', String(drainMs)] });
      const leave = await crowd(server);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      await leave();
      expect(server.stderr()).not.toMatch(/"level":[456]0|native|weir:/);
    }
  });

  test.each([0, 1])(
    'acceptor %i that ends by itself ends the process, and says so',
    async (index) => {
      const file = join(own.dataDir, 'strike');
      const env = { FAULT: 'exit', FAULT_FILE: file, FAULT_ACCEPTOR: String(index) };
      const server = await own.start({ args: args(2), execArgv: ['--import', FAULT], env });
      const leave = await crowd(server);
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
