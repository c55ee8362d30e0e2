/**
 * Load by h2load, which supports what wrk does not: a Unix socket, and a rate that does not wait
 * for responses. It logs the latency of each request, from which any percentile is computed. All
 * requests are the same, so they use one identifier. At a given rate each connection checks every
 * 10 ms for due requests, and sends them one after the other. Arrivals are therefore bursts, and
 * the wait in the generator is not part of the latency; poisson-load.ts does not have these
 * limitations.
 */

import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { LoadMeasurement, Workload } from './load-generator.ts';
import { ROOT_KEY } from './override-sets.ts';
import { pinned } from './pinning.ts';

const run = promisify(execFile);

export const hasH2load = spawnSync('h2load', ['--version']).error === undefined;

interface H2loadOptions {
  /** A port of this machine, or the path of a Unix socket. */
  target: number | string;
  workload: Workload;
  connections: number;
  seconds: number;
  /** Requests per second on all connections together. Default: as fast as responses arrive. */
  rate?: number;
  /** The CPU that h2load is pinned to. Default: none. */
  cpu?: number;
}

export async function runH2load(options: H2loadOptions): Promise<LoadMeasurement> {
  const { target, workload, connections, seconds, rate, cpu } = options;
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const body = join(directory, 'body');
  const log = join(directory, 'log');
  try {
    writeFileSync(body, JSON.stringify(workload.body(singleIdentifier(workload))));
    const [command, args] = pinned(cpu, 'h2load', [
      ...['--h1', '-t', '1', '-c', String(connections), '-D', String(seconds)],
      ...(rate === undefined ? [] : ['--rps', String(rate / connections)]),
      ...['-H', `Authorization: Bearer ${ROOT_KEY}`, '-H', 'Content-Type: application/json'],
      ...(workload.hasHeader ? ['-H', `X-Identifier: ${singleIdentifier(workload)}`] : []),
      ...['-d', body, `--log-file=${log}`],
      ...(typeof target === 'string' ? [`--base-uri=unix:${target}`] : []),
      `http://127.0.0.1${typeof target === 'number' ? `:${target}` : ''}${workload.path}`,
    ]);
    await run(command, args);
    return parseLog(readFileSync(log, 'latin1'), seconds);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

const singleIdentifier = ({ digits = 1 }: Workload) => `user_${'1'.padStart(digits, '0')}`;

/** @param log a line for each request: start time, status, and latency in us */
function parseLog(log: string, seconds: number): LoadMeasurement {
  const rows = log.trimEnd().split('\n');
  let errors = 0;
  const times = Float64Array.from(rows, (row) => {
    const [, status, latencyUs] = row.split('\t');
    if (status !== '200') errors++;
    return Number(latencyUs);
  }).sort();
  const at = (share: number) => times[Math.min(times.length - 1, Math.floor(times.length * share))];
  return {
    requests: times.length,
    seconds,
    p50: at(0.5),
    p99: at(0.99),
    p999: at(0.999),
    p9999: at(0.9999),
    max: at(1),
    errors,
  };
}
