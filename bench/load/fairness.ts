/**
 * The slowest check of a client while other clients send what takes long: lists of checks under
 * slow patterns, lists of new identifiers, and bursts of checks whose responses they do
 * not await.
 */

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { MULTI_LIMIT_MAX } from '../../src/core/constants.ts';
import { NAMESPACE, ROOT_KEY } from '../support/override-sets.ts';
import { median } from '../support/rounds.ts';
import { startWeir } from '../support/servers.ts';
import { SLOW_CHECKS } from '../support/worst-overrides.ts';
import type { OtherClientTask } from './other-client.thread.ts';

const ROUNDS = 5;
/** With them a check takes about half a millisecond. */
const SLOW = SLOW_CHECKS[0];
const BURST = 2_500;
const SETTLE_MS = 400;

export interface FairnessResult {
  load: string;
  /** ms, of the rounds: the slowest check of the other client. */
  median: number;
  max: number;
}

export async function measureFairness(progress: (what: string) => void): Promise<FairnessResult[]> {
  const server = await startWeir('weir');
  const { port } = server;
  const post = async (path: string, body: object) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(await response.text());
  };
  const workerData: OtherClientTask = { port, check: checkBytes('other') };
  const other = new Worker(new URL('./other-client.thread.js', import.meta.url), { workerData });
  const slowest = async (load: () => Promise<unknown>) => {
    other.postMessage('begin');
    await once(other, 'message');
    await load();
    await sleep(SETTLE_MS);
    other.postMessage('end');
    const [slowestMs] = await once(other, 'message');
    return slowestMs as number;
  };
  const lists = (clients: number, identifierOf: (i: number) => string) => async () => {
    const items = () => Array.from({ length: MULTI_LIMIT_MAX }, (_, i) => check(identifierOf(i)));
    await Promise.all(
      Array.from({ length: clients }, () => post('/v2/ratelimit.multiLimit', items())),
    );
  };
  let created = 0;
  const loads: [string, () => Promise<unknown>][] = [
    ['none', async () => {}],
    ...[1, 2, 6].map((clients): [string, () => Promise<unknown>] => [
      `${clients} lists of 100 checks, slow patterns`,
      lists(clients, (i) => `${SLOW.identifier.slice(3)}${i}`),
    ]),
    ['6 lists of 100 new identifiers', lists(6, () => `new ${created++}`)],
    ...[1, 10, 40, 150].map((connections): [string, () => Promise<unknown>] => [
      `${connections} bursts of ${BURST} checks`,
      () => sendBursts(port, connections),
    ]),
  ];
  try {
    const terms = { namespaceName: NAMESPACE, limit: 1_000_000, duration: 60_000 };
    const overrides = SLOW.patterns.map((identifier) => ({ identifier, ...terms }));
    await post('/v1/ratelimits.importOverrides', { overrides });
    const results: FairnessResult[] = [];
    for (const [load, run] of loads) {
      const times: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        progress(`${load}, ${round + 1} of ${ROUNDS}`);
        times.push(await slowest(run));
      }
      results.push({ load, median: median(times), max: Math.max(...times) });
    }
    return results;
  } finally {
    await other.terminate();
    await server.stop();
  }
}

function check(identifier: string): object {
  return { namespace: NAMESPACE, identifier, limit: 1_000_000, duration: 60_000 };
}

/** In a namespace without overrides. */
function checkBytes(identifier: string): Buffer {
  const body = JSON.stringify({ ...check(identifier), namespace: 'fairness' });
  const lines = [
    'POST /v2/ratelimit.limit HTTP/1.1',
    'Host: a',
    'Content-Type: application/json',
    `Authorization: Bearer ${ROOT_KEY}`,
    `Content-Length: ${body.length}`,
  ];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`);
}

/** Sends a burst on each connection at once, and reads no response. */
async function sendBursts(port: number, connections: number): Promise<void> {
  const burst = Buffer.concat(Array.from({ length: BURST }, (_, i) => checkBytes(`burst_${i}`)));
  const sockets = await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect(port, '127.0.0.1').pause();
      // weir closes those on which too much has arrived.
      socket.on('error', () => {});
      await once(socket, 'connect');
      return socket;
    }),
  );
  for (const socket of sockets) socket.write(burst);
  await sleep(SETTLE_MS);
  for (const socket of sockets as Socket[]) socket.destroy();
}
