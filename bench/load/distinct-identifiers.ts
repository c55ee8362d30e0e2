/**
 * A table that turns over: checks of identifiers that never come again, a hundred in a request, by
 * far more than the table holds, in a window that does not end. So from the first million on every
 * newcomer evicts one. At each tenth it says rate, CPU, and resident memory; the first one fills
 * the table, and those behind it should be flat. Requests are made by putting numbers of one length
 * into prepared bytes, on sockets of our own, since wrk cannot be told how many.
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

/** How far the most of these is from the least, in per cent of the least. */
export function relativeRangePercent(values: readonly number[]): number {
  return (Math.max(...values) / Math.min(...values) - 1) * 100;
}

/** So many requests from this number on, by all connections together. */
export async function sendDistinct(
  server: BenchServer,
  first: number,
  requests: number,
): Promise<void> {
  let following = first;
  const next = () => (following < first + requests ? following++ : undefined);
  await Promise.all(Array.from({ length: CONNECTIONS }, () => runConnection(server.port, next)));
}

/** One request after the other until there is none. */
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
        socket.destroy(new Error(`refused: ${received.slice(0, 400)}`));
        return;
      }
      received = '';
      send();
    });
  });
}

/** A request whose marks are to be written over by its number. */
function prepareRequest(): { bytes: Buffer; places: number[] } {
  const { path, body } = batchWorkload(PER_REQUEST, { limit: 1_000_000, duration: 2_592_000_000 });
  const text = JSON.stringify(body(PLACEHOLDER));
  const whole = requestText(path, text);
  const places = [...whole.matchAll(new RegExp(PLACEHOLDER, 'g'))].map(({ index }) => index);
  return { bytes: Buffer.from(whole, 'latin1'), places };
}
