/** Clients that close the connection during a request or a response. */

import { connect, type NetConnectOpts } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetric } from '../../support/http.ts';
import { waitUntil } from '../../support/server.ts';
import { allowedCheckBytes, countCharged, openConnections } from './http-connections.ts';

const own = useDataDirectory(['--acceptors', '2', '--workers', '1', '--counters', '65536']);

/** Clients that close at the same time. */
const CONCURRENCY = 32;

/** Sends bytes, and closes the connection, in order or by a reset. */
function abortRequest(to: NetConnectOpts, bytes: Uint8Array, byReset: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(to, () => {
      const close = () => (byReset ? socket.resetAndDestroy() : socket.destroy());
      if (bytes.length === 0) close();
      else socket.write(bytes, close);
    });
    socket.on('error', reject);
    socket.on('close', () => resolve());
  });
}

/** Sends a request, and closes the connection after so many bytes of the response. */
function abortResponse(to: NetConnectOpts, bytes: Uint8Array, after: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let remaining = after;
    const socket = connect(to, () => socket.write(bytes));
    socket.on('readable', () => {
      for (;;) {
        if (remaining === 0) break;
        if (socket.read(1) === null) return;
        remaining--;
      }
      socket.destroy();
    });
    socket.on('error', reject);
    socket.on('close', () => resolve());
  });
}

/** Retries when the backlog of the Unix socket is full. */
async function retryOnConnectError(one: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await one();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      await sleep(1);
    }
  }
}

/** Runs tasks with a bounded concurrency. */
async function runConcurrently(count: number, one: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  const client = async () => {
    while (next < count) {
      const i = next++;
      await retryOnConnectError(() => one(i));
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, client));
}

test('a client that closes before its last byte is not charged, and after it is charged once', async () => {
  const path = join(own.dataDir, 'socket');
  const server = await own.start({
    args: ['--acceptors', '2', '--workers', '1', '--counters', '65536', '--socket', path],
  });
  const targets: NetConnectOpts[] = [{ path }, { host: '127.0.0.1', port: server.port }];
  const bytes = allowedCheckBytes('cut');
  // Over TCP by a reset, which leaves no port in TIME_WAIT.
  const rounds = Math.ceil(trialCount(2_000, 520_000) / bytes.length);
  const cuts = rounds * bytes.length;
  await runConcurrently(cuts, (i) => {
    const byReset = i % 4 === 0;
    return abortRequest(targets[byReset ? 1 : 0], bytes.subarray(0, i % bytes.length), byReset);
  });
  await waitUntil('all connections are closed', async () => {
    return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
  });
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
  await waitUntil('all connections are closed', async () => {
    return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
  });
  recordMeasurement(
    'P3',
    'closed after every byte',
    `${cuts} in a request, ${responses} in a response, ${wholes} right after the request`,
    `charged ${await countCharged(server, 'cut')}, ${(await countCharged(server, 'response')) - 1}, ` +
      `${await countCharged(server, 'whole')}`,
  );
  expect(await countCharged(server, 'whole')).toBe(wholes);
  // The probe, and also the clients that closed before the first byte of the response.
  expect(await countCharged(server, 'response')).toBe(1 + responses);
  expect(server.child.exitCode).toBeNull();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}, 600_000);
