/**
 * Start and idle costs: time from the start to the first response, with a new and with an existing
 * data directory, and resident memory and CPU when idle.
 */

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT_KEY } from '../support/override-sets.ts';
import { median } from '../support/rounds.ts';
import { cpuSeconds, freePort, residentBytes } from '../support/servers.ts';

const START_ROUNDS = 10;
/** V8 frees memory of the start after some seconds without work. */
const SETTLE_MS = 12_000;
const IDLE_MS = 10_000;
const COUNTERS = [1_048_576, 65_536];

interface StartAndIdleResult {
  starts: { what: string; medianMs: number; maxMs: number }[];
  /** Undefined if there is no /proc. */
  rests: { counters: number; residentMiB: number | undefined; cpuShare: number | undefined }[];
}

export async function measureStartAndIdle(
  progress: (what: string) => void,
): Promise<StartAndIdleResult> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  try {
    const first: number[] = [];
    const again: number[] = [];
    for (let i = 0; i < START_ROUNDS; i++) {
      progress(`starts, ${i + 1} of ${START_ROUNDS}`);
      for (const times of [first, again]) {
        const server = await startWeir(join(directory, String(i)));
        times.push(server.startMs);
        await server.stop();
      }
    }
    const rests = [];
    for (const counters of COUNTERS) {
      progress(`idle, ${counters} counters`);
      const server = await startWeir(join(directory, 'rest'), ['--counters', String(counters)]);
      await sleep(SETTLE_MS);
      const before = cpuSeconds(server.pid);
      await sleep(IDLE_MS);
      const seconds = (cpuSeconds(server.pid) ?? Number.NaN) - (before ?? Number.NaN);
      const bytes = residentBytes(server.pid);
      await server.stop();
      rests.push({
        counters,
        residentMiB: bytes === undefined ? undefined : bytes / 2 ** 20,
        cpuShare: before === undefined ? undefined : seconds / (IDLE_MS / 1e3),
      });
    }
    const starts = [
      { what: 'a first start', times: first },
      { what: 'with an existing directory', times: again },
    ].map(({ what, times }) => {
      return { what, medianMs: median(times), maxMs: Math.max(...times) };
    });
    return { starts, rests };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

interface StartedServer {
  pid: number;
  /** Time from the start of the process to its first response. */
  startMs: number;
  stop: () => Promise<void>;
}

async function startWeir(dataDir: string, args: string[] = []): Promise<StartedServer> {
  const port = await freePort();
  const cli = new URL('../cli.js', import.meta.url).pathname;
  const ports = ['--port', String(port), '--admin-port', '0', '--log-level', 'silent'];
  const startedMs = performance.now();
  const child = spawn(process.execPath, [cli, ...ports, '--data-dir', dataDir, ...args], {
    env: { PATH: process.env.PATH ?? '', WEIR_ROOT_KEY: ROOT_KEY },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  while ((await checkStatus(port)) !== 200) {
    if (child.exitCode !== null) throw new Error('weir did not start');
    await sleep(1);
  }
  const startMs = performance.now() - startedMs;
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return { pid: child.pid ?? 0, startMs, stop };
}

/** @returns the status; 0 while the port is not open */
function checkStatus(port: number): Promise<number> {
  const headers = { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' };
  const target = { host: '127.0.0.1', port, method: 'POST', path: '/v1/ratelimits.limit' };
  return new Promise((resolve) => {
    const check = request({ ...target, headers, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    });
    check.on('error', () => resolve(0));
    check.end('{"identifier":"a","limit":10,"duration":60000}');
  });
}
