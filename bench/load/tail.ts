/**
 * The tail of the latency beside other servers: weir with its default settings, with one acceptor,
 * and throttlecrab and nginx if they are installed. Server and generator are pinned to one CPU
 * each, where there are two, and then free. Clients on 1, 64 and 256 connections send the next
 * request when they have a response, by wrk, which corrects its percentiles for coordinated
 * omission: it adds the requests that a client would have sent during a long latency. At half load
 * requests do not wait for responses: h2load sends half of what the slowest server answered on 64
 * connections, and its percentiles are not corrected.
 */

import { hasH2load, runH2load } from '../support/h2load.ts';
import { type LoadMeasurement, runLoad } from '../support/load-generator.ts';
import { hasNginx, nginx } from '../support/nginx.ts';
import { canPin } from '../support/pinning.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { type BenchServer, startWeir } from '../support/servers.ts';
import { hasThrottlecrab, startThrottlecrab } from '../support/throttlecrab.ts';

export const TAIL_ROUNDS = 7;
const SECONDS = 3;
/** V8 has compiled the hot code, and freed the memory of the start. */
const WARM_UP_SECONDS = 20;
const CONNECTIONS = [1, 64, 256];
const OPEN_LOOP_CONNECTIONS = 64;

export interface TailRow extends ContestantFigures {
  server: string;
  load: string;
}

export interface TailTable {
  placement: string;
  rows: TailRow[];
}

export async function measureTail(progress: (what: string) => void): Promise<TailTable[]> {
  const placements = [
    ...(canPin ? [{ placement: 'server and generator on a CPU each', cpus: [0, 1] }] : []),
    { placement: 'on any CPU', cpus: [] },
  ];
  const tables: TailTable[] = [];
  for (const { placement, cpus } of placements) {
    const rows = await measurePlacement(cpus, (what) => progress(`${placement}: ${what}`));
    tables.push({ placement, rows });
  }
  return tables;
}

async function measurePlacement(
  [serverCpu, generatorCpu]: readonly number[],
  progress: (what: string) => void,
): Promise<TailRow[]> {
  const servers: BenchServer[] = [];
  try {
    servers.push(await startWeir('weir', 'in-place', startOptions(serverCpu)));
    if (hasThrottlecrab) servers.push(await startThrottlecrab('throttlecrab', serverCpu));
    if (hasNginx) servers.push(await nginx('nginx, limit_req', undefined, serverCpu));
    const generator = generatorCpu === undefined ? {} : { cpu: generatorCpu };
    const rows: TailRow[] = [];
    const measure = async (
      load: string,
      run: (server: BenchServer) => Promise<LoadMeasurement>,
    ): Promise<ContestantFigures[]> => {
      const contestants = servers.map((server) => {
        return { name: server.name, pids: server.pids, run: () => run(server) };
      });
      const figures = await measureAlternating(contestants, TAIL_ROUNDS, (what) => {
        progress(`${load}, ${what}`);
      });
      rows.push(...figures.map((of, i) => ({ server: servers[i].name, load, ...of })));
      return figures;
    };
    const runClosed = ({ port, workload }: BenchServer, connections: number, seconds: number) =>
      runLoad({ port, workload, connections, seconds, ...generator });
    for (const server of servers) {
      progress(`warm up, ${server.name}`);
      await runClosed(server, OPEN_LOOP_CONNECTIONS, WARM_UP_SECONDS);
    }
    let lowest = Number.POSITIVE_INFINITY;
    for (const connections of CONNECTIONS) {
      const load = `${connections} connection${connections === 1 ? '' : 's'}`;
      const figures = await measure(load, (server) => runClosed(server, connections, SECONDS));
      if (connections !== OPEN_LOOP_CONNECTIONS) continue;
      lowest = Math.min(...figures.map(({ requestsPerSecond }) => requestsPerSecond));
    }
    if (hasH2load) {
      const rate = Math.round(lowest / 2);
      await measure(`${rate} requests/s`, ({ port: target, workload }) => {
        const connections = OPEN_LOOP_CONNECTIONS;
        return runH2load({ target, workload, connections, seconds: SECONDS, rate, ...generator });
      });
    }
    return rows;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

const startOptions = (cpu: number | undefined) => (cpu === undefined ? {} : { cpu });
