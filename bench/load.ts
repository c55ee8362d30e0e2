/**
 * The HTTP load: this server in its modes beside the yardsticks, which are two bare servers and,
 * where it is installed, nginx; or whatever servers are given. A scenario is what is asked of which
 * server, and how.
 */

import { ASYNC_CHECK, type Load, load, type Workload } from './generator.ts';
import { hasNginx, nginx } from './nginx.ts';
import { type Contestant, type Figures, measureInTurn } from './rounds.ts';
import { bare, type Server, weir } from './servers.ts';

const ROUNDS = 5;
const SECONDS = 2;
const WARM_UP_SECONDS = 1;
const CONNECTIONS = [64, 1];

export interface Scenario {
  server: Server;
  workload: Workload;
  connections: number;
  pipelining: number;
  identifiers: number;
  seconds: number;
}

export interface LoadResult extends Figures {
  server: string;
  connections: number;
}

export function contestant(scenario: Scenario): Contestant {
  const { name, pids } = scenario.server;
  return { name, pids, run: () => runScenario(scenario) };
}

export function runScenario({ server, ...wanted }: Scenario): Promise<Load> {
  return load({ ...wanted, port: server.port });
}

/** The first is what the others are measured against. */
export function startServers(): Promise<Server[]> {
  return Promise.all([
    bare('bare, parses', 'parse'),
    bare('bare, reads', 'read'),
    ...(hasNginx ? [nginx('nginx, limit_req')] : []),
    weir('weir, in place'),
    weir('weir, in place, async', 'in-place', { workload: ASYNC_CHECK }),
    weir('weir, by worker', 'worker'),
  ]);
}

/**
 * The servers are stopped in the end.
 * @param servers of which the first is what the others are measured against
 * @param progress is told what comes next
 * @param counts of connections
 */
export async function measureLoad(
  servers: readonly Server[],
  progress: (what: string) => void,
  counts = CONNECTIONS,
): Promise<LoadResult[]> {
  const usual = { pipelining: 1, identifiers: 10_000, seconds: SECONDS };
  progress('load: warm up');
  try {
    for (const server of servers) {
      const { workload } = server;
      const seconds = WARM_UP_SECONDS;
      await runScenario({ ...usual, server, workload, connections: 64, seconds });
    }
    const results: LoadResult[] = [];
    for (const connections of counts) {
      const contestants = servers.map((server) => {
        return contestant({ ...usual, server, workload: server.workload, connections });
      });
      const figures = await measureInTurn(contestants, ROUNDS, (what) => {
        progress(`load: ${connections} connections, ${what}`);
      });
      results.push(...figures.map((of, i) => ({ server: servers[i].name, connections, ...of })));
    }
    return results;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}
