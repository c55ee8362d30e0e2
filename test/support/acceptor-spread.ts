/** Finds the acceptor of each connection: request ids begin with the acceptor's own prefix. */

import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { requestBytes } from './http.ts';

const CHECK_BYTES = requestBytes({
  path: '/v2/ratelimit.limit',
  body: '{"namespace":"spread","identifier":"a","limit":1000000,"duration":60000}',
});

export interface AcceptorConnection {
  socket: Socket;
  acceptor: string;
}

/** Opens a connection that stays open, and sends one check on it. */
export function connectAndCheck(to: NetConnectOpts): Promise<AcceptorConnection> {
  return new Promise((resolve, reject) => {
    const socket = connect(to, () => socket.write(CHECK_BYTES));
    let received = '';
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`closed after: ${received}`)));
    socket.on('data', (data) => {
      received += data;
      const [, acceptor] = /"req_([0-9a-f]+)_/.exec(received) ?? [];
      if (acceptor !== undefined) resolve({ socket, acceptor });
    });
  });
}

/** Number of connections per acceptor, largest first. */
export function connectionsPerAcceptor(all: readonly AcceptorConnection[]): number[] {
  const counts = new Map<string, number>();
  for (const { acceptor } of all) counts.set(acceptor, (counts.get(acceptor) ?? 0) + 1);
  return [...counts.values()].sort((a, b) => b - a);
}

/** Opens connections one after the other, and closes them. @returns connections per acceptor */
export async function measureSpread(to: readonly NetConnectOpts[]): Promise<number[]> {
  const all: AcceptorConnection[] = [];
  for (const options of to) all.push(await connectAndCheck(options));
  for (const { socket } of all) socket.destroy();
  return connectionsPerAcceptor(all);
}
