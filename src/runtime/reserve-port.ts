/**
 * Reserves a port for this process. Listening on it for a moment finds a process that listens
 * already. A name made from the port is then held until the process ends, which keeps apart two
 * instances that start at the same time. The acceptor listens on the port later, exclusively.
 */

import { type AddressInfo, createServer, type Server } from 'node:net';

/** @returns the port; for 0, a free one. Rejects when another process uses it. */
export async function reservePort(host: string, port: number): Promise<number> {
  const probe = await listen({ host, port, exclusive: true });
  const { port: reserved } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  await reserveName(`${host}:${reserved}`);
  return reserved;
}

/** Reserves a name for this process. Rejects with EADDRINUSE when another process has it. */
export async function reserveName(name: string): Promise<void> {
  if (process.platform !== 'linux') return;
  // A Unix socket in the abstract namespace: it has no file, and the kernel removes it.
  const server = await listen({ path: `\0weir:${name}` });
  server.on('connection', (socket) => socket.destroy());
  server.unref();
}

function listen(options: object): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(options, () => resolve(server));
  });
}
