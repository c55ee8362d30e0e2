/**
 * The engine that shares its counters through Redis, on one machine and a private Redis on
 * loopback. Leased: few identifiers with high limits, so that nearly all checks are decided from
 * leases in memory; the engine in memory is the baseline. Cold: each check is the first one of its
 * identifier, so it needs Redis; Redis alone with a plain fixed window is beside it. The calls and
 * the CPU time of Redis are those that Redis itself reports.
 */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { type RedisServer, startRedis } from '../peers/redis-server.ts';
import { ALLOWED_WORKLOAD, CHECK_WORKLOAD, runLoad } from '../support/load-generator.ts';
import { type Contestant, measureAlternating, median } from '../support/rounds.ts';
import { type BenchServer, cpuSeconds, startWeir } from '../support/servers.ts';
import type { LoadResult } from './http-load.ts';

const ROUNDS = 5;
const SECONDS = 2;
const CONNECTIONS = [64, 1];
const LEASED_IDENTIFIERS = 100;
/** More than a round can check, so that no identifier is checked twice. */
const COLD_IDENTIFIERS = 1_000_000;

const run = promisify(execFile);

export interface ClusterRow extends LoadResult {
  /** Of Redis, by request: us of CPU, script calls, and us inside scripts; undefined without it. */
  redisCpu: number | undefined;
  redisCalls: number | undefined;
  redisScriptUs: number | undefined;
}

interface RedisUse {
  cpuUs: number;
  calls: number;
  scriptUs: number;
}

export async function measureCluster(progress: (what: string) => void): Promise<ClusterRow[]> {
  const redis = await startRedis();
  const servers: BenchServer[] = [];
  try {
    const url = `redis://127.0.0.1:${redis.port}`;
    const env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: url };
    servers.push(await startWeir('memory'));
    servers.push(await startWeir('redis', 'in-place', { env }));
    const [memory, shared] = servers;
    const rows: ClusterRow[] = [];
    for (const connections of CONNECTIONS) {
      const leased = (server: BenchServer) => leasedContestant(server, connections);
      rows.push(
        ...(await measure(redis, [leased(memory), leased(shared)], connections, progress)),
        ...(await measure(
          redis,
          [
            coldContestant(memory, connections),
            coldContestant(shared, connections),
            ...redis.benchmarks(connections, SECONDS).slice(1),
          ],
          connections,
          progress,
        )),
      );
    }
    return rows;
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
  progress: (what: string) => void,
): Promise<ClusterRow[]> {
  const uses: RedisUse[][] = contestants.map(() => []);
  const observed = contestants.map((contestant, i) => ({
    ...contestant,
    run: async () => {
      const before = await readUse(redis);
      const figures = await contestant.run();
      const after = await readUse(redis);
      uses[i].push({
        cpuUs: (after.cpuUs - before.cpuUs) / figures.requests,
        calls: (after.calls - before.calls) / figures.requests,
        scriptUs: (after.scriptUs - before.scriptUs) / figures.requests,
      });
      return figures;
    },
  }));
  // Warm up: connections, code, and the leases of the identifiers that have them.
  for (const { name, run: warmUp } of contestants) {
    progress(`cluster: warm up ${name}`);
    await warmUp();
  }
  const results = await measureAlternating(observed, ROUNDS, (what) => {
    progress(`cluster: ${connections} connections, ${what}`);
  });
  return results.map((figures, i) => {
    const usesRedis = !contestants[i].name.endsWith('memory');
    const use = (of: (one: RedisUse) => number) => {
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

/** What Redis has used so far. */
async function readUse({ port, pid }: RedisServer): Promise<RedisUse> {
  const { stdout } = await run('redis-cli', ['-p', String(port), 'INFO', 'commandstats']);
  let calls = 0;
  let scriptUs = 0;
  for (const [, count, us] of stdout.matchAll(
    /^cmdstat_(?:evalsha|eval|fcall):calls=(\d+),usec=(\d+)/gm,
  )) {
    calls += Number(count);
    scriptUs += Number(us);
  }
  return { cpuUs: (cpuSeconds(pid) ?? 0) * 1e6, calls, scriptUs };
}
