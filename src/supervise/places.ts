/**
 * Where weir listens, had alone before anything is made: the port of the checks, the one for
 * gateways, and Unix sockets. The acceptors listen there in the end. What cannot be had stops the
 * start with a sentence that names its setting.
 */

import type { Settings } from '../config/schema.ts';
import { StartError } from '../errors.ts';
import type { Places } from '../http/listener.ts';
import { takePort } from './port.ts';
import { UnixSocket } from './socket.ts';

/** What the codes of the system mean here. */
const LISTEN_FAULTS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another process uses this port',
  EADDRNOTAVAIL: 'no interface of this machine has this address',
  EACCES: 'weir may not use this port; ports below 1024 need a right of their own',
  ENOTFOUND: 'there is no such host',
};

interface Taken {
  socket: UnixSocket;
  /** Who may connect to it, in octal digits. */
  mode: string;
}

export class TakenPlaces {
  readonly places: Places;
  readonly #sockets: readonly Taken[];

  private constructor(places: Places, sockets: readonly Taken[]) {
    this.places = places;
    this.#sockets = sockets;
  }

  /** @throws StartError */
  static async take(settings: Settings): Promise<TakenPlaces> {
    const { host, gatewayHost } = settings;
    const port = await needPort('WEIR_PORT', host, settings.port, takePort(host, settings.port));
    let gatewayPort = settings.gatewayPort;
    if (gatewayPort !== undefined) {
      const having = takePort(gatewayHost, gatewayPort);
      gatewayPort = await needPort('WEIR_GATEWAY_PORT', gatewayHost, gatewayPort, having);
    }
    const sockets: Taken[] = [];
    const take = async (setting: string, path: string | undefined, mode: string) => {
      if (path === undefined) return undefined;
      const socket = await UnixSocket.take(setting, path);
      sockets.push({ socket, mode });
      return socket.path;
    };
    const socket = await take('WEIR_SOCKET', settings.socket, settings.socketMode);
    const { gatewaySocket: path, gatewaySocketMode: mode } = settings;
    const gatewaySocket = await take('WEIR_GATEWAY_SOCKET', path, mode);
    const gateway = { host: gatewayHost, port: gatewayPort, socket: gatewaySocket };
    return new TakenPlaces({ host, port, socket, gateway }, sockets);
  }

  /** Whoever the modes name may connect to the sockets from now on. */
  open(): void {
    for (const { socket, mode } of this.#sockets) socket.open(mode);
  }

  /** Nobody finds the sockets any more. */
  remove(): void {
    for (const { socket } of this.#sockets) socket.remove();
  }
}

/** @param having the port, when it is had. @throws StartError where it cannot be */
export async function needPort(
  setting: string,
  host: string,
  port: number,
  having: Promise<number>,
): Promise<number> {
  try {
    return await having;
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    const why = Object.hasOwn(LISTEN_FAULTS, code) ? LISTEN_FAULTS[code] : message;
    throw new StartError(`cannot listen on ${host}:${port} (${setting}): ${why}`);
  }
}
