/**
 * What the server takes before it has anything to do: from its start to its first answer, with a
 * directory that it makes and with one that is there; resident memory at rest, and CPU.
 */

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as after } from 'node:timers/promises';
import { median } from '../micro/thread-scaling.ts';
import { ROOT_KEY } from '../support/override-sets.ts';
import { cpuSeconds, residentBytes } from '../support/servers.ts';

const START_ROUNDS = 10;
/** Until V8 has tidied up behind the start, which it does when nothing comes for some seconds. */
const SETTLE_MS = 12_000;
const IDLE_MS = 10_000;
const COUNTERS = [1_048_576, 65_536];

export interface StartAndIdleResult {
  starts: { what: string; medianMs: number; mostMs: number }[];
  /** Undefined where there is no /proc. */
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
      progress(`at rest, ${counters} counters`);
      const server = await startWeir(join(directory, 'rest'), ['--counters', String(counters)]);
      await after(SETTLE_MS);
      const before = cpuSeconds(server.pid);
      await after(IDLE_MS);
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
      { what: 'with a directory that is there', times: again },
    ].map(({ what, times }) => {
      return { what, medianMs: median(times), mostMs: Math.max(...times) };
    });
    return { starts, rests };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

interface StartedServer {
  pid: number;
  /** From the start of the process to its first answer. */
  startMs: number;
  stop: () => Promise<void>;
}

async function startWeir(dataDir: string, more: string[] = []): Promise<StartedServer> {
  const port = await freePort();
  const cli = new URL('../cli.js', import.meta.url).pathname;
  const ports = ['--port', String(port), '--admin-port', '0', '--log-level', 'silent'];
  const begun = performance.now();
  const child = spawn(process.execPath, [cli, ...ports, '--data-dir', dataDir, ...more], {
    env: { PATH: process.env.PATH ?? '', WEIR_ROOT_KEY: ROOT_KEY },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  while ((await checkStatus(port)) !== 200) {
    if (child.exitCode !== null) throw new Error('weir did not start');
    await after(1);
  }
  const startMs = performance.now() - begun;
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return { pid: child.pid ?? 0, startMs, stop };
}

/** @returns the status, 0 while nobody listens */
function checkStatus(port: number): Promise<number> {
  const headers = { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' };
  const to = { host: '127.0.0.1', port, method: 'POST', path: '/v1/ratelimits.limit' };
  return new Promise((resolve) => {
    const asking = request({ ...to, headers, agent: false }, (answer) => {
      answer.resume();
      answer.on('end', () => resolve(answer.statusCode ?? 0));
    });
    asking.on('error', () => resolve(0));
    asking.end('{"identifier":"a","limit":10,"duration":60000}');
  });
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
