/**
 * An open loop: requests arrive as a Poisson process at a given rate, without waiting for
 * responses. Each uses a free connection, or waits for one. Its latency begins at its arrival, so
 * delays by the server count. The thread never sleeps, because timers have a resolution of 1 ms.
 * Pauses of the generator itself also count, for every server alike.
 */

import { connect, type Socket } from 'node:net';
import { type LoadMeasurement, requestText, type Workload } from './load-generator.ts';

interface PoissonOptions {
  port: number;
  workload: Workload;
  connections: number;
  seconds: number;
  /** Requests per second. */
  rate: number;
}

/** Each read counts as one response. On loopback that holds for responses below a packet. */
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
  let sentRequests = 0;
  const freeConnections: number[] = [];
  const arrivedMs = new Float64Array(connections);
  const sockets = await Promise.all(
    Array.from({ length: connections }, (_, i) => {
      return openConnection(port, (bytes) => {
        // `HTTP/1.1 200 OK`
        if (bytes[9] !== 0x32) errors++;
        if (answered < times.length) times[answered++] = performance.now() - arrivedMs[i];
        freeConnections.push(i);
      });
    }),
  );
  freeConnections.push(...sockets.keys());
  const endMs = performance.now() + seconds * 1e3;
  const gapMs = 1e3 / rate;
  let dueMs = performance.now();
  await new Promise<void>((resolve, reject) => {
    for (const socket of sockets)
      socket.on('close', () => reject(new Error('closed by the server')));
    const step = () => {
      const nowMs = performance.now();
      while (dueMs <= nowMs && freeConnections.length > 0) {
        const i = freeConnections.pop()!;
        arrivedMs[i] = dueMs;
        sockets[i].write(requests[(sentRequests++ * 7_919) % IDENTIFIERS]);
        dueMs -= gapMs * Math.log(1 - Math.random());
      }
      if (nowMs < endMs || freeConnections.length < connections) setImmediate(step);
      else resolve();
    };
    step();
  });
  for (const socket of sockets) socket.removeAllListeners('close').destroy();
  const sorted = times.subarray(0, answered).sort();
  const at = (share: number) => Math.round(sorted[Math.floor(answered * share)] * 1e3);
  const [p50, p99, p999, p9999] = [0.5, 0.99, 0.999, 0.9999].map(at);
  return { requests: answered, seconds, p50, p99, p999, p9999, errors };
}

function openConnection(port: number, onResponse: (bytes: Uint8Array) => void): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const buffer = Buffer.alloc(READ_BYTES);
    const callback = (_: number, bytes: Uint8Array) => {
      onResponse(bytes);
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
