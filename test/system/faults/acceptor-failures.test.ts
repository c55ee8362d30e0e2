/** Acceptors that fail, end, block or are late, and stops, also while many connections arrive. */

import { rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { connectAndCheck, connectionsPerAcceptor } from '../../support/acceptor-spread.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetric, sendCheck } from '../../support/http.ts';
import { callOperation } from '../../support/operations.ts';
import { DECIDE_MODES, type ServerProcess, waitUntil } from '../../support/server.ts';

vi.setConfig({ testTimeout: 120_000 });

const FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
const CHECK = { identifier: 'a', limit: 10, duration: LONGEST_WINDOW_MS };
const OVERRIDE = { namespaceName: 'a', identifier: 'abc', limit: 5, duration: 1_000 };

const own = useDataDirectory([]);
const args = (acceptors: number) => ['--counters', '1024', '--acceptors', String(acceptors)];
const start = (fault: string, options: string[], acceptor = 0) => {
  const file = join(own.dataDir, 'strike');
  const env = { FAULT: fault, FAULT_FILE: file, FAULT_ACCEPTOR: String(acceptor) };
  return own.start({ args: options, execArgv: ['--import', FAULT], env });
};
const strike = (server: ServerProcess) => {
  writeFileSync(join(own.dataDir, 'strike'), '');
  return waitUntil('the fault is injected', () => server.stderr().includes('fault injected'));
};

/** Clients that connect for each check. @returns a function that stops them */
async function connectForEachCheck({ port }: ServerProcess): Promise<() => Promise<unknown>> {
  let answered = 0;
  let isOver = false;
  const clients = Array.from({ length: 16 }, async () => {
    while (!isOver) {
      await sendCheck(port, CHECK).then(
        () => answered++,
        () => {},
      );
    }
  });
  await waitUntil('clients are served', () => answered > 200);
  return () => {
    isOver = true;
    return Promise.all(clients);
  };
}

describe.each(DECIDE_MODES)('decided %s, an acceptor', (mode) => {
  const small = [...args(2), '--decide', mode];
  const index = mode === 'worker' ? 1 : 0;
  const DEATHS = trialCount(1, 10);

  test.each([
    ['throw', /failed: Error: injected fault/],
    ['reject', /failed: Error: injected fault/],
    ['exit', /ended by itself, with code 3/],
    // At least 2 s of CPU time. Some of its threads, or others of this machine, may use the CPUs.
    ['block', /is unresponsive: no heartbeat for \d+ ms, in which it used \d{4,} ms of CPU time,/],
    ['wait', /is unresponsive: .* asleep for \d{4,} ms; \d{4} ms of it count; its state is S$/],
  ])(
    'that fails or is unresponsive (%s) while connections arrive ends the process, with one sentence',
    async (fault, reason) => {
      const tookMs: number[] = [];
      for (let death = 0; death < DEATHS; death++) {
        const server = await start(fault, small, index);
        const leave = await connectForEachCheck(server);
        await strike(server);
        const startMs = performance.now();
        const { code, signal } = await server.exited;
        tookMs.push(Math.round(performance.now() - startMs));
        await leave();
        expect(code === 0).toBe(false);
        expect(signal).not.toBe('SIGABRT');
        const sentences = server.stderr().match(/^weir: .*$/gm);
        expect(sentences).toEqual([expect.stringMatching(reason)]);
        expect(sentences![0]).toContain(`weir: acceptor ${index} `);
        expect(server.stderr()).not.toMatch(/native stack|FATAL|Aborted/i);
        rmSync(join(own.dataDir, 'strike'));
      }
      const ended = `the process ended after ${Math.max(...tookMs)} ms at most, never with 0`;
      recordMeasurement('P8', `acceptor: ${fault}, ${mode}`, `${DEATHS} deaths`, ended);
    },
  );

  test('that is unresponsive when SIGTERM comes ends the process, but not with 0', async () => {
    const server = await start('block', [...small, '--drain-ms', '100']);
    await strike(server);
    const { code } = await server.stop();
    expect(code === 0).toBe(false);
    expect(server.stderr()).toMatch(/did not end|is unresponsive/);
  });
});

describe('an acceptor', () => {
  test('under more load than it can serve counts as responsive, also while a change waits for it', async () => {
    const server = await own.start({ args: args(1) });
    const setLimit = async (limit: number) => {
      const fields = { ...OVERRIDE, limit };
      return (await callOperation(server.port, 'ratelimits.setOverride', fields)).status;
    };
    // The change is requested before the flood, and published during it.
    const change = setLimit(5);
    const flood = Buffer.from('GET /x HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(10_000));
    const sockets = Array.from({ length: 8 }, () => {
      const socket = connect(server.port, '127.0.0.1').on('error', () => {});
      socket.resume();
      socket.write(flood);
      return socket;
    });
    const changes = [await change];
    const until = Date.now() + 3_000;
    while (Date.now() < until) changes.push(await setLimit(5 + changes.length));
    for (const socket of sockets) socket.destroy();
    expect(changes).toEqual(changes.map(() => 200));
    expect(await sendCheck(server.port, CHECK)).toMatchObject({ success: true });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('that is late delays a change, and counts as responsive', async () => {
    const server = await start('delay', args(2));
    expect((await callOperation(server.port, 'ratelimits.setOverride', OVERRIDE)).status).toBe(200);
    expect(server.stderr()).toContain(
      '"thread":"acceptor 0","msg":"a thread has not activated a change yet"',
    );
    const body = { namespace: 'a', identifier: 'abc', limit: 9, duration: 1_000 };
    for (let i = 0; i < 4; i++) {
      expect(await sendCheck(server.port, body)).toMatchObject({ limit: 5 });
    }
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});

test('connections that arrive in a flood all get a response, and are counted', async () => {
  const server = await own.start({ args: args(4) });
  const target = { host: '127.0.0.1', port: server.port };
  const all = await Promise.all(Array.from({ length: 500 }, () => connectAndCheck(target)));
  expect(await readMetric(server.adminUrl, 'weir_connections')).toBe(500);
  expect(connectionsPerAcceptor(all)).toEqual([125, 125, 125, 125]);
  for (const { socket } of all) socket.destroy();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

test.each([0, 200])(
  'a stop with a drain of %i ms while connections arrive exits with 0',
  async (drainMs) => {
    for (let round = 0; round < trialCount(2, 8); round++) {
      const server = await own.start({ args: [...args(4), '--drain-ms', String(drainMs)] });
      const leave = await connectForEachCheck(server);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      await leave();
      expect(server.stderr()).not.toMatch(/"level":[456]0|native|weir:/);
    }
  },
);
