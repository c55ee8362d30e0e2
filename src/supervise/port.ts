/**
 * Whether a port can be had alone. Acceptors share their port among themselves, and the kernel
 * would let a second weir join them and split the counters, so it is tried once without sharing.
 */

import { type AddressInfo, createServer } from 'node:net';

/** @returns the port, which for 0 is a free one. Rejects when another process has it. */
export function probePort(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen({ host, port, exclusive: true }, () => {
      const { port: found } = server.address() as AddressInfo;
      server.close(() => resolve(found));
    });
  });
}
