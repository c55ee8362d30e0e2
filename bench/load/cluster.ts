/**
 * The engine that shares its counters through Redis, on one machine and a private Redis on
 * loopback. Leased: few identifiers with high limits, so that nearly all checks are decided from
 * leases in memory; the engine in memory is the baseline. Cold: each check is the first one of its
 * identifier, so it needs Redis; Redis alone with a plain fixed window is beside it, and there each
 * call is the first one of its key too. What Redis costs is what Redis itself reports.
 */

import { type RedisServer, type RedisUsage, startRedis } from '../peers/redis-server.ts';
import { ALLOWED_WORKLOAD, CHECK_WORKLOAD, runLoad } from '../support/load-generator.ts';
import { type Contestant, measureAlternating, median } from '../support/rounds.ts';
import { type BenchServer, startWeir } from '../support/servers.ts';
import type { LoadResult } from './http-load.ts';

const ROUNDS = 5;
const SECONDS = 2;
const CONNECTIONS = [64, 1];
const LEASED_IDENTIFIERS = 100;
/** Pairs are cheap, and their latencies vary. */
const LEASED_ROUNDS = 9;
/** More than a round can check, so that no identifier is checked twice. */
const COLD_IDENTIFIERS = 1_000_000;
/** redis-benchmark chooses at random: with so many, it seldom chooses a key twice. */
const COLD_KEYS = 2_000_000_000;

export interface ClusterResult {
  leased: ClusterRow[];
  cold: ClusterRow[];
}

export interface ClusterRow extends LoadResult {
  /** Of Redis, by request: us of CPU, script calls, and us inside scripts; undefined without it. */
  redisCpu: number | undefined;
  redisCalls: number | undefined;
  redisScriptUs: number | undefined;
}

export async function measureCluster(progress: (what: string) => void): Promise<ClusterResult> {
  const redis = await startRedis();
  const servers: BenchServer[] = [];
  try {
    const url = `redis://127.0.0.1:${redis.port}`;
    const env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: url };
    servers.push(await startWeir('memory'));
    servers.push(await startWeir('redis', 'in-place', { env }));
    const [memory, shared] = servers;
    const leased: ClusterRow[] = [];
    const cold: ClusterRow[] = [];
    for (const connections of CONNECTIONS) {
      const both = [memory, shared].map((server) => leasedContestant(server, connections));
      leased.push(...(await measure(redis, both, connections, LEASED_ROUNDS, progress)));
    }
    for (const connections of CONNECTIONS) {
      const all = [
        coldContestant(memory, connections),
        coldContestant(shared, connections),
        ...redis.benchmarks(connections, SECONDS, COLD_KEYS).slice(1),
      ];
      cold.push(...(await measure(redis, all, connections, ROUNDS, progress)));
    }
    return { leased, cold };
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    await redis.stop();
  }
}

function leasedContestant({ name, port, pids }: BenchServer, connections: number): Contestant {
  const load = { workload: ALLOWED_WORKLOAD, identifiers: LEASED_IDENTIFIERS, seconds: SECONDS };
  return { name: `leased, ${name}`, pids, run: () => runLoad({ ...load, port, connections }) };
}

/** Each run has identifiers of its own. */
function coldContestant({ name, port, pids }: BenchServer, connections: number): Contestant {
  let round = 0;
  return {
    name: `cold, ${name}`,
    pids,
    run: () => {
      const prefix = `${connections}_${round++}_`;
      const body = (identifier: string) => CHECK_WORKLOAD.body(`${prefix}${identifier}`);
      const workload = { ...CHECK_WORKLOAD, digits: 7, body };
      return runLoad({
        ...{ workload, identifiers: COLD_IDENTIFIERS, seconds: SECONDS },
        ...{ port, connections },
      });
    },
  };
}

/** @param contestants the first is the baseline of the others */
async function measure(
  redis: RedisServer,
  contestants: readonly Contestant[],
  connections: number,
  rounds: number,
  progress: (what: string) => void,
): Promise<ClusterRow[]> {
  const uses: RedisUsage[][] = contestants.map(() => []);
  const observed = contestants.map((contestant, i) => ({
    ...contestant,
    run: async () => {
      const before = await redis.usage();
      const figures = await contestant.run();
      const after = await redis.usage();
      const byRequest = (of: (usage: RedisUsage) => number) => {
        return (of(after) - of(before)) / figures.requests;
      };
      uses[i].push({
        cpuUs: byRequest(({ cpuUs }) => cpuUs),
        calls: byRequest(({ calls }) => calls),
        scriptUs: byRequest(({ scriptUs }) => scriptUs),
        usedBytes: byRequest(({ usedBytes }) => usedBytes),
      });
      return figures;
    },
  }));
  // Warm up: connections, code, and the leases of the identifiers that have them.
  for (const { name, run: warmUp } of contestants) {
    progress(`cluster: warm up ${name}`);
    await warmUp();
  }
  const results = await measureAlternating(observed, rounds, (what) => {
    progress(`cluster: ${connections} connections, ${what}`);
  });
  return results.map((figures, i) => {
    const usesRedis = !contestants[i].name.endsWith('memory');
    const use = (of: (one: RedisUsage) => number) => {
      return usesRedis ? median(uses[i].map(of)) : undefined;
    };
    return {
      ...{ server: contestants[i].name, connections, ...figures },
      redisCpu: use(({ cpuUs }) => cpuUs),
      redisCalls: use(({ calls }) => calls),
      redisScriptUs: use(({ scriptUs }) => scriptUs),
    };
  });
}
