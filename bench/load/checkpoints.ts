/**
 * The cost of checkpoints: a weir that writes them every second and one that writes none, with the
 * same number of live counters. The load is half of the maximum (by h2load, if it is installed),
 * and the maximum. Checks use 10 000 identifiers in many shards, so that each checkpoint is a full
 * one.
 */

import { hasH2load, runH2load } from '../support/h2load.ts';
import { ALLOWED_WORKLOAD, runLoad } from '../support/load-generator.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startWeir } from '../support/servers.ts';
import { PER_REQUEST, sendDistinct } from './distinct-identifiers.ts';

const ROUNDS = 7;
const SECONDS = 3;
const CONNECTIONS = 64;
const LIVE = [10_000, 1_000_000];

export interface CheckpointRow extends ContestantFigures {
  server: string;
  live: number;
  load: string;
}

export async function measureCheckpoints(
  progress: (what: string) => void,
): Promise<CheckpointRow[]> {
  const rows: CheckpointRow[] = [];
  for (const live of LIVE) {
    const withInterval = (name: string, ms: number) => {
      return startWeir(name, 'in-place', { args: ['--checkpoint-ms', String(ms)] });
    };
    const servers = await Promise.all([
      withInterval('none', 3_600_000),
      withInterval('every second', 1_000),
    ]);
    try {
      for (const server of servers) {
        progress(`${live} counters, ${server.name}`);
        await sendDistinct(server, 0, live / PER_REQUEST);
      }
      rows.push(...(await measureAt(live, servers, progress)));
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
  return rows;
}

async function measureAt(
  live: number,
  servers: readonly BenchServer[],
  progress: (what: string) => void,
): Promise<CheckpointRow[]> {
  const options = { workload: ALLOWED_WORKLOAD, connections: CONNECTIONS, seconds: SECONDS };
  const fast = (port: number) => runLoad({ ...options, port });
  const { requests, seconds } = await fast(servers[0].port);
  const rate = Math.round(requests / seconds / 2);
  const loads = [{ name: 'maximum', run: fast }];
  if (hasH2load) {
    const half = (port: number) => runH2load({ ...options, target: port, rate });
    loads.push({ name: `${rate} per second`, run: half });
  }
  const rows: CheckpointRow[] = [];
  for (const { name, run } of loads) {
    const contestants = servers.map((server) => {
      return { name: server.name, pids: server.pids, run: () => run(server.port) };
    });
    const figures = await measureAlternating(contestants, ROUNDS, (what) => {
      progress(`${live} counters, ${name}, ${what}`);
    });
    rows.push(...figures.map((of, i) => ({ server: servers[i].name, live, load: name, ...of })));
  }
  return rows;
}
