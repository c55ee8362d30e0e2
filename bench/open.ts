/**
 * An open loop at half of what weir can do: requests come at a rate, whether or not those before
 * were answered; so a pause, of the garbage collector too, is seen by all that come during it. weir
 * in turn with the bare server that parses, at the same rate; by our own generator, and by h2load
 * where it is installed, whose arrivals are bursts 10 ms apart.
 */

import { ADMITTED, type Load, load } from './generator.ts';
import { h2load, hasH2load } from './h2load.ts';
import { poisson } from './poisson.ts';
import { type Figures, measureInTurn } from './rounds.ts';
import { bare, weir } from './servers.ts';

const ROUNDS = 5;
const SECONDS = 3;
const CONNECTIONS = 64;

export interface OpenResult {
  /** Requests a second that were asked for. */
  rate: number;
  rows: (Figures & { server: string; generator: string })[];
}

export async function measureOpen(progress: (what: string) => void): Promise<OpenResult> {
  const servers = await Promise.all([bare('bare, parses', 'parse'), weir('weir, in place')]);
  try {
    const asked = { workload: ADMITTED, connections: CONNECTIONS, seconds: SECONDS };
    let peak = 0;
    for (const { name, port } of servers) {
      progress(`open loop: the peak, ${name}`);
      const { requests, seconds } = await load({ ...asked, port });
      // The last one's, which is weir's.
      peak = requests / seconds;
    }
    const rate = Math.round(peak / 2);
    const generators: [name: string, run: (port: number) => Promise<Load>][] = [
      ['Poisson', (port) => poisson({ ...asked, port, rate })],
    ];
    if (hasH2load) generators.push(['h2load', (port) => h2load({ ...asked, at: port, rate })]);
    const rows: OpenResult['rows'] = [];
    for (const [generator, run] of generators) {
      const contestants = servers.map(({ name, pids, port }) => {
        return { name, pids, run: () => run(port) };
      });
      const figures = await measureInTurn(contestants, ROUNDS, (what) => {
        progress(`open loop: ${generator}, ${what}`);
      });
      rows.push(...figures.map((of, i) => ({ server: servers[i].name, generator, ...of })));
    }
    return { rate, rows };
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}
