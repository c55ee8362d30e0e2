/**
 * Requests on holds over HTTP/1.1, which wrk cannot send: the second request of a pair has the id
 * in the response to the first. Each connection sends one request after the other. What is counted
 * is units: a check, or a pair.
 */

import { connect } from 'node:net';
import { type LoadMeasurement, latenciesOf, requestText } from './load-generator.ts';
import { NAMESPACE } from './override-sets.ts';

const TERMS = { namespace: NAMESPACE, limit: 50_000_000 };
const CHECK = { ...TERMS, duration: 60_000, cost: 1 };

/** One unit of work: a request, or a pair of which the second has the id from the first. */
interface HoldUnit {
  path: string;
  body: object;
  /** Undefined: there is no second request. */
  end?: { path: string; idField: string; body: object };
}

export const HOLD_UNITS = {
  check: { path: '/v1/ratelimits.limit', body: CHECK },
  'reserve and commit': {
    path: '/v1/ratelimits.reserve',
    body: { ...CHECK, ttl: 60_000 },
    end: { path: '/v1/ratelimits.commit', idField: 'reservationId', body: { cost: 1 } },
  },
  'acquire and release': {
    path: '/v1/ratelimits.acquire',
    body: { ...TERMS, ttl: 60_000 },
    end: { path: '/v1/ratelimits.release', idField: 'leaseId', body: {} },
  },
} as const satisfies Record<string, HoldUnit>;

export interface HoldLoad {
  port: number;
  unit: HoldUnit;
  connections: number;
  identifiers: number;
  seconds: number;
}

/** @returns the units as requests; their latencies are those of whole units */
export async function runHoldLoad(load: HoldLoad): Promise<LoadMeasurement> {
  const times: number[] = [];
  const results = { requests: 0, errors: 0 };
  const start = performance.now();
  const endMs = start + 1_000 * load.seconds;
  await Promise.all(
    Array.from({ length: load.connections }, (_, number) => {
      return runConnection(load, number, endMs, times, results);
    }),
  );
  const seconds = (performance.now() - start) / 1_000;
  return { ...results, seconds, ...latenciesOf(times) };
}

function runConnection(
  { port, unit, identifiers }: HoldLoad,
  number: number,
  endMs: number,
  times: number[],
  results: { requests: number; errors: number },
): Promise<void> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true });
  let identifier = number * 7_919;
  let sentMs = 0;
  let isSecond = false;
  const begin = () => {
    sentMs = performance.now();
    isSecond = false;
    if (sentMs >= endMs) {
      socket.end();
      return;
    }
    identifier = (identifier + 7_919) % identifiers;
    const body = { ...unit.body, identifier: `user_${identifier}` };
    socket.write(requestText(unit.path, JSON.stringify(body)));
  };
  const receive = (response: string) => {
    const isSuccess = /"success":true|"released":1/.test(response);
    if (!response.startsWith('HTTP/1.1 200') || !isSuccess) results.errors++;
    const { end } = unit;
    if (end !== undefined && !isSecond) {
      const id = response.split(`"${end.idField}":"`)[1]?.split('"')[0];
      isSecond = true;
      socket.write(requestText(end.path, JSON.stringify({ ...end.body, [end.idField]: id })));
      return;
    }
    results.requests++;
    times.push(performance.now() - sentMs);
    begin();
  };
  return new Promise((resolve, reject) => {
    let text = '';
    socket.setEncoding('latin1');
    socket.on('connect', begin);
    socket.on('error', reject);
    socket.on('close', () => resolve());
    socket.on('data', (chunk: string) => {
      text += chunk;
      const headEnd = text.indexOf('\r\n\r\n');
      if (headEnd < 0) return;
      const length = Number(/content-length: (\d+)/i.exec(text.slice(0, headEnd))?.[1]);
      if (text.length < headEnd + 4 + length) return;
      const response = text;
      text = '';
      receive(response);
    });
  });
}
