/** Clients that go away in the middle of asking, or of being answered. */

import { connect, type NetConnectOpts } from 'node:net';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { useDataDirectory } from '../support/data-directory.ts';
import { recordMeasurement, trialCount } from '../support/guarantees.ts';
import { readMetric } from '../support/http.ts';
import {
  allowedCheckBytes,
  countCharged,
  openConnections,
  wait,
} from '../support/http-connections.ts';
import { waitUntil } from '../support/server.ts';

const own = useDataDirectory(['--acceptors', '2', '--workers', '1', '--counters', '65536']);

/** How many clients go away at the same time. */
const AT_ONCE = 32;

/** Sends what there is and goes away, politely or by a reset. */
function abortRequest(to: NetConnectOpts, bytes: Uint8Array, byReset: boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(to, () => {
      const leave = () => (byReset ? socket.resetAndDestroy() : socket.destroy());
      if (bytes.length === 0) leave();
      else socket.write(bytes, leave);
    });
    socket.on('error', reject);
    socket.on('close', () => resolve());
  });
}

/** Sends a whole request, and goes away when so many bytes of the answer are there. */
function abortResponse(to: NetConnectOpts, bytes: Uint8Array, after: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = after;
    const socket = connect(to, () => socket.write(bytes));
    socket.on('readable', () => {
      for (;;) {
        if (left === 0) break;
        const piece = socket.read(1);
        if (piece === null) return;
        left--;
      }
      socket.destroy();
    });
    socket.on('error', reject);
    socket.on('close', () => resolve());
  });
}

/** Tries again where the queue of the Unix socket is full: clients that leave wait for nothing. */
async function retryOnConnectError(one: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await one();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      await wait(1);
    }
  }
}

/** Does all of it, some at a time. */
async function runConcurrently(count: number, one: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  const client = async () => {
    while (next < count) {
      const i = next++;
      await retryOnConnectError(() => one(i));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, client));
}

test('a client that goes away before its last byte has nothing charged, and after it one check', async () => {
  const path = join(own.dataDir, 'socket');
  const server = await own.start({
    args: ['--acceptors', '2', '--workers', '1', '--counters', '65536', '--socket', path],
  });
  const places: NetConnectOpts[] = [{ path }, { host: '127.0.0.1', port: server.port }];
  const bytes = allowedCheckBytes('cut');
  // Over TCP by a reset, which leaves no port behind that waits for a minute.
  const rounds = Math.ceil(trialCount(4_000, 520_000) / bytes.length);
  const cuts = rounds * bytes.length;
  await runConcurrently(cuts, (i) => {
    const byReset = i % 4 === 0;
    return abortRequest(places[byReset ? 1 : 0], bytes.subarray(0, i % bytes.length), byReset);
  });
  await waitUntil('they are gone', async () => {
    return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
  });
  expect(await countCharged(server, 'cut')).toBe(0);

  const wholes = trialCount(300, 10_000);
  await runConcurrently(wholes, () => abortRequest(places[0], allowedCheckBytes('whole'), false));
  const [probe] = openConnections(server.port, 1);
  const answer = await probe.send(allowedCheckBytes('answer'));
  const size = probe.receivedBytes;
  probe.socket.destroy();
  expect(answer.status).toBe(200);
  const answers = Math.ceil(trialCount(600, 20_000) / size) * size;
  await runConcurrently(answers, (i) =>
    abortResponse(places[0], allowedCheckBytes('answer'), i % size),
  );
  await waitUntil('they are gone', async () => {
    return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
  });
  recordMeasurement(
    'P3',
    'gone after every byte',
    `${cuts} of a request, ${answers} of an answer, ${wholes} right after asking`,
    `charged ${await countCharged(server, 'cut')}, ${(await countCharged(server, 'answer')) - 1}, ` +
      `${await countCharged(server, 'whole')}`,
  );
  expect(await countCharged(server, 'whole')).toBe(wholes);
  // The probe, and those that left before the first byte of the answer as well.
  expect(await countCharged(server, 'answer')).toBe(1 + answers);
  expect(server.child.exitCode).toBeNull();
  expect(await server.stop()).toEqual({ code: 0, signal: null });
}, 600_000);
