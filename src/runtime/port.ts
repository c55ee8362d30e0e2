/**
 * Having a port alone. It is tried before anything is made, which finds whoever listens already;
 * and a name made from it is held as long as the process lives, which keeps apart two that start at
 * the same time. The acceptor that listens in the end does so without sharing.
 */

import { type AddressInfo, createServer, type Server } from 'node:net';

/** @returns the port, which for 0 is a free one. Rejects when another process has it. */
export async function reservePort(host: string, port: number): Promise<number> {
  const probe = await listen({ host, port, exclusive: true });
  const { port: found } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  await reserveName(`${host}:${found}`);
  return found;
}

/** Holds a name as long as the process lives. Rejects with EADDRINUSE when another one has it. */
export async function reserveName(name: string): Promise<void> {
  if (process.platform !== 'linux') return;
  // In the abstract space of Unix sockets: no file, gone with the process.
  const held = await listen({ path: `\0weir:${name}` });
  held.on('connection', (socket) => socket.destroy());
  held.unref();
}

function listen(options: object): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(options, () => resolve(server));
  });
}
