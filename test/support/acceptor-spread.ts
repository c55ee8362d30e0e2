/** The spread of connections over acceptors. */

import type { NetConnectOpts } from 'node:net';
import * as acceptors from '../../bench/support/acceptor-connection.ts';
import { requestBytes } from './http.ts';

export { connectionsPerAcceptor } from '../../bench/support/acceptor-connection.ts';

const CHECK_BYTES = requestBytes({
  path: '/v2/ratelimit.limit',
  body: '{"namespace":"spread","identifier":"a","limit":1000000,"duration":60000}',
});

/** Opens a connection that stays open, and sends one check on it. */
export function connectAndCheck(target: NetConnectOpts): Promise<acceptors.AcceptorConnection> {
  return acceptors.connectAndCheck(target, CHECK_BYTES);
}

/** Opens connections one after the other, and closes them. @returns connections per acceptor */
export async function measureSpread(targets: readonly NetConnectOpts[]): Promise<number[]> {
  const all: acceptors.AcceptorConnection[] = [];
  for (const target of targets) all.push(await connectAndCheck(target));
  for (const { socket } of all) socket.destroy();
  return acceptors.connectionsPerAcceptor(all);
}
