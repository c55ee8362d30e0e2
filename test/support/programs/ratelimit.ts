/**
 * The rate limit service of envoyproxy/ratelimit, on free ports and with a Redis of its own. No
 * registry has its program, so the variable WEIR_TEST_RATELIMIT names it. Tests without it are
 * skipped, also in CI.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { RlsClient } from '../rls/client.ts';
import { type Hits, type RuleFiles, writeFiles } from '../rls/rls-server.ts';
import { freePort, removeDirectory, temporaryDirectory, waitUntil } from '../server.ts';
import { startRedis } from './redis.ts';

const PROGRAM = process.env.WEIR_TEST_RATELIMIT;

/** Whether to skip tests with it. */
export const isRatelimitMissing = PROGRAM === undefined;

export interface Ratelimit {
  rls: RlsClient;
  jsonUrl: string;
  /** The hits of limits until a second ago. */
  hits: () => Hits;
  close: () => Promise<void>;
}

/** @param settings values of its environment. Starts it, and waits until it answers. */
export async function startRatelimit(
  files: RuleFiles,
  settings: Readonly<Record<string, string>>,
): Promise<Ratelimit> {
  const directory = temporaryDirectory();
  const folder = join(directory, 'config');
  mkdirSync(folder);
  writeFiles(folder, files);
  const redis = await startRedis();
  const [port, grpcPort, debugPort] = [await freePort(), await freePort(), await freePort()];
  const env = {
    ...{ HOST: '127.0.0.1', PORT: String(port), DEBUG_HOST: '127.0.0.1' },
    ...{ GRPC_HOST: '127.0.0.1', GRPC_PORT: String(grpcPort), DEBUG_PORT: String(debugPort) },
    ...{
      USE_STATSD: 'false',
      STATS_FLUSH_INTERVAL: '1s',
      LOG_LEVEL: 'WARN',
      RUNTIME_ROOT: directory,
    },
    ...{ RUNTIME_SUBDIRECTORY: '', RUNTIME_APPDIRECTORY: 'config', RUNTIME_WATCH_ROOT: 'false' },
    ...{ BACKEND_TYPE: 'redis', REDIS_SOCKET_TYPE: 'tcp', REDIS_URL: `127.0.0.1:${redis.port}` },
    ...settings,
  };
  const child: ChildProcess = spawn('setpriv', ['--pdeathsig', 'KILL', PROGRAM!], {
    env: { PATH: process.env.PATH, ...env } as NodeJS.ProcessEnv,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let log = '';
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.on('data', (data) => {
      log += data;
    });
  }
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const jsonUrl = `http://127.0.0.1:${port}`;
  await waitUntil('envoyproxy/ratelimit answers', async () => {
    if (child.exitCode !== null) throw new Error(`it ended: ${log}`);
    const response = await fetch(`${jsonUrl}/healthcheck`).catch(() => undefined);
    return response?.status === 200;
  });
  const rls = new RlsClient(`127.0.0.1:${grpcPort}`);
  return {
    rls,
    jsonUrl,
    hits: () => hitsIn(log),
    close: async () => {
      rls.close();
      child.kill('SIGKILL');
      await exited;
      await redis.close();
      removeDirectory(directory);
    },
  };
}

/** Its log has what was added to each counter since the second before. */
function hitsIn(log: string): Hits {
  const hits: Hits = {};
  for (const line of log.split('\n').slice(0, -1)) {
    if (!line.includes('"flushing counter"')) continue;
    const { name, value } = JSON.parse(line).json as { name: string; value: string };
    const [, path, result] = /^ratelimit\.service\.rate_limit\.(.*)\.(\w+)$/.exec(name) ?? [];
    if (path === undefined || Number(value) === 0 || result === 'domain_not_found') continue;
    hits[path] ??= {};
    hits[path][result] = (hits[path][result] ?? 0) + Number(value);
  }
  return hits;
}
