/**
 * An open loop at half of what weir can do: requests come at a rate, whether or not those before
 * were answered; so a pause, of the garbage collector too, is seen by all that come during it. weir
 * in turn with the bare server that parses, at the same rate; by our own generator, and by h2load
 * where it is installed, whose arrivals are bursts 10 ms apart.
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
  /** Requests a second that were asked for. */
  rate: number;
  rows: (ContestantFigures & { server: string; generator: string })[];
}

export async function measureOpenLoop(progress: (what: string) => void): Promise<OpenLoopResult> {
  const servers = await Promise.all([
    startBareServer('bare, parses', 'parse'),
    startWeir('weir, in place'),
  ]);
  try {
    const asked = { workload: ALLOWED_WORKLOAD, connections: CONNECTIONS, seconds: SECONDS };
    let peak = 0;
    for (const { name, port } of servers) {
      progress(`open loop: the peak, ${name}`);
      const { requests, seconds } = await runLoad({ ...asked, port });
      // The last one's, which is weir's.
      peak = requests / seconds;
    }
    const rate = Math.round(peak / 2);
    const generators: [name: string, run: (port: number) => Promise<LoadMeasurement>][] = [
      ['Poisson', (port) => runPoissonLoad({ ...asked, port, rate })],
    ];
    if (hasH2load)
      generators.push(['h2load', (port) => runH2load({ ...asked, target: port, rate })]);
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
