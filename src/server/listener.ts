/**
 * Where connections come in: the port, the one for gateways, and Unix sockets, where they are asked
 * for. One acceptor listens, and hands each connection on to the Apps of all of them in turn, its
 * own among them. Were each to listen on the port, the kernel would spread connections by a hash,
 * and of four that a gateway keeps three would often be in one place; and of a Unix socket there is
 * only one.
 *
 * The kernel resets connections that it has taken and nobody has accepted when listening ends. So
 * it ends in a moment in which none waits: behind a turn of the loop that had nothing to do. One
 * that comes in the microseconds between may still be reset; nobody can rule that out.
 *
 * What is handed to an App that is closed takes the process down with a native fault. So listening
 * ends first, and an acceptor that would end untold stays until the process has ended.
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

/** A turn of the loop in which a connection was accepted, or anything read, takes longer. */
const IDLE_TURN_MS = 0.03;
/** How long to wait for a turn that had nothing to do: a starved thread has few turns at all. */
const IDLE_WAIT_MS = 400;

export class Listener {
  readonly #plainApp: TemplatedApp;
  /** The same one where there is no TLS. */
  readonly #portApp: TemplatedApp;
  readonly #gatewayApp: TemplatedApp | undefined;
  /** To which connections to the port are handed on, where there is TLS. */
  #tlsChildren: readonly number[] = [];
  readonly #listenSockets: us_listen_socket[] = [];

  constructor({ plain, tls, gateway }: Apps) {
    this.#plainApp = plain;
    this.#gatewayApp = gateway;
    this.#portApp = tls ?? plain;
  }

  /**
   * @param apps of all acceptors
   * @returns where it cannot listen, if there is such a place
   */
  listen(addresses: ListenAddresses, apps: readonly AppDescriptors[]): string | undefined {
    const { host, port, socket } = addresses;
    // A single App takes its connections without a detour through its own queue.
    if (apps.length > 1) {
      for (const { plain, gateway } of apps) {
        addChildApp(this.#plainApp, plain);
        if (gateway !== undefined) addChildApp(this.#gatewayApp!, gateway);
      }
      this.distributeTo(apps.flatMap(({ tls }) => tls ?? []));
    }
    let failed: string | undefined;
    // Called within the call.
    const heard = (place: string) => (listening: us_listen_socket | false) => {
      if (listening) this.#listenSockets.push(listening);
      else failed ??= place;
    };
    listenExclusive(this.#portApp, host, port, heard(`${host}:${port}`));
    if (socket !== undefined) this.#plainApp.listen_unix(heard(socket), socket);
    if (this.#gatewayApp !== undefined)
      listenForGateways(this.#gatewayApp, addresses.gateway, heard);
    return failed;
  }

  /** Who connects to the port from now on comes to one of these Apps, each of another thread. */
  distributeTo(children: readonly number[]): void {
    for (const child of children) addChildApp(this.#portApp, child);
    for (const child of this.#tlsChildren) removeChildApp(this.#portApp, child);
    this.#tlsChildren = children;
  }

  /** Ends listening a little later, and tells when it has ended. */
  close(monotonicMs: () => number, onClosed: () => void): void {
    if (this.#listenSockets.length === 0) {
      onClosed();
      return;
    }
    const toldMs = monotonicMs();
    let turnMs = toldMs;
    const turn = () => {
      const now = monotonicMs();
      const isIdle = now - turnMs < IDLE_TURN_MS;
      turnMs = now;
      if (!isIdle && now - toldMs < IDLE_WAIT_MS) {
        setImmediate(turn);
        return;
      }
      for (const listening of this.#listenSockets.splice(0)) us_listen_socket_close(listening);
      onClosed();
    };
    setImmediate(turn);
  }
}

function listenForGateways(
  app: TemplatedApp,
  { host, port, socket }: GatewayAddresses,
  callbackFor: (place: string) => (listening: us_listen_socket | false) => void,
): void {
  if (port !== undefined) listenExclusive(app, host, port, callbackFor(`${host}:${port}`));
  if (socket !== undefined) app.listen_unix(callbackFor(socket), socket);
}
