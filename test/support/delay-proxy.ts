/**
 * A TCP proxy on loopback that injects the faults of a network: delay each way, blackholed,
 * half-closed and cut connections, and a maximum of bytes per second. Bytes stay in order.
 */

import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

const HOST = '127.0.0.1';

/** What happens to bytes and connections from now on, also on connections that are open. */
export interface NetworkConditions {
  /** One way, ms. */
  delayMs: number;
  /** Added to the delay of each chunk: uniform from 0 up to this, ms. */
  jitterMs: number;
  /** Bytes are accepted and never forwarded, and connections stay open. */
  isBlackhole: boolean;
  /** New connections are closed at once. */
  refuses: boolean;
  /** Each way and connection; Infinity for no maximum. */
  bytesPerSecond: number;
}

const PERFECT: NetworkConditions = {
  delayMs: 0,
  jitterMs: 0,
  isBlackhole: false,
  refuses: false,
  bytesPerSecond: Number.POSITIVE_INFINITY,
};

export interface DelayProxy {
  port: number;
  /** Changes some conditions. */
  set: (conditions: Partial<NetworkConditions>) => void;
  /** Back to a network without faults. Bytes that a blackhole took are lost: also cuts. */
  heal: () => void;
  /** Resets all open connections. */
  cut: () => void;
  /** Ends the direction to the client of all open connections, and leaves the other one open. */
  halfClose: () => void;
  openConnections: () => number;
  /** Connections accepted so far. */
  connections: () => number;
  close: () => Promise<void>;
}

/**
 * @param port the server behind the proxy
 * @param conditions at first
 */
export async function startDelayProxy(
  port: number,
  conditions: Partial<NetworkConditions> = {},
): Promise<DelayProxy> {
  const current: NetworkConditions = { ...PERFECT, ...conditions };
  const pairs = new Set<{ client: Socket; server: Socket }>();
  let accepted = 0;
  const proxy = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (current.refuses) {
      client.destroy();
      return;
    }
    accepted++;
    const server = connect({ port, host: HOST, allowHalfOpen: true, noDelay: true });
    const pair = { client, server };
    pairs.add(pair);
    const end = () => {
      client.destroy();
      server.destroy();
      pairs.delete(pair);
    };
    for (const socket of [client, server]) {
      socket.on('error', end);
      socket.on('close', end);
    }
    forward(client, server, current);
    forward(server, client, current);
  });
  await new Promise<void>((resolve) => proxy.listen(0, HOST, resolve));
  const cut = () => {
    for (const { client, server } of pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
  };
  return {
    port: (proxy.address() as AddressInfo).port,
    set: (changes) => {
      Object.assign(current, changes);
    },
    heal: () => {
      const lostBytes = current.isBlackhole;
      Object.assign(current, PERFECT);
      if (lostBytes) cut();
    },
    cut,
    halfClose: () => {
      for (const { client } of pairs) client.end();
    },
    openConnections: () => pairs.size,
    connections: () => accepted,
    close: () => {
      for (const { client, server } of pairs) {
        client.destroy();
        server.destroy();
      }
      return new Promise((resolve) => proxy.close(() => resolve()));
    },
  };
}

/** Copies one direction. */
function forward(from: Socket, to: Socket, conditions: NetworkConditions): void {
  const queue: { atMs: number; send: () => void }[] = [];
  const sendDue = () => {
    while (queue.length > 0 && queue[0].atMs <= performance.now()) queue.shift()?.send();
    if (queue.length > 0) wait();
  };
  const wait = () => {
    const leftMs = queue[0].atMs - performance.now();
    // Timers have a resolution of 1 ms, which is longer than many round trips.
    if (leftMs > 2) setTimeout(sendDue, leftMs - 1);
    else setImmediate(sendDue);
  };
  let lastMs = 0;
  const schedule = (bytes: number, send: () => void) => {
    const { delayMs, jitterMs, bytesPerSecond } = conditions;
    const nowMs = performance.now();
    const arrivesMs = nowMs + delayMs + jitterMs * Math.random();
    lastMs = Math.max(arrivesMs, lastMs) + (1_000 * bytes) / bytesPerSecond;
    if (queue.length === 0 && lastMs <= nowMs) {
      send();
      return;
    }
    queue.push({ atMs: lastMs, send });
    if (queue.length === 1) wait();
  };
  from.on('data', (chunk: Buffer) => {
    if (conditions.isBlackhole) return;
    schedule(chunk.length, () => {
      if (!conditions.isBlackhole && to.writable) to.write(chunk);
    });
  });
  from.on('end', () => {
    if (!conditions.isBlackhole) schedule(0, () => to.end());
  });
}
