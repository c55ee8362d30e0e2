/** Clients that close the connection during a request or a response. */

import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetric } from '../../support/http.ts';
import { waitUntil } from '../../support/server.ts';
import { allowedCheckBytes, countCharged, openConnections } from './http-connections.ts';

const own = useDataDirectory([]);

/** Clients that close at the same time. */
const CONCURRENCY = 32;

/** Connects, calls `act`, and waits for the close. Repeats it if the backlog of a socket is full. */
async function useConnection(to: NetConnectOpts, act: (socket: Socket) => void): Promise<void> {
  for (;;) {
    const error = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
      const socket = connect(to, () => act(socket));
      socket.on('error', resolve);
      socket.on('close', () => resolve(undefined));
    });
    if (error === undefined) return;
    if (error.code !== 'EAGAIN') throw error;
    await sleep(1);
  }
}

/** Sends bytes, and closes the connection, in order or by a reset. */
function abortRequest(to: NetConnectOpts, bytes: Uint8Array, byReset: boolean): Promise<void> {
  return useConnection(to, (socket) => {
    const close = () => (byReset ? socket.resetAndDestroy() : socket.destroy());
    if (bytes.length === 0) close();
    else socket.write(bytes, close);
  });
}

/** Sends a request, and closes the connection after so many bytes of the response. */
function abortResponse(to: NetConnectOpts, bytes: Uint8Array, after: number): Promise<void> {
  return useConnection(to, (socket) => {
    let remaining = after;
    socket.on('readable', () => {
      for (; remaining > 0; remaining--) if (socket.read(1) === null) return;
      socket.destroy();
    });
    socket.write(bytes);
  });
}

/** Runs tasks with a bounded concurrency. */
async function runConcurrently(count: number, one: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  const client = async () => {
    while (next < count) await one(next++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, client));
}

test('a client that closes before its last byte is not charged, and after it is charged once', async () => {
  const path = join(own.dataDir, 'socket');
  const server = await own.start({
    args: ['--acceptors', '2', '--workers', '1', '--counters', '65536', '--socket', path],
  });
  const allClosed = () => {
    return waitUntil('all connections are closed', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
    });
  };
  const targets: NetConnectOpts[] = [{ path }, { host: '127.0.0.1', port: server.port }];
  const bytes = allowedCheckBytes('cut');
  // Over TCP by a reset, which leaves no port in TIME_WAIT.
  const cuts = Math.ceil(trialCount(2_000, 520_000) / bytes.length) * bytes.length;
  await runConcurrently(cuts, (i) => {
    const byReset = i % 4 === 0;
    return abortRequest(targets[byReset ? 1 : 0], bytes.subarray(0, i % bytes.length), byReset);
  });
  await allClosed();
  expect(await countCharged(server, 'cut')).toBe(0);

  const wholes = trialCount(300, 10_000);
  await runConcurrently(wholes, () => abortRequest(targets[0], allowedCheckBytes('whole'), false));
  const [probe] = openConnections(server.port, 1);
  const response = await probe.send(allowedCheckBytes('response'));
  const size = probe.receivedBytes;
  probe.socket.destroy();
  expect(response.status).toBe(200);
  const responses = Math.ceil(trialCount(600, 20_000) / size) * size;
  await runConcurrently(responses, (i) =>
    abortResponse(targets[0], allowedCheckBytes('response'), i % size),
  );
  await allClosed();
  expect(await countCharged(server, 'whole')).toBe(wholes);
  // The probe, and also the clients that closed before the first byte of the response.
  expect(await countCharged(server, 'response')).toBe(1 + responses);
  const trials = `${cuts} in a request, ${responses} in a response, ${wholes} right after the request`;
  recordMeasurement('P3', 'closed after every byte', trials, 'charged 0, once and once');
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}, 600_000);
