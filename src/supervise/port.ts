/**
 * Having a port alone. Acceptors share their port among themselves, and the kernel would let a
 * second weir join them and split the counters. So the port is tried once without sharing, which
 * finds whoever listens already; and a name made from it is held as long as the process lives,
 * which keeps apart two that start at the same time.
 */

import { type AddressInfo, createServer, type Server } from 'node:net';

/** @returns the port, which for 0 is a free one. Rejects when another process has it. */
export async function takePort(host: string, port: number): Promise<number> {
  const probe = await listen({ host, port, exclusive: true });
  const { port: found } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  if (process.platform === 'linux') {
    // A name in the abstract space of Unix sockets: no file, gone with the process.
    const held = await listen({ path: `\0weir:${host}:${found}` });
    held.on('connection', (socket) => socket.destroy());
    held.unref();
  }
  return found;
}

function listen(options: object): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(options, () => resolve(server));
  });
}
