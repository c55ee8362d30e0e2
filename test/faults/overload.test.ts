/** Ten times as many checks as a small server can answer: all are answered, and it is soon well. */

import { execFile, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { limitCpu } from '../support/cpu-limit.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, recordMeasurement } from '../support/guarantees.ts';
import { LONGEST_WINDOW_MS, readMetric, readMetrics, sendRequest } from '../support/http.ts';
import { ROOT_KEY, type ServerProcess, waitUntil } from '../support/server.ts';

const run = promisify(execFile);
/** Where it is not installed the test is skipped, but not where nothing may be. */
const noH2load =
  spawnSync('h2load', ['--version']).error !== undefined && process.env.CI === undefined;

/** Of a core. */
const SHARE = 0.1;
const SECONDS = IS_LONG ? 60 : 2;
const CONNECTIONS = { some: 32, many: 512 };
const LOAD_TIMES = 10;
/**
 * What of its work for a second on a core must be left under load and after it: a server that
 * breaks down does a few percent, or nothing. The quick form has a fifth of a second on a core, of
 * which a collection of garbage or a compilation is a good part.
 */
const LEFT = IS_LONG ? 1 / 2 : 1 / 4;

const own = useDataDirectory(['--acceptors', '1', '--workers', '1', '--counters', '65536']);

interface LoadOptions {
  connections: number;
  seconds?: number;
  requests?: number;
  /** Requests a second of all connections, whether or not they are answered. */
  rate?: number;
}

interface LoadResult {
  statuses: Record<string, number>;
  answers: number;
  perSecond: number;
  /** Of the server's time on a core: what others take of the machine does not change it. */
  perCpuSecond: number;
  medianMs: number;
  p99Ms: number;
}

async function runH2load(server: ServerProcess, load: LoadOptions): Promise<LoadResult> {
  const { connections, seconds, requests, rate } = load;
  const body = join(own.dataDir, 'body');
  const log = join(own.dataDir, `log-${performance.now()}`);
  writeFileSync(
    body,
    JSON.stringify({ identifier: 'a', limit: 1e12, duration: LONGEST_WINDOW_MS }),
  );
  const cpuSeconds = () => readMetric(server.adminUrl, 'process_cpu_seconds_total');
  const began = performance.now();
  const beganCpu = await cpuSeconds();
  await run('h2load', [
    ...['--h1', '-t', '1', '-c', String(connections)],
    ...(requests === undefined ? ['-D', String(seconds)] : ['-n', String(requests)]),
    ...(rate === undefined ? [] : ['--rps', String(rate / connections)]),
    ...['-H', `Authorization: Bearer ${ROOT_KEY}`, '-d', body, `--log-file=${log}`],
    `${server.url}/v1/ratelimits.limit`,
  ]);
  const tookS = (performance.now() - began) / 1_000;
  const tookCpuS = (await cpuSeconds()) - beganCpu;
  const rows = readFileSync(log, 'latin1').trimEnd().split('\n');
  const statuses: Record<string, number> = {};
  const times = Float64Array.from(rows, (row) => {
    const [, status, us] = row.split('\t');
    statuses[status] = (statuses[status] ?? 0) + 1;
    return Number(us) / 1_000;
  }).sort();
  const at = (share: number) => Math.round(times[Math.floor((times.length - 1) * share)] * 10) / 10;
  const perSecond = Math.round(rows.length / (seconds ?? tookS));
  const perCpuSecond = Math.round(rows.length / tookCpuS);
  return {
    statuses,
    answers: rows.length,
    perSecond,
    perCpuSecond,
    medianMs: at(0.5),
    p99Ms: at(0.99),
  };
}

test.skipIf(noH2load)(
  'ten times capacity: all is answered, as much as ever is done, and soon it is as before',
  async () => {
    const server = await own.start();
    const normal = { connections: CONNECTIONS.some, seconds: 1 };
    // Compiled while it has time.
    await runH2load(server, normal);
    const quota = limitCpu(server.child, SHARE);
    const before = await runH2load(server, normal);
    // As many connections, each of which waits for its answer: the most that can be done for them.
    const peak = await runH2load(server, { connections: CONNECTIONS.many, seconds: 1 });
    const requests = before.perSecond * SECONDS;
    const rate = before.perSecond * LOAD_TIMES;
    // Somebody else, and a look at the admin port, in the midst of it.
    let beside = 0;
    let slowestMs = 0;
    let over = false;
    const aside = (async () => {
      while (!over) {
        const began = performance.now();
        const body = JSON.stringify({ identifier: 'b', limit: 1e12, duration: LONGEST_WINDOW_MS });
        expect((await sendRequest(server.port, { body })).status).toBe(200);
        expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
        slowestMs = Math.max(slowestMs, performance.now() - began);
        beside++;
      }
    })();
    const loaded = await runH2load(server, { connections: CONNECTIONS.many, requests, rate });
    over = true;
    await aside;
    const after = await runH2load(server, normal);

    // It is small still, and closes them as it comes to it.
    await waitUntil('all connections are closed', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
    });
    const figures = await readMetrics(server.adminUrl);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    quota.remove();
    const percent = (share: number) => `${Math.round(100 * share)} %`;
    const goodput = percent(loaded.perSecond / peak.perSecond);
    const perCpu = percent(loaded.perCpuSecond / peak.perCpuSecond);
    const again = percent(after.perSecond / before.perSecond);
    const fault = `${LOAD_TIMES} times capacity for ${SECONDS} s, ${SHARE} of a core`;
    const counts = JSON.stringify(loaded.statuses);
    recordMeasurement(
      'P3',
      fault,
      `${requests} checks by ${CONNECTIONS.many} connections`,
      `answered ${loaded.answers} ${counts}, p50 ${loaded.medianMs} ms, p99 ${loaded.p99Ms} ms;` +
        ` ${beside} beside them, the slowest in ${Math.round(slowestMs)} ms`,
    );
    recordMeasurement(
      'P8',
      fault,
      `small by ${quota.mechanism}: ${before.perSecond} checks/s, p99 ${before.p99Ms} ms`,
      `under it ${goodput} of ${peak.perSecond} (${perCpu} for its time on a core),` +
        ` right after it ${again} of ${before.perSecond}, p99 ${after.p99Ms} ms`,
    );
    expect(loaded.answers).toBe(requests);
    expect(
      Object.keys(loaded.statuses).filter((status) => !['200', '503'].includes(status)),
    ).toEqual([]);
    expect(beside).toBeGreaterThan(0);
    expect(figures.get('weir_live_evictions_total')).toBe(0);
    expect(loaded.perCpuSecond).toBeGreaterThan(peak.perCpuSecond * LEFT);
    expect(after.perCpuSecond).toBeGreaterThan(before.perCpuSecond * LEFT);
  },
  300_000,
);
