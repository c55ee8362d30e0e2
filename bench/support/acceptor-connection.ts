/** Connections with their acceptors: request ids begin with a prefix of the acceptor's own. */

import { connect, type NetConnectOpts, type Socket } from 'node:net';

export interface AcceptorConnection {
  socket: Socket;
  acceptor: string;
}

/** Opens a connection that stays open, and sends one check of v2 on it. */
export function connectAndCheck(
  target: NetConnectOpts,
  check: string | Uint8Array,
): Promise<AcceptorConnection> {
  return new Promise((resolve, reject) => {
    const socket = connect(target, () => socket.write(check));
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

/** Number of connections per acceptor, largest first. */
export function connectionsPerAcceptor(all: readonly AcceptorConnection[]): number[] {
  const counts = new Map<string, number>();
  for (const { acceptor } of all) counts.set(acceptor, (counts.get(acceptor) ?? 0) + 1);
  return [...counts.values()].sort((a, b) => b - a);
}
