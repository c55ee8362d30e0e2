/**
 * An open loop at half of weir's maximum: requests arrive at a rate, without waiting for responses.
 * A pause, such as a garbage collection, delays all requests that arrive during it. weir and the
 * bare server that parses alternate at the same rate. The generators are the benchmark's own, and
 * h2load if it is installed, whose arrivals are bursts 10 ms apart.
 */

import { hasH2load, runH2load } from '../support/h2load.ts';
import { ALLOWED_WORKLOAD, type LoadMeasurement, runLoad } from '../support/load-generator.ts';
import { runPoissonLoad } from '../support/poisson-load.ts';
import { type ContestantFigures, measureAlternating } from '../support/rounds.ts';
import { startBareServer, startWeir } from '../support/servers.ts';

const ROUNDS = 5;
const SECONDS = 3;
const CONNECTIONS = 64;

export interface OpenLoopResult {
  /** Target rate in requests per second. */
  rate: number;
  rows: (ContestantFigures & { server: string; generator: string })[];
}

export async function measureOpenLoop(progress: (what: string) => void): Promise<OpenLoopResult> {
  const servers = await Promise.all([
    startBareServer('bare, parses', 'parse'),
    startWeir('weir, in place'),
  ]);
  try {
    const options = { workload: ALLOWED_WORKLOAD, connections: CONNECTIONS, seconds: SECONDS };
    let peak = 0;
    for (const { name, port } of servers) {
      progress(`open loop: maximum of ${name}`);
      const { requests, seconds } = await runLoad({ ...options, port });
      // The last server is weir.
      peak = requests / seconds;
    }
    const rate = Math.round(peak / 2);
    const generators: [name: string, run: (port: number) => Promise<LoadMeasurement>][] = [
      ['Poisson', (port) => runPoissonLoad({ ...options, port, rate })],
    ];
    if (hasH2load)
      generators.push(['h2load', (port) => runH2load({ ...options, target: port, rate })]);
    const rows: OpenLoopResult['rows'] = [];
    for (const [generator, run] of generators) {
      const contestants = servers.map(({ name, pids, port }) => {
        return { name, pids, run: () => run(port) };
      });
      const figures = await measureAlternating(contestants, ROUNDS, (what) => {
        progress(`open loop: ${generator}, ${what}`);
      });
      rows.push(...figures.map((of, i) => ({ server: servers[i].name, generator, ...of })));
    }
    return { rate, rows };
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}
