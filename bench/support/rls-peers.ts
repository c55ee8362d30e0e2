/**
 * Other servers of Envoy's rate limit service, where their executables are in the PATH:
 * envoyproxy/ratelimit as `ratelimit`, with a Redis of its own, and limitador as
 * `limitador-server`, with counters in memory.
 */

import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { hasRedis, startRedis } from '../peers/redis-server.ts';
import { pinned } from './pinning.ts';
import { RLS_DOMAIN, RLS_KEYS } from './rls-load.ts';
import { freePort } from './servers.ts';

export interface RlsServer {
  name: string;
  port: number;
  pids: readonly number[];
  stop: () => Promise<void>;
}

const START_MS = 10_000;
const HOST = '127.0.0.1';

/** The rules of the load, in the YAML of envoyproxy/ratelimit. */
export const RLS_RULES = `domain: ${RLS_DOMAIN}
descriptors:
  - key: ${RLS_KEYS.allowed}
    rate_limit: { unit: hour, requests_per_unit: 4000000000 }
  - key: ${RLS_KEYS.denied}
    rate_limit: { unit: hour, requests_per_unit: 0 }
`;

/** `ratelimit` has no option that ends it. */
const isInstalled = (command: string) => spawnSync('which', [command]).status === 0;
export const hasRatelimit = hasRedis && isInstalled('ratelimit');
export const hasLimitador = isInstalled('limitador-server');

/** @param cpu that it is pinned to, without its Redis */
export async function startRatelimit(cpu: number | undefined): Promise<RlsServer> {
  const redis = await startRedis();
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  mkdirSync(join(directory, 'config'));
  writeFileSync(join(directory, 'config', 'rules.yaml'), RLS_RULES);
  const [port, httpPort, debugPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const environment = {
    ...{ HOST, GRPC_HOST: HOST, DEBUG_HOST: HOST },
    ...{ GRPC_PORT: port, PORT: httpPort, DEBUG_PORT: debugPort },
    ...{ USE_STATSD: false, DISABLE_STATS: true, LOG_LEVEL: 'ERROR' },
    ...{ RUNTIME_ROOT: directory, RUNTIME_SUBDIRECTORY: '', RUNTIME_APPDIRECTORY: 'config' },
    ...{ RUNTIME_WATCH_ROOT: false, BACKEND_TYPE: 'redis', REDIS_SOCKET_TYPE: 'tcp' },
    REDIS_URL: `${HOST}:${redis.port}`,
  };
  const env = Object.fromEntries(Object.entries(environment).map(([k, v]) => [k, String(v)]));
  return start('envoyproxy/ratelimit', ['ratelimit', []], { cpu, port, env }, async () => {
    await redis.stop();
    rmSync(directory, { recursive: true, force: true });
  });
}

/** @param cpu that it is pinned to */
export async function startLimitador(cpu: number | undefined): Promise<RlsServer> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const file = join(directory, 'limits.yaml');
  const limit = (key: string, max: number) => {
    const value = `descriptors[0].${key}`;
    return (
      `- namespace: ${RLS_DOMAIN}\n  max_value: ${max}\n  seconds: 3600\n` +
      `  conditions: ['"${key}" in descriptors[0]']\n  variables: ['${value}']\n`
    );
  };
  writeFileSync(file, limit(RLS_KEYS.allowed, 4_000_000_000) + limit(RLS_KEYS.denied, 0));
  const [port, httpPort] = await Promise.all([freePort(), freePort()]);
  const listen = ['--rls-ip', HOST, '--rls-port', String(port), '--http-ip', HOST];
  const args = [...listen, '--http-port', String(httpPort), file, 'memory'];
  return start('limitador', ['limitador-server', args], { cpu, port, env: {} }, async () => {
    rmSync(directory, { recursive: true, force: true });
  });
}

interface StartOptions {
  cpu: number | undefined;
  port: number;
  env: Readonly<Record<string, string>>;
}

async function start(
  name: string,
  [command, args]: [string, string[]],
  { cpu, port, env }: StartOptions,
  cleanUp: () => Promise<void>,
): Promise<RlsServer> {
  const child = spawn(...pinned(cpu, command, args), {
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['ignore', 'ignore', 'ignore'],
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    await cleanUp();
  };
  const deadline = performance.now() + START_MS;
  while (!(await isListening(port))) {
    if (performance.now() < deadline && child.exitCode === null) await sleep(50);
    else {
      await stop();
      throw new Error(`${name} did not start`);
    }
  }
  return { name, port, pids: [child.pid ?? 0], stop };
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: HOST, port }, () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
