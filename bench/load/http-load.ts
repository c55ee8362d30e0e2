/**
 * HTTP load on weir in its modes and on the baselines: two bare servers and, if it is installed,
 * nginx; or on other given servers. A scenario is a server with the load that it gets.
 */

import {
  ASYNC_WORKLOAD,
  type LoadMeasurement,
  runLoad,
  type Workload,
} from '../support/load-generator.ts';
import { hasNginx, nginx } from '../support/nginx.ts';
import { type Contestant, type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startBareServer, startWeir } from '../support/servers.ts';

const ROUNDS = 5;
const SECONDS = 2;
const WARM_UP_SECONDS = 1;
const CONNECTIONS = [64, 1];

interface LoadScenario {
  server: BenchServer;
  workload: Workload;
  connections: number;
  pipelining: number;
  identifiers: number;
  seconds: number;
}

export interface LoadResult extends ContestantFigures {
  server: string;
  connections: number;
}

export function scenarioContestant(scenario: LoadScenario): Contestant {
  const { name, pids } = scenario.server;
  return { name, pids, run: () => runScenario(scenario) };
}

export function runScenario({ server, ...options }: LoadScenario): Promise<LoadMeasurement> {
  return runLoad({ ...options, port: server.port });
}

/** The first server is the baseline of the others. */
export function startServers(): Promise<BenchServer[]> {
  return Promise.all([
    startBareServer('bare, parses', 'parse'),
    startBareServer('bare, reads', 'read'),
    ...(hasNginx ? [nginx('nginx, limit_req')] : []),
    startWeir('weir, in place'),
    startWeir('weir, in place, async', 'in-place', { workload: ASYNC_WORKLOAD }),
    startWeir('weir, by worker', 'worker'),
  ]);
}

/**
 * Measures servers, and stops them at the end.
 * @param servers the first is the baseline of the others
 * @param progress called with a description of the next step
 */
export async function measureLoad(
  servers: readonly BenchServer[],
  progress: (what: string) => void,
  connectionCounts = CONNECTIONS,
): Promise<LoadResult[]> {
  const defaults = { pipelining: 1, identifiers: 10_000, seconds: SECONDS };
  progress('load: warm up');
  try {
    for (const server of servers) {
      const { workload } = server;
      const seconds = WARM_UP_SECONDS;
      await runScenario({ ...defaults, server, workload, connections: 64, seconds });
    }
    const results: LoadResult[] = [];
    for (const connections of connectionCounts) {
      const contestants = servers.map((server) => {
        return scenarioContestant({ ...defaults, server, workload: server.workload, connections });
      });
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`load: ${connections} connections, ${what}`);
      });
      results.push(...figures.map((of, i) => ({ server: servers[i].name, connections, ...of })));
    }
    return results;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}
