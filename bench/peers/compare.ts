/**
 * `npm run bench:peers` compares weir in place with other rate limiters, each on one thread, with
 * the same requests for the same 10 000 identifiers. They are measured alternately; ratios are
 * relative to weir in the same round. Each limiter first proves that it denies the second check of
 * a limit of 1. bench/peers/README.md describes them. Prints a table and writes
 * bench/peers/result.json.
 */

import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import type { LoadResult } from '../load/http-load.ts';
import { CHECK_WORKLOAD, GENERATOR, runLoad } from '../support/load-generator.ts';
import { hasNginx, nginx } from '../support/nginx.ts';
import {
  formatInteger,
  formatRatio,
  printLine,
  showProgress,
  showTable,
} from '../support/output.ts';
import { ROOT_KEY } from '../support/override-sets.ts';
import { type Contestant, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startServer, startWeir } from '../support/servers.ts';
import { hasRedis, type RedisServer, startRedis } from './redis-server.ts';

const ROUNDS = 5;
const SECONDS = 2;
const CONNECTIONS = [64, 1];
const LIMIT = 1_000_000;
const WORKLOAD = { ...CHECK_WORKLOAD, hasHeader: true };

interface Peer {
  server: BenchServer;
  /** Other processes that take part in serving. */
  extraPids: readonly number[];
}

/** Starts a file of bench/peers with a limit that denies nothing, after a test of a limit of 1. */
async function startPeer(name: string, file: string, redis?: RedisServer): Promise<Peer> {
  showProgress(name);
  const startWithLimit = (limit: number) => {
    const args = [String(limit), ...(redis === undefined ? [] : [String(redis.port)])];
    return startServer(name, `../../bench/peers/${file}`, args, /port (\d+)/, {
      workload: WORKLOAD,
    });
  };
  const strict = await startWithLimit(1);
  try {
    const decisions = [await isAllowed(strict), await isAllowed(strict)];
    if (decisions.join() !== 'true,false') throw new Error(`${name} does not limit: ${decisions}`);
  } finally {
    await strict.stop();
  }
  const server = await startWithLimit(LIMIT);
  return { server, extraPids: redis === undefined ? [] : [redis.pid] };
}

/** Sends one check. */
async function isAllowed({ name, port }: BenchServer): Promise<boolean> {
  const response = await fetch(`http://127.0.0.1:${port}${WORKLOAD.path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(WORKLOAD.body('user_1')),
  });
  const text = await response.text();
  if (response.status !== 200 && response.status !== 429) throw new Error(`${name}: ${text}`);
  return response.status === 200 && JSON.parse(text).success;
}

async function measurePeers(
  peers: readonly Peer[],
  redis: RedisServer | undefined,
): Promise<LoadResult[]> {
  const results: LoadResult[] = [];
  for (const connections of CONNECTIONS) {
    const contestants: Contestant[] = peers.map(({ server, extraPids }) => {
      const { name, port, pids } = server;
      const options = { port, connections, seconds: SECONDS, workload: WORKLOAD };
      return { name, pids: [...pids, ...extraPids], run: () => runLoad(options) };
    });
    if (redis !== undefined) contestants.push(...redis.benchmarks(connections, SECONDS));
    for (const { name, run } of contestants) {
      showProgress(`${connections} connections, warm up, ${name}`);
      await run();
    }
    const figures = await measureAlternating(contestants, ROUNDS, (what) => {
      showProgress(`${connections} connections, ${what}`);
    });
    results.push(...figures.map((of, i) => ({ server: contestants[i].name, connections, ...of })));
  }
  return results;
}

function showPeers(results: readonly LoadResult[]): void {
  showTable([
    ['', 'conn', 'requests/s', 'to weir', 'CPU/req', 'to weir', 'p50', 'p99', 'to weir'],
    ...results.map((result) => [
      result.server,
      String(result.connections),
      formatInteger(result.requestsPerSecond),
      formatRatio(result.throughputRatio),
      `${result.cpuPerRequest?.toFixed(1) ?? '-'} us`,
      formatRatio(result.cpuRatio),
      `${result.p50} us`,
      `${result.p99} us`,
      formatRatio(result.p99Ratio),
    ]),
  ]);
}

const machine = `Node ${process.versions.node}, ${cpus().length} x ${cpus()[0].model}`;
printLine(machine);
const redis = hasRedis ? await startRedis() : undefined;
const peers: Peer[] = [];
try {
  peers.push({ server: await startWeir('weir, in place'), extraPids: [] });
  if (hasNginx) peers.push({ server: await nginx('nginx, limit_req'), extraPids: [] });
  peers.push(await startPeer('rate-limiter-flexible, node:http', 'flexible.mjs'));
  peers.push(await startPeer('@fastify/rate-limit', 'fastify.mjs'));
  peers.push(await startPeer('express-rate-limit', 'express.mjs'));
  if (redis !== undefined) peers.push(await startPeer('Redis, node:http', 'redis.mjs', redis));
  const results = await measurePeers(peers, redis);
  printLine(
    `\npeers, by ${GENERATOR}, those without HTTP by redis-benchmark; ratios in the same round:`,
  );
  showPeers(results);
  const path = new URL('../../bench/peers/result.json', import.meta.url);
  const result = { machine, generator: GENERATOR, peers: results };
  writeFileSync(path, `${JSON.stringify(result, undefined, 2)}\n`);
  printLine('\nbench/peers/result.json is written');
} finally {
  await Promise.all(peers.map(({ server }) => server.stop()));
  await redis?.stop();
}
