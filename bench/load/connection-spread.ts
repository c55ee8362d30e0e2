/** How few connections that stay are spread over the acceptors: what share the busiest one has. */

import { connect, type Socket } from 'node:net';
import { requestText } from '../support/load-generator.ts';
import { startWeir } from '../support/servers.ts';

const ACCEPTORS = [2, 4];
const CONNECTIONS = [2, 4, 8];
const TRIALS = 20;

export interface SpreadResult {
  acceptors: number;
  connections: number;
  /** Of the connections, in the acceptor that has most: the mean of the trials, and the largest. */
  meanShare: number;
  mostShare: number;
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
      results.push({ acceptors, connections, meanShare, mostShare: Math.max(...shares) });
    }
    await server.stop();
  }
  return results;
}

async function busiestShare(port: number, connections: number): Promise<number> {
  const counts = new Map<string, number>();
  const sockets: Socket[] = [];
  for (let i = 0; i < connections; i++) {
    const { socket, acceptor } = await connectAndCheck(port);
    sockets.push(socket);
    counts.set(acceptor, (counts.get(acceptor) ?? 0) + 1);
  }
  for (const socket of sockets) socket.destroy();
  return Math.max(...counts.values()) / connections;
}

/** A connection on which a check was answered, and by whom: the ids of its requests begin alike. */
function connectAndCheck(port: number): Promise<{ socket: Socket; acceptor: string }> {
  const body = '{"namespace":"spread","identifier":"a","limit":1000000,"duration":60000}';
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(requestText('/v2/ratelimit.limit', body));
    });
    let received = '';
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`closed after: ${received}`)));
    socket.on('data', (data) => {
      received += data;
      const acceptor = /"req_([0-9a-f]+)_/.exec(received)?.[1];
      if (acceptor !== undefined) resolve({ socket, acceptor });
    });
  });
}
