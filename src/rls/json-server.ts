/**
 * The port of `/json`, in cleartext. Its connections are bounded and counted with those of gRPC,
 * and must send their requests within the same deadline. An error of a connection ends only it.
 */

import type { RequestListener } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { Http1Connections } from './transport/http1.ts';

interface JsonServerOptions {
  handler: RequestListener;
  /** Counts connections. @returns false to reject the new connection, which is then not counted */
  onConnection(change: 1 | -1): boolean;
  onError(error: Error): void;
}

export class JsonServer {
  readonly #options: JsonServerOptions;
  readonly #server: Server;
  readonly #http1: Http1Connections;
  readonly #sockets = new Set<Socket>();

  constructor(options: JsonServerOptions) {
    this.#options = options;
    this.#http1 = new Http1Connections(options.handler);
    this.#server = createServer({ noDelay: true }, (socket) => this.#accept(socket));
  }

  listen(host: string, port: number): Promise<void> {
    const server = this.#server;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host, port, exclusive: true }, () => {
        server.off('error', reject);
        server.on('error', this.#options.onError);
        resolve();
      });
    });
  }

  /** Stops to listen, and closes each connection after the response to its current request. */
  drain(): void {
    this.#server.close();
    this.#http1.drain();
  }

  /** Closes all connections at once. */
  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    if (!this.#options.onConnection(1)) {
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#options.onConnection(-1);
    });
    this.#http1.add(socket);
  }
}
