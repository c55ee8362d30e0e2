/**
 * HTTP load by wrk if it is installed, else by autocannon. autocannon needs more CPU than the
 * servers, and measures latencies with a resolution of 1 ms. By default there are 10 000
 * identifiers.
 */

import { execFile, spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import { NAMESPACE, ROOT_KEY } from './override-sets.ts';
import { pinned } from './pinning.ts';

export interface LoadMeasurement {
  requests: number;
  seconds: number;
  /** Latencies in us; 0 if the generator does not measure them. */
  p50: number;
  p99: number;
  p999: number;
  /** Undefined if the generator does not measure it. */
  p9999?: number;
  /** The longest latency; undefined if the generator does not measure it. */
  max?: number;
  /** Responses other than 200, and failed connections. */
  errors: number;
}

/** @param timesMs the times of all requests, of at least one */
export function latenciesOf(timesMs: readonly number[]) {
  const sorted = Float64Array.from(timesMs).sort();
  const at = (share: number) => {
    return 1_000 * sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  };
  return { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1) };
}

/** The requests to send. */
export interface Workload {
  path: string;
  body: (identifier: string) => unknown;
  /** Whether X-Identifier repeats the identifier, for servers that do not read bodies. */
  hasHeader?: boolean;
  /** Fixed number of digits in each identifier. Default: as many as its number has. */
  digits?: number;
}

const DEFAULT_FIELDS = { namespace: NAMESPACE, limit: 1_000_000, duration: 60_000, cost: 1 };
const checkWorkload = (isAsync: boolean): Workload => ({
  path: '/v1/ratelimits.limit',
  // `async` is present in both cases, because reading it costs more than the difference it makes.
  body: (identifier) => ({ ...DEFAULT_FIELDS, identifier, async: isAsync }),
});
export const CHECK_WORKLOAD = checkWorkload(false);
export const ASYNC_WORKLOAD = checkWorkload(true);
export const CHECK_V2_WORKLOAD: Workload = {
  path: '/v2/ratelimit.limit',
  body: (identifier) => ({ ...DEFAULT_FIELDS, identifier }),
};
/** Requests of equal length. The limit covers a minute of checks of one identifier. */
const fixedLengthWorkload = (limit: number, duration: number): Workload => ({
  path: CHECK_WORKLOAD.path,
  digits: 7,
  body: (identifier) => ({ ...DEFAULT_FIELDS, identifier, limit, duration }),
});
export const ALLOWED_WORKLOAD = fixedLengthWorkload(50_000_000, 60_000);
/** All checks are denied for ten years, except the first of each identifier. */
export const DENIED_WORKLOAD = fixedLengthWorkload(1, 300_000_000_000);

/** A request as text, for callers that write it to a socket themselves. */
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

/** A batch of `count` checks with distinct identifiers. */
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
  /** The CPU that the generator is pinned to. Default: none. */
  cpu?: number;
}

export interface LoadOptions extends LoadTarget {
  workload: Workload;
  /** Workloads that alternate with `workload`, request by request. */
  alternating?: readonly Workload[];
  /** Requests written at once on a connection. Default: 1. */
  pipelining?: number;
  /** Number of identifiers. More than 20 000 require a workload with `digits`. */
  identifiers?: number;
}

const IDENTIFIERS = 10_000;
const run = promisify(execFile);

export const hasWrk = spawnSync('wrk', ['--version']).error === undefined;
export const GENERATOR = hasWrk ? 'wrk' : 'autocannon';

export function runLoad(options: LoadOptions): Promise<LoadMeasurement> {
  return hasWrk ? runWrkLoad(options) : runAutocannon(options);
}

async function runWrkLoad(options: LoadOptions): Promise<LoadMeasurement> {
  const { workload, alternating = [], pipelining = 1, identifiers = IDENTIFIERS } = options;
  const kinds = [workload, ...alternating].flatMap(({ path, body, hasHeader, digits }) => {
    const identifier = digits === undefined ? 'user_%d' : `user_%0${digits}d`;
    return [path, JSON.stringify(body(identifier)), hasHeader === true ? identifier : ''];
  });
  const figures = await runWrk(options, workload.path, [
    ...['--', ROOT_KEY, String(identifiers), String(pipelining), ...kinds],
  ]);
  // With pipelining wrk corrects latencies by a mean that does not apply to it.
  return pipelining === 1 ? figures : { ...figures, p50: 0, p99: 0, p999: 0, max: 0 };
}

/** Identical GETs of a path, by wrk. */
export function runGetLoad(
  target: LoadTarget,
  path: string,
  headers: Record<string, string>,
): Promise<LoadMeasurement> {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return runWrk(
    target,
    path,
    [],
    lines.flatMap((line) => ['-H', line]),
  );
}

async function runWrk(
  { port, connections, seconds, cpu }: LoadTarget,
  path: string,
  after: readonly string[],
  before: readonly string[] = [],
): Promise<LoadMeasurement> {
  const script = new URL('../../bench/support/wrk.lua', import.meta.url).pathname;
  const [command, args] = pinned(cpu, 'wrk', [
    ...['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '-s', script],
    ...[...before, `http://127.0.0.1:${port}${path}`, ...after],
  ]);
  const { stdout } = await run(command, args);
  const line = stdout.split('\n').find((text) => text.startsWith('{'));
  if (line === undefined) throw new Error(`wrk printed no result: ${stdout}`);
  return JSON.parse(line);
}

/** autocannon does not support `alternating` and `identifiers`. */
async function runAutocannon(options: LoadOptions): Promise<LoadMeasurement> {
  const { port, connections, seconds, workload, pipelining = 1 } = options;
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
