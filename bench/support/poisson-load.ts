/**
 * An open loop: requests come by a Poisson process at a rate, whether or not those before were
 * answered. Each takes a connection that is free, or waits for one; its latency begins when it was
 * to be sent, so what the server makes wait is in it. The thread never sleeps, since a timer knows
 * only milliseconds. Its own pauses are in the figures as well, of every server alike.
 */

import { connect, type Socket } from 'node:net';
import { type LoadMeasurement, requestText, type Workload } from './load-generator.ts';

export interface PoissonOptions {
  port: number;
  workload: Workload;
  connections: number;
  seconds: number;
  /** Requests a second. */
  rate: number;
}

/** Each read is taken for an answer, which holds on loopback for what is less than a packet. */
const READ_BYTES = 4_096;
const IDENTIFIERS = 10_000;

export async function runPoissonLoad({
  port,
  workload,
  connections,
  seconds,
  rate,
}: PoissonOptions): Promise<LoadMeasurement> {
  const requests = Array.from({ length: IDENTIFIERS }, (_, i) => buildRequest(workload, i));
  const times = new Float64Array(Math.ceil(rate * seconds * 1.2));
  let answered = 0;
  let errors = 0;
  let sent = 0;
  const free: number[] = [];
  const since = new Float64Array(connections);
  const sockets = await Promise.all(
    Array.from({ length: connections }, (_, i) => {
      return openConnection(port, (bytes) => {
        // `HTTP/1.1 200 OK`
        if (bytes[9] !== 0x32) errors++;
        if (answered < times.length) times[answered++] = performance.now() - since[i];
        free.push(i);
      });
    }),
  );
  free.push(...sockets.keys());
  const endMs = performance.now() + seconds * 1e3;
  const gapMs = 1e3 / rate;
  let dueMs = performance.now();
  await new Promise<void>((resolve, reject) => {
    for (const socket of sockets)
      socket.on('close', () => reject(new Error('closed by the server')));
    const turn = () => {
      const nowMs = performance.now();
      while (dueMs <= nowMs && free.length > 0) {
        const i = free.pop()!;
        since[i] = dueMs;
        sockets[i].write(requests[(sent++ * 7_919) % IDENTIFIERS]);
        dueMs -= gapMs * Math.log(1 - Math.random());
      }
      if (nowMs < endMs || free.length < connections) setImmediate(turn);
      else resolve();
    };
    turn();
  });
  for (const socket of sockets) socket.removeAllListeners('close').destroy();
  const sorted = times.subarray(0, answered).sort();
  const at = (share: number) => Math.round(sorted[Math.floor(answered * share)] * 1e3);
  const [p50, p99, p999, p9999] = [0.5, 0.99, 0.999, 0.9999].map(at);
  return { requests: answered, seconds, p50, p99, p999, p9999, errors };
}

function openConnection(port: number, onAnswer: (bytes: Uint8Array) => void): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const buffer = Buffer.alloc(READ_BYTES);
    const callback = (_: number, bytes: Uint8Array) => {
      onAnswer(bytes);
      return true;
    };
    const socket = connect({
      port,
      host: '127.0.0.1',
      noDelay: true,
      onread: { buffer, callback },
    });
    socket.on('error', reject);
    socket.on('connect', () => resolve(socket));
  });
}

function buildRequest({ path, body }: Workload, i: number): Buffer {
  const text = JSON.stringify(body(`user_${String(i).padStart(7, '0')}`));
  return Buffer.from(requestText(path, text), 'latin1');
}
