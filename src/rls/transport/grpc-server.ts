/**
 * A server of gRPC over HTTP/2, in cleartext with prior knowledge or over TLS, where HTTP/1 may
 * be served beside it. It accepts connections itself, so that each can be rejected before anything
 * is read, and must complete its handshake within a deadline. An error of a connection ends only
 * this connection. Errors of the listener and of methods go to `onError`.
 */

import type { RequestListener } from 'node:http';
import { createServer, type ListenOptions, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:tls';
import { GRPC_HANDSHAKE_TIMEOUT_MS } from '../../core/constants.ts';
import type { StreamMethod, UnaryMethod } from './call.ts';
import { Http1Connections } from './http1.ts';
import { type ConnectionOptions, Http2Connection } from './http2-connection.ts';
import { BufferedBytes } from './message-reader.ts';

export interface TlsFiles {
  cert: Buffer;
  key: Buffer;
  /** Clients need a certificate of these CAs. */
  clientCa?: Buffer | undefined;
}

export interface GrpcServerOptions {
  /** By path. */
  unary: Readonly<Record<string, UnaryMethod>>;
  serverStreaming?: Readonly<Record<string, StreamMethod>>;
  /** For clients that choose HTTP/1 by ALPN, or have no ALPN. */
  http1?: RequestListener;
  tls?: TlsFiles;
  maxMessageBytes: number;
  /** Counts connections. @returns false to reject the new connection, which is then not counted */
  onConnection(change: 1 | -1): boolean;
  onError?(error: Error): void;
}

export type GrpcAddress = { host: string; port: number; reusePort?: boolean } | { path: string };

/** The interval of `tick`. */
const SECOND_MS = 1_000;

export class GrpcServer {
  readonly #options: GrpcServerOptions;
  readonly #connectionOptions: ConnectionOptions;
  readonly #server: Server;
  readonly #tls: TlsServer | undefined;
  readonly #http1: Http1Connections | undefined;
  readonly #sockets = new Set<Socket>();
  readonly #connections = new Set<Http2Connection>();
  #isDraining = false;
  #ticker: NodeJS.Timeout | undefined;

  constructor(options: GrpcServerOptions) {
    this.#options = options;
    this.#connectionOptions = {
      unary: new Map(Object.entries(options.unary)),
      serverStreaming: new Map(Object.entries(options.serverStreaming ?? {})),
      maxMessageBytes: options.maxMessageBytes,
      buffered: new BufferedBytes(),
      onError: (error) => options.onError?.(error),
    };
    this.#http1 = options.http1 && new Http1Connections(options.http1);
    this.#tls = options.tls && this.#createTls(options.tls);
    this.#server = createServer({ noDelay: true }, (socket) => this.#accept(socket));
    this.#server.on('listening', () => {
      this.#ticker = setInterval(() => this.#tick(), SECOND_MS);
    });
    this.#server.on('close', () => clearInterval(this.#ticker));
  }

  /** @returns the port; 0 for a path */
  listen(address: GrpcAddress): Promise<number> {
    const server = this.#server;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(address as ListenOptions, () => {
        server.off('error', reject);
        server.on('error', this.#connectionOptions.onError);
        const bound = server.address();
        resolve(bound !== null && typeof bound === 'object' ? bound.port : 0);
      });
    });
  }

  /**
   * Replaces the certificate, and the CAs of clients, for new connections. Whether clients need a
   * certificate cannot change.
   */
  setTls(files: TlsFiles): void {
    this.#tls?.setSecureContext(contextOf(files));
  }

  /** Stops listening, and closes each connection after its calls. No accepted call is lost. */
  drain(): Promise<void> {
    this.#isDraining = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const connection of this.#connections) connection.drain();
    this.#http1?.drain();
    return closed;
  }

  /** Closes all connections at once. */
  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #createTls(files: TlsFiles): TlsServer {
    const server = createTlsServer({
      ...contextOf(files),
      requestCert: files.clientCa !== undefined,
      rejectUnauthorized: files.clientCa !== undefined,
      ALPNProtocols: this.#http1 === undefined ? ['h2'] : ['h2', 'http/1.1'],
      handshakeTimeout: GRPC_HANDSHAKE_TIMEOUT_MS,
    });
    server.on('secureConnection', (socket) => {
      if (socket.alpnProtocol === 'h2') this.#serve(socket);
      else if (this.#http1 !== undefined && !this.#isDraining) this.#http1.add(socket);
      else socket.destroy();
    });
    return server;
  }

  #accept(socket: Socket): void {
    if (!this.#options.onConnection(1)) {
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    socket.on('error', ignore);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#options.onConnection(-1);
    });
    if (this.#tls === undefined) this.#serve(socket);
    else this.#tls.emit('connection', socket);
  }

  #serve(socket: Socket): void {
    const deadline = setTimeout(() => socket.destroy(), GRPC_HANDSHAKE_TIMEOUT_MS);
    const connection = new Http2Connection(socket, this.#connectionOptions, () => {
      clearTimeout(deadline);
    });
    this.#connections.add(connection);
    socket.once('close', () => {
      clearTimeout(deadline);
      this.#connections.delete(connection);
    });
    socket.on('error', ignore);
    if (this.#isDraining) connection.drain();
  }

  #tick(): void {
    for (const connection of this.#connections) connection.tick();
  }
}

function contextOf({ cert, key, clientCa }: TlsFiles) {
  return { cert, key, ...(clientCa !== undefined && { ca: clientCa }) };
}

/** The connection closes after its error. */
function ignore(): void {}
