/**
 * Load over HTTP: wrk where it is installed, else autocannon, which needs more CPU than the servers
 * do and knows latencies by the millisecond. Identifiers are drawn from 10 000 where nothing else
 * is said.
 */

import { execFile, spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import { NAMESPACE, ROOT_KEY } from './override-sets.ts';

export interface LoadMeasurement {
  requests: number;
  seconds: number;
  /** Latencies in us, 0 where the generator cannot tell. */
  p50: number;
  p99: number;
  p999: number;
  /** Where the generator tells it. */
  p9999?: number;
  /** Answers other than 200, and connections that broke. */
  errors: number;
}

/** What the requests ask. */
export interface Workload {
  path: string;
  body: (identifier: string) => unknown;
  /** Whether a header X-Identifier says it too, for servers that do not look into bodies. */
  hasHeader?: boolean;
  /** Of the number that is in each identifier, with zeros before it; else as many as it has. */
  digits?: number;
}

const DEFAULT_FIELDS = { namespace: NAMESPACE, limit: 1_000_000, duration: 60_000, cost: 1 };
const checkWorkload = (isAsync: boolean): Workload => ({
  path: '/v1/ratelimits.limit',
  // `async` is said in both cases: to read it costs more than the difference that it makes.
  body: (identifier) => ({ ...DEFAULT_FIELDS, identifier, async: isAsync }),
});
export const CHECK_WORKLOAD = checkWorkload(false);
export const ASYNC_WORKLOAD = checkWorkload(true);
export const CHECK_V2_WORKLOAD: Workload = {
  path: '/v2/ratelimit.limit',
  body: (identifier) => ({ ...DEFAULT_FIELDS, identifier }),
};
/** Requests of one length; the limit holds for a minute of checks of one identifier. */
const fixedLengthWorkload = (limit: number, duration: number): Workload => ({
  path: CHECK_WORKLOAD.path,
  digits: 7,
  body: (identifier) => ({ ...DEFAULT_FIELDS, identifier, limit, duration }),
});
export const ALLOWED_WORKLOAD = fixedLengthWorkload(50_000_000, 60_000);
/** All but the first of each identifier, for ten years. */
export const DENIED_WORKLOAD = fixedLengthWorkload(1, 300_000_000_000);

/** A request as it goes over the wire, for whoever writes it there without a generator. */
export function requestText(path: string, body: string): string {
  const head = [
    `POST ${path} HTTP/1.1`,
    'Host: 127.0.0.1',
    `Authorization: Bearer ${ROOT_KEY}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ];
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

/** So many checks, of as many identifiers. */
export function batchWorkload(count: number, more: Partial<typeof DEFAULT_FIELDS> = {}): Workload {
  const body = (identifier: string) => {
    const one = (i: number) => ({ ...DEFAULT_FIELDS, ...more, identifier: `${identifier}_${i}` });
    return Array.from({ length: count }, (_, i) => one(i));
  };
  return { path: '/v2/ratelimit.multiLimit', body };
}

interface LoadTarget {
  port: number;
  connections: number;
  seconds: number;
}

export interface LoadOptions extends LoadTarget {
  workload: Workload;
  /** Others, request by request in turn with it. */
  alternating?: readonly Workload[];
  /** Requests that are written at once on a connection; 1 if left out. */
  pipelining?: number;
  /** How many identifiers; beyond 20 000 the workload must have `digits`. */
  identifiers?: number;
}

const IDENTIFIERS = 10_000;
const run = promisify(execFile);

export const hasWrk = spawnSync('wrk', ['--version']).error === undefined;
export const GENERATOR = hasWrk ? 'wrk' : 'autocannon';

export function runLoad(wanted: LoadOptions): Promise<LoadMeasurement> {
  return hasWrk ? runWrkLoad(wanted) : runAutocannon(wanted);
}

async function runWrkLoad(wanted: LoadOptions): Promise<LoadMeasurement> {
  const { workload, alternating = [], pipelining = 1, identifiers = IDENTIFIERS } = wanted;
  const kinds = [workload, ...alternating].flatMap(({ path, body, hasHeader, digits }) => {
    const identifier = digits === undefined ? 'user_%d' : `user_%0${digits}d`;
    return [path, JSON.stringify(body(identifier)), hasHeader === true ? identifier : ''];
  });
  const figures = await runWrk(wanted, workload.path, [
    ...['--', ROOT_KEY, String(identifiers), String(pipelining), ...kinds],
  ]);
  // It fills in what it takes for left out, by a mean that is wrong where several are at once.
  return pipelining === 1 ? figures : { ...figures, p50: 0, p99: 0, p999: 0 };
}

/** GETs of a path, by wrk, all alike. */
export function runGetLoad(
  at: LoadTarget,
  path: string,
  headers: Record<string, string>,
): Promise<LoadMeasurement> {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return runWrk(
    at,
    path,
    [],
    lines.flatMap((line) => ['-H', line]),
  );
}

async function runWrk(
  { port, connections, seconds }: LoadTarget,
  path: string,
  behind: readonly string[],
  before: readonly string[] = [],
): Promise<LoadMeasurement> {
  const script = new URL('./wrk.lua', import.meta.url).pathname;
  const { stdout } = await run('wrk', [
    ...['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '-s', script],
    ...[...before, `http://127.0.0.1:${port}${path}`, ...behind],
  ]);
  const line = stdout.split('\n').find((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(`wrk said: ${stdout}`);
  return JSON.parse(line);
}

/** Of what can be wanted it has no several workloads, and no bound of identifiers. */
async function runAutocannon(wanted: LoadOptions): Promise<LoadMeasurement> {
  const { port, connections, seconds, workload, pipelining = 1 } = wanted;
  const script = createRequire(import.meta.url).resolve('autocannon/autocannon.js');
  const { stdout } = await run(process.execPath, [
    ...[script, '--json', '--no-progress', '-m', 'POST', '-p', String(pipelining)],
    ...['-c', String(connections), '-d', String(seconds)],
    ...['-H', `Authorization=Bearer ${ROOT_KEY}`, '-H', 'Content-Type=application/json'],
    ...['-b', JSON.stringify(workload.body('user_[<id>]')), '--idReplacement'],
    `http://127.0.0.1:${port}${workload.path}`,
  ]);
  const { requests, latency, duration, non2xx, errors } = JSON.parse(stdout);
  return {
    requests: requests.total,
    seconds: duration,
    p50: latency.p50 * 1e3,
    p99: latency.p99 * 1e3,
    p999: latency.p99_9 * 1e3,
    errors: non2xx + errors,
  };
}
