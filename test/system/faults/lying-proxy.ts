/** A TCP proxy on loopback that replaces answers of Redis by nonsense. */

import { randomBytes, randomInt } from 'node:crypto';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

const HOST = '127.0.0.1';

/** Answers of wrong types, of the right type with wrong contents, and parts of answers. */
const LIES: readonly (string | Buffer)[] = [
  '+OK\r\n',
  ':7\r\n',
  '$-1\r\n',
  '_\r\n',
  '#t\r\n',
  ',1.5\r\n',
  '*0\r\n',
  '*1\r\n$0\r\n\r\n',
  '*2\r\n$3\r\nabc\r\n:1\r\n',
  '*2\r\n$19\r\n0 0 x.1 0 1 -1 99999\r\n$5\r\n1 0 0\r\n',
  '%1\r\n+a\r\n:1\r\n',
  '>2\r\n+x\r\n+y\r\n',
  '-ERR nonsense\r\n',
  '-NOSCRIPT No matching script\r\n',
  '-MOVED 1 127.0.0.1:1\r\n',
  '*3\r\n$2\r\n',
  '$999999\r\nabc',
  '*999999999\r\n',
  'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n',
];

export interface LyingProxy {
  port: number;
  /** @param share of the answers that are replaced from now on */
  lie: (share: number) => void;
  /** Loses the next answer. */
  lose: () => void;
  close: () => Promise<void>;
}

/** @param port of Redis */
export async function startLyingProxy(port: number): Promise<LyingProxy> {
  const sockets = new Set<Socket>();
  let share = 0;
  let isLosing = false;
  const proxy = createServer({ noDelay: true }, (client) => {
    const server = connect({ port, host: HOST, noDelay: true });
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (bytes) => server.write(bytes));
    server.on('data', (bytes) => {
      if (!isLosing) client.write(Math.random() < share ? newLie() : bytes);
      isLosing = false;
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, HOST, resolve));
  return {
    port: (proxy.address() as AddressInfo).port,
    lie: (part) => {
      share = part;
    },
    lose: () => {
      isLosing = true;
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => proxy.close(() => resolve()));
    },
  };
}

function newLie(): string | Buffer {
  const at = randomInt(LIES.length + 1);
  return LIES[at] ?? randomBytes(64);
}
