/**
 * Where weir listens, had alone before anything is made: the port of the checks, the one for
 * gateways, and Unix sockets. The acceptors listen there in the end. What cannot be had stops the
 * start with a sentence that names its setting.
 */

import type { Settings } from '../config/schema.ts';
import { StartError } from '../core/errors.ts';
import type { ListenAddresses } from '../server/listener.ts';
import { reservePort } from './port.ts';
import { UnixSocket } from './unix-socket.ts';

/** What the codes of the system mean here. */
const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another process uses this port',
  EADDRNOTAVAIL: 'no interface of this machine has this address',
  EACCES: 'weir may not use this port; ports below 1024 need a right of their own',
  ENOTFOUND: 'there is no such host',
};

interface ReservedSocket {
  socket: UnixSocket;
  /** Who may connect to it, in octal digits. */
  mode: string;
}

export class ReservedAddresses {
  readonly addresses: ListenAddresses;
  readonly #sockets: readonly ReservedSocket[];

  private constructor(places: ListenAddresses, sockets: readonly ReservedSocket[]) {
    this.addresses = places;
    this.#sockets = sockets;
  }

  /** @throws StartError */
  static async reserve(settings: Settings): Promise<ReservedAddresses> {
    const { host, gatewayHost } = settings;
    const port = await requirePort(
      'WEIR_PORT',
      host,
      settings.port,
      reservePort(host, settings.port),
    );
    let gatewayPort = settings.gatewayPort;
    if (gatewayPort !== undefined) {
      const having = reservePort(gatewayHost, gatewayPort);
      gatewayPort = await requirePort('WEIR_GATEWAY_PORT', gatewayHost, gatewayPort, having);
    }
    const sockets: ReservedSocket[] = [];
    const take = async (setting: string, path: string | undefined, mode: string) => {
      if (path === undefined) return undefined;
      const socket = await UnixSocket.reserve(setting, path);
      sockets.push({ socket, mode });
      return socket.path;
    };
    const socket = await take('WEIR_SOCKET', settings.socket, settings.socketMode);
    const { gatewaySocket: path, gatewaySocketMode: mode } = settings;
    const gatewaySocket = await take('WEIR_GATEWAY_SOCKET', path, mode);
    const gateway = { host: gatewayHost, port: gatewayPort, socket: gatewaySocket };
    return new ReservedAddresses({ host, port, socket, gateway }, sockets);
  }

  /** Whoever the modes name may connect to the sockets from now on. */
  openSockets(): void {
    for (const { socket, mode } of this.#sockets) socket.applyMode(mode);
  }

  /** Nobody finds the sockets any more. */
  removeSockets(): void {
    for (const { socket } of this.#sockets) socket.remove();
  }
}

/** @param reservation the port, when it is had. @throws StartError where it cannot be */
export async function requirePort(
  setting: string,
  host: string,
  port: number,
  reservation: Promise<number>,
): Promise<number> {
  try {
    return await reservation;
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    const why = Object.hasOwn(LISTEN_ERRORS, code) ? LISTEN_ERRORS[code] : message;
    throw new StartError(`cannot listen on ${host}:${port} (${setting}): ${why}`);
  }
}
