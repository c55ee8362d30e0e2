/**
 * Listens on the port, the port for gateways and the Unix sockets. One acceptor listens, and
 * distributes connections to the Apps of all acceptors in turn, its own included. If each listened
 * on the port, the kernel would spread connections by a hash, and three of four connections of a
 * gateway would often reach one acceptor; and a Unix socket can have only one listener.
 *
 * When listening ends, the kernel resets connections that wait to be accepted. So it ends after an
 * idle turn of the loop, when no connection waits; one that arrives within microseconds may still
 * be reset. Distribution to a closed App is a native fault, so listening ends before any App
 * closes.
 */

import type { GatewayAddresses } from '../api/common/operation-context.ts';
import type { AppDescriptors, Apps } from './apps.ts';
import {
  addChildApp,
  listenExclusive,
  removeChildApp,
  type TemplatedApp,
  type us_listen_socket,
  us_listen_socket_close,
} from './uws.ts';

export interface ListenAddresses {
  host: string;
  port: number;
  socket: string | undefined;
  gateway: GatewayAddresses;
}

export function hasGatewayAddress({ port, socket }: GatewayAddresses): boolean {
  return port !== undefined || socket !== undefined;
}

/** A turn of the loop that accepts a connection or reads data takes longer than this. */
const IDLE_TURN_MS = 0.03;
/** How long to wait for an idle turn: a thread without CPU time has few turns of any kind. */
const IDLE_WAIT_MS = 400;

export class Listener {
  readonly #plainApp: TemplatedApp;
  /** The App that listens on the port: `#plainApp` without TLS. */
  readonly #portApp: TemplatedApp;
  readonly #gatewayApp: TemplatedApp | undefined;
  /** With TLS, the Apps that connections to the port are distributed to. */
  #tlsChildren: readonly number[] = [];
  readonly #listenSockets: us_listen_socket[] = [];

  constructor({ plain, tls, gateway }: Apps) {
    this.#plainApp = plain;
    this.#gatewayApp = gateway;
    this.#portApp = tls ?? plain;
  }

  /**
   * @param apps of all acceptors
   * @returns the first address on which it cannot listen; undefined if it listens on all
   */
  listen(addresses: ListenAddresses, apps: readonly AppDescriptors[]): string | undefined {
    const { host, port, socket } = addresses;
    // A single acceptor serves its connections without distributing them to itself.
    if (apps.length > 1) {
      for (const { plain, gateway } of apps) {
        addChildApp(this.#plainApp, plain);
        if (gateway !== undefined) addChildApp(this.#gatewayApp!, gateway);
      }
      this.distributeTo(apps.flatMap(({ tls }) => tls ?? []));
    }
    let failed: string | undefined;
    // uWebSockets.js calls it before `listen` returns.
    const callbackFor = (address: string) => (listenSocket: us_listen_socket | false) => {
      if (listenSocket) this.#listenSockets.push(listenSocket);
      else failed ??= address;
    };
    listenExclusive(this.#portApp, host, port, callbackFor(`${host}:${port}`));
    if (socket !== undefined) this.#plainApp.listen_unix(callbackFor(socket), socket);
    if (this.#gatewayApp !== undefined)
      listenForGateways(this.#gatewayApp, addresses.gateway, callbackFor);
    return failed;
  }

  /** Distributes new connections to the port to these Apps, one of each acceptor. */
  distributeTo(children: readonly number[]): void {
    for (const child of children) addChildApp(this.#portApp, child);
    for (const child of this.#tlsChildren) removeChildApp(this.#portApp, child);
    this.#tlsChildren = children;
  }

  /** Stops listening after an idle turn of the loop. */
  close(monotonicMs: () => number, onClosed: () => void): void {
    if (this.#listenSockets.length === 0) {
      onClosed();
      return;
    }
    const startMs = monotonicMs();
    let turnMs = startMs;
    const turn = () => {
      const now = monotonicMs();
      const isIdle = now - turnMs < IDLE_TURN_MS;
      turnMs = now;
      if (!isIdle && now - startMs < IDLE_WAIT_MS) {
        setImmediate(turn);
        return;
      }
      for (const socket of this.#listenSockets.splice(0)) us_listen_socket_close(socket);
      onClosed();
    };
    setImmediate(turn);
  }
}

function listenForGateways(
  app: TemplatedApp,
  { host, port, socket }: GatewayAddresses,
  callbackFor: (address: string) => (listenSocket: us_listen_socket | false) => void,
): void {
  if (port !== undefined) listenExclusive(app, host, port, callbackFor(`${host}:${port}`));
  if (socket !== undefined) app.listen_unix(callbackFor(socket), socket);
}
