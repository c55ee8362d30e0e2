/**
 * An open loop at half of what weir can do: requests come at a rate, whether or not those before
 * were answered; so a pause, of the garbage collector too, is seen by all that come during it. weir
 * in turn with the bare server that parses, at the same rate.
 */

import { ADMITTED } from './generator.ts';
import { h2load } from './h2load.ts';
import { type Figures, measureInTurn } from './rounds.ts';
import { bare, weir } from './servers.ts';

const ROUNDS = 5;
const SECONDS = 5;
const CONNECTIONS = 64;

export interface OpenResult {
  /** Requests a second that were asked for. */
  rate: number;
  servers: (Figures & { server: string })[];
}

export async function measureOpen(progress: (what: string) => void): Promise<OpenResult> {
  const servers = await Promise.all([bare('bare, parses', 'parse'), weir('weir, in place')]);
  try {
    progress('open loop: the peak');
    const asked = { workload: ADMITTED, connections: CONNECTIONS, seconds: SECONDS };
    const rates: number[] = [];
    for (const { port } of servers) {
      const { requests, seconds } = await h2load({ ...asked, at: port });
      rates.push(requests / seconds);
    }
    const rate = Math.round(rates[1] / 2);
    const contestants = servers.map(({ name, pids, port }) => {
      return { name, pids, run: () => h2load({ ...asked, at: port, rate }) };
    });
    const figures = await measureInTurn(contestants, ROUNDS, (what) => {
      progress(`open loop: ${what}`);
    });
    return { rate, servers: figures.map((of, i) => ({ server: servers[i].name, ...of })) };
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}
