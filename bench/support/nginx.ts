/**
 * nginx with one worker process that counts identifiers with `limit_req`, at a rate that denies
 * nothing, and sends a constant response. The key is the header X-Identifier, because nginx does
 * not read bodies. `limit_req` runs in a later phase than `return` in the same location. Therefore
 * `try_files` leads to a second location with the `return`. At the start a third location with a
 * low rate proves that the limit applies, and for each identifier separately.
 */

import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CONSTANT_RESPONSE } from './constant-response.ts';
import { CHECK_WORKLOAD, type Workload } from './load-generator.ts';
import { pinned } from './pinning.ts';
import { type BenchServer, freePort } from './servers.ts';

export const hasNginx = spawnSync('nginx', ['-v']).error === undefined;

const START_MS = 5_000;

const nginxConfiguration = (directory: string, port: number) => `
worker_processes 1;
${process.getuid?.() === 0 ? `user ${userInfo().username};` : ''}
pid ${directory}/pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
  access_log off;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${directory}/${kind};`)
    .join(' ')}
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  # Makes try_files access the file system only once.
  open_file_cache max=8 inactive=1h;
  open_file_cache_valid 1h;
  open_file_cache_errors on;
  default_type application/json;
  limit_req_status 429;
  limit_req_zone $http_x_identifier zone=fast:16m rate=1000000r/s;
  limit_req_zone $http_x_identifier zone=slow:1m rate=1r/m;
  server {
    listen 127.0.0.1:${port};
    root ${directory};
    location / { limit_req zone=fast burst=1000000 nodelay; try_files /none @answer; }
    location /slow { limit_req zone=slow; try_files /none @answer; }
    location @answer { return 200 '${CONSTANT_RESPONSE}'; }
  }
}
`;

export async function nginx(
  name: string,
  workload: Workload = { ...CHECK_WORKLOAD, hasHeader: true },
  cpu?: number,
): Promise<BenchServer> {
  const server = await startNginx(nginxConfiguration, cpu);
  try {
    await assertDenies(server.port);
  } catch (error) {
    await server.stop();
    throw error;
  }
  return { ...server, name, workload };
}

/** @param text returns a whole configuration that listens on the port */
export async function startNginx(
  text: (directory: string, port: number) => string,
  cpu?: number,
): Promise<Omit<BenchServer, 'name' | 'workload'>> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const port = await freePort();
  const file = join(directory, 'nginx.conf');
  writeFileSync(file, text(directory, port));
  const args = ['-p', directory, '-c', file, '-g', 'daemon off;'];
  const child = spawn(...pinned(cpu, 'nginx', args), {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    await waitUntilListening(port);
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, process: child, pids: processTree(child.pid ?? 0), stop };
}

async function waitUntilListening(port: number): Promise<void> {
  const deadline = performance.now() + START_MS;
  for (;;) {
    try {
      await fetch(`http://127.0.0.1:${port}/`, { method: 'POST' });
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(20);
    }
  }
}

async function assertDenies(port: number): Promise<void> {
  const statuses: number[] = [];
  for (const identifier of ['user_1', 'user_1', 'user_2']) {
    const headers = { 'X-Identifier': identifier };
    const url = `http://127.0.0.1:${port}/slow`;
    const response = await fetch(url, { method: 'POST', headers, body: '{}' });
    await response.arrayBuffer();
    statuses.push(response.status);
  }
  if (statuses.join() !== '200,429,200') throw new Error(`nginx does not limit: ${statuses}`);
}

/** A process and its children; the process alone if there is no /proc. */
function processTree(pid: number): number[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return [pid, ...children.split(' ').filter(Boolean).map(Number)];
  } catch {
    return [pid];
  }
}
