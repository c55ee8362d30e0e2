/**
 * Constant eviction: batches of 100 checks of ever new identifiers, far more than the table holds,
 * in a window that does not end. After about the first million, every new counter evicts another.
 * Each tenth reports rate, CPU and resident memory. The first tenth fills the table; the others
 * should not differ. Numbers of equal length are written into prepared requests on the benchmark's
 * own sockets, because wrk cannot send a given number of requests.
 */

import { connect } from 'node:net';
import { batchWorkload, requestText } from '../support/load-generator.ts';
import { type BenchServer, cpuSeconds, residentBytes, startWeir } from '../support/servers.ts';

const COUNTERS = 1_048_576;
export const PER_REQUEST = 100;
const CONNECTIONS = 8;
const TENTHS = 10;
const PLACEHOLDER = '########';

export const DISTINCT_DEFAULT = 100_000_000;
export interface DistinctTenth {
  identifiers: number;
  checksPerSecond: number;
  cpuPerCheck: number;
  residentMiB: number;
}

export async function measureDistinct(
  identifiers: number,
  onTenth: (tenth: DistinctTenth) => void,
): Promise<DistinctTenth[]> {
  const server = await startWeir('weir', 'in-place', { args: ['--counters', String(COUNTERS)] });
  const pid = server.process.pid ?? 0;
  try {
    const requests = Math.ceil(identifiers / PER_REQUEST / TENTHS);
    const tenths: DistinctTenth[] = [];
    for (let i = 0; i < TENTHS; i++) {
      const cpu = cpuSeconds(pid) ?? 0;
      const startedMs = performance.now();
      await sendDistinct(server, i * requests, requests);
      const seconds = (performance.now() - startedMs) / 1e3;
      const checks = requests * PER_REQUEST;
      const tenth = {
        identifiers: (i + 1) * checks,
        checksPerSecond: checks / seconds,
        cpuPerCheck: (((cpuSeconds(pid) ?? 0) - cpu) / checks) * 1e6,
        residentMiB: (residentBytes(pid) ?? 0) / 2 ** 20,
      };
      tenths.push(tenth);
      onTenth(tenth);
    }
    return tenths;
  } finally {
    await server.stop();
  }
}

/** The difference between maximum and minimum, in percent of the minimum. */
export function relativeRangePercent(values: readonly number[]): number {
  return (Math.max(...values) / Math.min(...values) - 1) * 100;
}

/** Sends requests numbered from `first`, over all connections together. */
export async function sendDistinct(
  server: BenchServer,
  first: number,
  requests: number,
): Promise<void> {
  let nextNumber = first;
  const next = () => (nextNumber < first + requests ? nextNumber++ : undefined);
  await Promise.all(Array.from({ length: CONNECTIONS }, () => runConnection(server.port, next)));
}

/** Sends one request after the other until `next` returns undefined. */
function runConnection(port: number, next: () => number | undefined): Promise<void> {
  const { bytes, places } = prepareRequest();
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let received = '';
    const send = () => {
      const number = next();
      if (number === undefined) {
        socket.removeAllListeners('close').destroy();
        resolve();
        return;
      }
      const digits = Buffer.from(String(number).padStart(PLACEHOLDER.length, '0'), 'latin1');
      for (const place of places) digits.copy(bytes, place);
      socket.write(bytes);
    };
    socket.setNoDelay(true).setEncoding('latin1');
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('the connection was closed')));
    socket.on('connect', send);
    socket.on('data', (data) => {
      received += data;
      const bodyAt = received.indexOf('\r\n\r\n') + 4;
      if (bodyAt < 4) return;
      const length = /content-length: (\d+)/i.exec(received);
      if (received.length < bodyAt + Number(length?.[1])) return;
      if (!received.includes('"passed":true')) {
        socket.destroy(new Error(`denied: ${received.slice(0, 400)}`));
        return;
      }
      received = '';
      send();
    });
  });
}

/** A request with placeholders, and their positions. */
function prepareRequest(): { bytes: Buffer; places: number[] } {
  const { path, body } = batchWorkload(PER_REQUEST, { limit: 1_000_000, duration: 2_592_000_000 });
  const text = JSON.stringify(body(PLACEHOLDER));
  const whole = requestText(path, text);
  const places = [...whole.matchAll(new RegExp(PLACEHOLDER, 'g'))].map(({ index }) => index);
  return { bytes: Buffer.from(whole, 'latin1'), places };
}
