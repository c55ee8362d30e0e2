/**
 * `npm run bench:peers`: weir in place beside other ways to limit rates, all with one thread, under
 * the same requests about the same 10 000 identifiers, in turn; ratios are to weir, in the same
 * round. Each shows at its start that it counts: of a limit of 1 the second check is refused.
 * bench/peers/README.md says what they are. Prints a table and writes bench/peers/result.json.
 */

import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { CHECK, GENERATOR, load } from './generator.ts';
import type { LoadResult } from './load.ts';
import { hasNginx, nginx } from './nginx.ts';
import { hasRedis, type Redis, startRedis } from './redis.ts';
import { type Contestant, measureInTurn } from './rounds.ts';
import { type Server, start, weir } from './servers.ts';
import { KEY } from './sets.ts';
import { progress, ratio, say, showTable, whole } from './table.ts';

const ROUNDS = 5;
const SECONDS = 2;
const CONNECTIONS = [64, 1];
const LIMIT = 1_000_000;
const WORKLOAD = { ...CHECK, hasHeader: true };

interface Peer {
  server: Server;
  /** What serves beside it. */
  others: readonly number[];
}

/** A file of bench/peers, shown to limit, and started anew with a limit that refuses nothing. */
async function peer(name: string, file: string, redis?: Redis): Promise<Peer> {
  progress(name);
  const begin = (limit: number) => {
    const args = [String(limit), ...(redis === undefined ? [] : [String(redis.port)])];
    return start(name, `../../bench/peers/${file}`, args, /port (\d+)/, { workload: WORKLOAD });
  };
  const strict = await begin(1);
  try {
    const answers = [await ask(strict), await ask(strict)];
    if (answers.join() !== 'true,false') throw new Error(`${name} does not limit: ${answers}`);
  } finally {
    await strict.stop();
  }
  return { server: await begin(LIMIT), others: redis === undefined ? [] : [redis.pid] };
}

/** Whether one identifier may pass. */
async function ask({ name, port }: Server): Promise<boolean> {
  const answer = await fetch(`http://127.0.0.1:${port}${WORKLOAD.path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(WORKLOAD.body('user_1')),
  });
  const text = await answer.text();
  if (answer.status !== 200 && answer.status !== 429) throw new Error(`${name}: ${text}`);
  return answer.status === 200 && JSON.parse(text).success;
}

async function measure(peers: readonly Peer[], redis: Redis | undefined): Promise<LoadResult[]> {
  const results: LoadResult[] = [];
  for (const connections of CONNECTIONS) {
    const contestants: Contestant[] = peers.map(({ server, others }) => {
      const { name, port, pids } = server;
      const wanted = { port, connections, seconds: SECONDS, workload: WORKLOAD };
      return { name, pids: [...pids, ...others], run: () => load(wanted) };
    });
    if (redis !== undefined) contestants.push(...redis.benchmarks(connections, SECONDS));
    for (const { name, run } of contestants) {
      progress(`${connections} connections, warm up, ${name}`);
      await run();
    }
    const figures = await measureInTurn(contestants, ROUNDS, (what) => {
      progress(`${connections} connections, ${what}`);
    });
    results.push(...figures.map((of, i) => ({ server: contestants[i].name, connections, ...of })));
  }
  return results;
}

function show(results: readonly LoadResult[]): void {
  showTable([
    ['', 'conn', 'requests/s', 'to weir', 'CPU/req', 'to weir', 'p50', 'p99', 'to weir'],
    ...results.map((result) => [
      result.server,
      String(result.connections),
      whole(result.requestsPerSecond),
      ratio(result.throughputRatio),
      `${result.cpuPerRequest?.toFixed(1) ?? '-'} us`,
      ratio(result.cpuRatio),
      `${result.p50} us`,
      `${result.p99} us`,
      ratio(result.p99Ratio),
    ]),
  ]);
}

const machine = `Node ${process.versions.node}, ${cpus().length} x ${cpus()[0].model}`;
say(machine);
const redis = hasRedis ? await startRedis() : undefined;
const peers: Peer[] = [];
try {
  peers.push({ server: await weir('weir, in place'), others: [] });
  if (hasNginx) peers.push({ server: await nginx('nginx, limit_req'), others: [] });
  peers.push(await peer('rate-limiter-flexible, node:http', 'flexible.mjs'));
  peers.push(await peer('@fastify/rate-limit', 'fastify.mjs'));
  peers.push(await peer('express-rate-limit', 'express.mjs'));
  if (redis !== undefined) peers.push(await peer('Redis, node:http', 'redis.mjs', redis));
  const results = await measure(peers, redis);
  say(`\npeers, by ${GENERATOR}, those without HTTP by redis-benchmark; ratios in the same round:`);
  show(results);
  const path = new URL('../../bench/peers/result.json', import.meta.url);
  const result = { machine, generator: GENERATOR, peers: results };
  writeFileSync(path, `${JSON.stringify(result, undefined, 2)}\n`);
  say('\nbench/peers/result.json is written');
} finally {
  await Promise.all(peers.map(({ server }) => server.stop()));
  await redis?.stop();
}
