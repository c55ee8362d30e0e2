/**
 * A private Redis: loopback, a free port, a temporary directory, no persistence. Redis alone is
 * measured with redis-benchmark, which speaks its protocol: INCR, and the script that counts.
 */

import { execFile, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { LoadMeasurement } from '../support/load-generator.ts';
import type { Contestant } from '../support/rounds.ts';
import { freePort } from '../support/servers.ts';

const run = promisify(execFile);

const IDENTIFIERS = 10_000;
const DURATION_MS = '60000';
/** Approximate throughput: redis-benchmark takes a number of requests, not a duration. */
const REQUESTS_PER_SECOND = { one: 20_000, many: 100_000 };

export const hasRedis = ['redis-server', 'redis-benchmark', 'redis-cli'].every((name) => {
  return spawnSync(name, ['--version']).error === undefined;
});

/** What Redis has used since its start, as it reports it. */
export interface RedisUsage {
  /** us of all threads, user and system. */
  cpuUs: number;
  /** Calls of scripts, and us inside of them. */
  calls: number;
  scriptUs: number;
  /** Memory at present, without that of Lua. */
  usedBytes: number;
}

export interface RedisServer {
  port: number;
  pid: number;
  usage: () => Promise<RedisUsage>;
  /** The hash of the script that counts in a fixed window: window.lua. */
  windowScript: string;
  /** @param identifiers among which redis-benchmark chooses at random */
  benchmarks: (connections: number, seconds: number, identifiers?: number) => Contestant[];
  stop: () => Promise<void>;
}

export async function startRedis(): Promise<RedisServer> {
  const directory = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const port = await freePort();
  const child = spawn(
    'redis-server',
    [
      ...['--port', String(port), '--bind', '127.0.0.1', '--dir', directory],
      ...['--save', '', '--appendonly', 'no', '--daemonize', 'no'],
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = new Promise((resolve) => child.once('exit', resolve));
  await new Promise<void>((resolve, reject) => {
    child.once('exit', () => reject(new Error('redis-server did not start')));
    child.stdout.on('data', (data) => {
      if (String(data).includes('Ready to accept connections')) resolve();
    });
  });
  const script = readFileSync(new URL('../../bench/peers/window.lua', import.meta.url), 'utf8');
  const { stdout } = await run('redis-cli', ['-p', String(port), 'SCRIPT', 'LOAD', script]);
  const sha = stdout.trim();
  const pid = child.pid ?? 0;
  const benchmarks = (connections: number, seconds: number, identifiers = IDENTIFIERS) => {
    const requests = seconds * REQUESTS_PER_SECOND[connections === 1 ? 'one' : 'many'];
    const contestant = (name: string, ...command: string[]): Contestant => {
      const start = () => {
        return runRedisBenchmark(port, connections, requests, identifiers, command);
      };
      return { name, pids: [pid], run: start };
    };
    return [
      contestant('Redis alone, INCR', 'INCR', 'incr:__rand_int__'),
      contestant(
        'Redis alone, the script',
        ...['EVALSHA', sha, '1', 'window:__rand_int__', '1', DURATION_MS],
      ),
    ];
  };
  const usage = async () => {
    const sections = ['cpu', 'commandstats', 'memory'];
    const { stdout } = await run('redis-cli', ['-p', String(port), 'INFO', ...sections]);
    const sumOf = (field: RegExp) => {
      return [...stdout.matchAll(field)].reduce((sum, [, value]) => sum + Number(value), 0);
    };
    return {
      cpuUs: sumOf(/^used_cpu_(?:sys|user):([\d.]+)/gm) * 1e6,
      calls: sumOf(/^cmdstat_(?:evalsha|eval):calls=(\d+)/gm),
      scriptUs: sumOf(/^cmdstat_(?:evalsha|eval):calls=\d+,usec=(\d+)/gm),
      usedBytes: sumOf(/^used_memory:(\d+)/gm),
    };
  };
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
  return { port, pid, usage, windowScript: sha, benchmarks, stop };
}

async function runRedisBenchmark(
  port: number,
  connections: number,
  requests: number,
  identifiers: number,
  command: readonly string[],
): Promise<LoadMeasurement> {
  const { stdout } = await run('redis-benchmark', [
    ...['-h', '127.0.0.1', '-p', String(port), '-P', '1', '--csv', '-r', String(identifiers)],
    ...['-c', String(connections), '-n', String(requests), ...command],
  ]);
  // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95...","p99...","max..."
  const line = stdout.split('\n').find((text) => text.startsWith('"') && !text.includes('"rps"'));
  const [, rate, , , p50, , p99] = [...(line ?? '').matchAll(/"([^"]*)"/g)].map(([, text]) => text);
  if (p99 === undefined) throw new Error(`redis-benchmark printed no result: ${stdout}`);
  const us = (ms: string) => Math.round(Number(ms) * 1e3);
  const seconds = requests / Number(rate);
  return { requests, seconds, p50: us(p50), p99: us(p99), p999: 0, errors: 0 };
}
