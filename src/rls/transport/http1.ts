/**
 * HTTP/1 on connections that are accepted elsewhere. One deadline is for a request with its
 * response: it begins with the connection, and after each response. A connection that misses it
 * closes.
 */

import { createServer, type RequestListener, type Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { GRPC_HTTP1_TIMEOUT_MS } from '../../core/constants.ts';

interface ConnectionState {
  deadline: NodeJS.Timeout;
  /** Whether a request has no complete response yet. */
  isBusy: boolean;
}

export class Http1Connections {
  readonly #server: Server;
  readonly #states = new Map<Duplex, ConnectionState>();
  #isDraining = false;

  constructor(handler: RequestListener) {
    this.#server = createServer((req, res) => {
      const { socket } = req;
      const state = this.#states.get(socket);
      if (state !== undefined) state.isBusy = true;
      if (this.#isDraining) res.setHeader('connection', 'close');
      res.once('close', () => this.#awaitRequest(socket));
      handler(req, res);
    });
  }

  add(socket: Duplex): void {
    const deadline = setTimeout(() => socket.destroy(), GRPC_HTTP1_TIMEOUT_MS);
    this.#states.set(socket, { deadline, isBusy: false });
    socket.once('close', () => {
      clearTimeout(deadline);
      this.#states.delete(socket);
    });
    this.#server.emit('connection', socket);
  }

  /** Closes each connection after the response to its current request. */
  drain(): void {
    this.#isDraining = true;
    for (const [socket, { isBusy }] of this.#states) {
      if (!isBusy) socket.destroy();
    }
  }

  #awaitRequest(socket: Duplex): void {
    const state = this.#states.get(socket);
    if (state === undefined) return;
    state.isBusy = false;
    state.deadline.refresh();
    if (this.#isDraining) socket.end();
  }
}
