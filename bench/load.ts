/**
 * The HTTP load: every server in turn, several rounds, so that what else the machine does strikes
 * all of them alike. A ratio is made within a round; what is reported are the medians over the
 * rounds, and of a ratio its smallest and largest as well.
 */

import { type Load, load } from './generator.ts';
import { cpuSeconds, residentBytes, type Server } from './servers.ts';
import { median } from './threads.ts';

const ROUNDS = 5;
const SECONDS = 2;
const WARM_UP_SECONDS = 1;
const CONNECTIONS = [64, 1];

export interface Spread {
  median: number;
  least: number;
  most: number;
}

export interface LoadResult {
  server: string;
  connections: number;
  requestsPerSecond: number;
  p50: number;
  p99: number;
  p999: number;
  /** us of CPU, all threads of the server, user and system. */
  cpuPerRequest: number | undefined;
  residentMiB: number | undefined;
  /** To the first server, in the same round. */
  throughputRatio: Spread;
  /** Undefined where the generator knows latencies by the millisecond, and it took none. */
  p50Ratio: Spread | undefined;
  cpuRatio: Spread | undefined;
}

interface Round extends Load {
  rate: number;
  cpu: number | undefined;
}

/**
 * @param servers of which the first is what the others are measured against
 * @param progress is told what comes next
 * @param counts of connections
 */
export async function measureLoad(
  servers: readonly Server[],
  progress: (what: string) => void,
  counts = CONNECTIONS,
): Promise<LoadResult[]> {
  progress('load: warm up');
  try {
    for (const { port, workload } of servers) {
      await load({ port, connections: 64, seconds: WARM_UP_SECONDS, workload });
    }
    const results: LoadResult[] = [];
    for (const connections of counts) {
      const rounds: Round[][] = servers.map(() => []);
      for (let round = 0; round < ROUNDS; round++) {
        for (const [i, server] of servers.entries()) {
          progress(`load: ${connections} connections, round ${round + 1}, ${server.name}`);
          rounds[i].push(await oneRound(server, connections));
        }
      }
      results.push(...servers.map((server, i) => sumUp(server, connections, rounds[i], rounds[0])));
    }
    return results;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function oneRound(server: Server, connections: number): Promise<Round> {
  const { port, workload } = server;
  const pid = server.process.pid ?? 0;
  const before = cpuSeconds(pid);
  const figures = await load({ port, connections, seconds: SECONDS, workload });
  const after = cpuSeconds(pid);
  if (figures.errors > 0) throw new Error(`${server.name}: ${figures.errors} errors`);
  const cpu =
    before === undefined || after === undefined
      ? undefined
      : ((after - before) / figures.requests) * 1e6;
  return { ...figures, rate: figures.requests / figures.seconds, cpu };
}

function sumUp(
  server: Server,
  connections: number,
  rounds: readonly Round[],
  baseline: readonly Round[],
): LoadResult {
  const bytes = residentBytes(server.process.pid ?? 0);
  const cpus = rounds.flatMap(({ cpu }) => cpu ?? []);
  return {
    server: server.name,
    connections,
    requestsPerSecond: median(rounds.map(({ rate }) => rate)),
    p50: median(rounds.map(({ p50 }) => p50)),
    p99: median(rounds.map(({ p99 }) => p99)),
    p999: median(rounds.map(({ p999 }) => p999)),
    cpuPerRequest: cpus.length === 0 ? undefined : median(cpus),
    residentMiB: bytes === undefined ? undefined : bytes / 2 ** 20,
    throughputRatio: spread(rounds.map(({ rate }, i) => rate / baseline[i].rate)),
    p50Ratio: baseline.some(({ p50 }) => p50 === 0)
      ? undefined
      : spread(rounds.map(({ p50 }, i) => p50 / baseline[i].p50)),
    cpuRatio:
      cpus.length === 0 ? undefined : spread(cpus.map((cpu, i) => cpu / (baseline[i].cpu ?? cpu))),
  };
}

function spread(values: number[]): Spread {
  return { median: median(values), least: Math.min(...values), most: Math.max(...values) };
}
