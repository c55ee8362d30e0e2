/** The spread of a few long-lived connections over acceptors: the share of the busiest acceptor. */

import {
  type AcceptorConnection,
  connectAndCheck,
  connectionsPerAcceptor,
} from '../support/acceptor-connection.ts';
import { requestText } from '../support/load-generator.ts';
import { startWeir } from '../support/servers.ts';

const ACCEPTORS = [2, 4];
const CONNECTIONS = [2, 4, 8];
const TRIALS = 20;
const CHECK = requestText(
  '/v2/ratelimit.limit',
  '{"namespace":"spread","identifier":"a","limit":1000000,"duration":60000}',
);

interface SpreadResult {
  acceptors: number;
  connections: number;
  /** Share of the connections on the busiest acceptor: mean and maximum of the trials. */
  meanShare: number;
  maxShare: number;
}

export async function measureSpread(progress: (what: string) => void): Promise<SpreadResult[]> {
  const results: SpreadResult[] = [];
  for (const acceptors of ACCEPTORS) {
    progress(`spread over ${acceptors} acceptors`);
    const server = await startWeir('weir', 'in-place', {
      args: ['--acceptors', String(acceptors)],
    });
    for (const connections of CONNECTIONS) {
      const shares: number[] = [];
      for (let i = 0; i < TRIALS; i++) shares.push(await busiestShare(server.port, connections));
      const meanShare = shares.reduce((sum, share) => sum + share, 0) / TRIALS;
      results.push({ acceptors, connections, meanShare, maxShare: Math.max(...shares) });
    }
    await server.stop();
  }
  return results;
}

async function busiestShare(port: number, connections: number): Promise<number> {
  const all: AcceptorConnection[] = [];
  for (let i = 0; i < connections; i++) {
    all.push(await connectAndCheck({ host: '127.0.0.1', port }, CHECK));
  }
  for (const { socket } of all) socket.destroy();
  return connectionsPerAcceptor(all)[0] / connections;
}
