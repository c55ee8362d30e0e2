/**
 * throttlecrab-server, a rate limiter in Rust, with its HTTP transport and otherwise its defaults,
 * but a log of errors alone. At the start a limit of two proves that it applies. Installed by
 * `cargo install throttlecrab-server`, where its executable is in the PATH.
 */

import { spawn, spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Workload } from './load-generator.ts';
import { pinned } from './pinning.ts';
import { type BenchServer, freePort } from './servers.ts';

const COMMAND = 'throttlecrab-server';
const START_MS = 5_000;

const PATH = '/throttle';
/** As many tokens in a minute as for the other servers. */
const LIMIT = { max_burst: 1_000_000, count_per_period: 1_000_000, period: 60, quantity: 1 };
const WORKLOAD: Workload = { path: PATH, body: (key) => ({ key, ...LIMIT }) };

export const hasThrottlecrab = spawnSync(COMMAND, ['--version']).error === undefined;

export async function startThrottlecrab(name: string, cpu?: number): Promise<BenchServer> {
  const port = await freePort();
  const args = ['--http', '--http-host', '127.0.0.1', '--http-port', String(port)];
  const child = spawn(...pinned(cpu, COMMAND, [...args, '--log-level', 'error']), {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  const server = {
    name,
    port,
    workload: WORKLOAD,
    process: child,
    pids: [child.pid ?? 0],
    stop,
  };
  try {
    await assertDenies(port);
    return server;
  } catch (error) {
    await stop();
    throw error;
  }
}

async function assertDenies(port: number): Promise<void> {
  const deadline = performance.now() + START_MS;
  const isAllowed = async (key: string) => {
    const response = await fetch(`http://127.0.0.1:${port}${PATH}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ key, max_burst: 2, count_per_period: 2, period: 60 }),
    });
    const { allowed } = (await response.json()) as { allowed: boolean };
    return allowed;
  };
  while (performance.now() < deadline) {
    try {
      await isAllowed('first');
      break;
    } catch {
      await sleep(20);
    }
  }
  const allowed: boolean[] = [];
  // Not a limit of one: 0.4.40 does not apply it.
  for (const key of ['a', 'a', 'a', 'b']) allowed.push(await isAllowed(key));
  if (allowed.join() !== 'true,true,false,true')
    throw new Error(`${COMMAND} does not limit: ${allowed}`);
}
