/**
 * The addresses that weir listens on, reserved before anything is written: the ports of the checks,
 * of gateways and of the rate limit service, Unix sockets and the admin port. The threads listen at
 * the end of the start; the admin port listens at once, and is not ready until then. An address
 * that is not available is a StartError that names its setting.
 */

import { servesDashboard } from '../config/dashboard-proxy.ts';
import type { LoadedSettings } from '../config/load.ts';
import type { Settings } from '../config/schema.ts';
import { parseHostNames } from '../config/validators.ts';
import { StartError } from '../core/errors.ts';
import { AdminServer, type DashboardMode } from '../observe/admin.ts';
import type { RlsListeners } from '../rls/messages.ts';
import type { ListenAddresses } from '../server/listener.ts';
import { type ListenerUrls, listenerUrls } from './listener-urls.ts';
import { reservePort } from './reserve-port.ts';
import { TlsCertificate } from './tls.ts';
import { UnixSocket } from './unix-socket.ts';

/** What error codes of the system mean for a listener. */
const LISTEN_ERRORS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another process uses this port',
  EADDRNOTAVAIL: 'no interface of this machine has this address',
  EACCES: 'weir may not use this port; a port below 1024 needs a privilege',
  ENOTFOUND: 'there is no such host',
};

interface ReservedSocket {
  socket: UnixSocket;
  /** The file mode that permits clients to connect, in octal digits. */
  mode: string;
}

class ReservedAddresses {
  readonly addresses: ListenAddresses;
  /** Of the rate limit service, where it is on. */
  readonly rls: RlsListeners | undefined;
  readonly #sockets: readonly ReservedSocket[];

  private constructor(
    addresses: ListenAddresses,
    rls: RlsListeners | undefined,
    sockets: readonly ReservedSocket[],
  ) {
    this.addresses = addresses;
    this.rls = rls;
    this.#sockets = sockets;
  }

  /** @throws StartError */
  static async reserve(settings: LoadedSettings): Promise<ReservedAddresses> {
    const { host, gatewayHost, rls } = settings;
    const port = await requirePort(
      'WEIR_PORT',
      host,
      settings.port,
      reservePort(host, settings.port),
    );
    let gatewayPort = settings.gatewayPort;
    if (gatewayPort !== undefined) {
      const reservation = reservePort(gatewayHost, gatewayPort);
      gatewayPort = await requirePort('WEIR_GATEWAY_PORT', gatewayHost, gatewayPort, reservation);
    }
    const sockets: ReservedSocket[] = [];
    const reserveSocket = async (setting: string, path: string | undefined, mode: string) => {
      if (path === undefined) return undefined;
      const socket = await UnixSocket.reserve(setting, path);
      sockets.push({ socket, mode });
      return socket.path;
    };
    const socket = await reserveSocket('WEIR_SOCKET', settings.socket, settings.socketMode);
    const { gatewaySocket: path, gatewaySocketMode: mode } = settings;
    const gatewaySocket = await reserveSocket('WEIR_GATEWAY_SOCKET', path, mode);
    const gateway = { host: gatewayHost, port: gatewayPort, socket: gatewaySocket };
    const rlsListeners = rls && {
      host: rls.host,
      port: await reserveRlsPort('WEIR_RLS_PORT', rls.host, rls.port),
      socket: await reserveSocket('WEIR_RLS_SOCKET', rls.socket, rls.socketMode),
      jsonPort: await reserveRlsPort('WEIR_RLS_JSON_PORT', rls.host, rls.jsonPort),
      isPortShared: rls.threads > 1,
    };
    return new ReservedAddresses({ host, port, socket, gateway }, rlsListeners, sockets);
  }

  /** Permits clients to connect to the sockets, as their modes say. */
  openSockets(): void {
    for (const { socket, mode } of this.#sockets) socket.applyMode(mode);
  }

  /** Removes the socket files, so that no new client connects. */
  removeSockets(): void {
    for (const { socket } of this.#sockets) socket.remove();
  }
}

/** @param port undefined where the service has none. @throws StartError */
async function reserveRlsPort(
  setting: string,
  host: string,
  port: number | undefined,
): Promise<number | undefined> {
  if (port === undefined) return undefined;
  return requirePort(setting, host, port, reservePort(host, port));
}

export interface Listeners {
  tls: TlsCertificate | undefined;
  reserved: ReservedAddresses;
  admin: AdminServer;
  checkUrls: ListenerUrls;
  adminUrls: ListenerUrls;
}

/** Validates the certificate, reserves the addresses, opens the admin port. @throws StartError */
export async function reserveListeners(settings: LoadedSettings): Promise<Listeners> {
  const tls = TlsCertificate.open(settings);
  const reserved = await ReservedAddresses.reserve(settings);
  const { host, port } = reserved.addresses;
  const scheme = tls === undefined ? 'http' : 'https';
  const { admin, adminPort } = await openAdminPort(settings);
  return {
    tls,
    reserved,
    admin,
    checkUrls: listenerUrls(scheme, host, port, settings.publicUrl),
    adminUrls: listenerUrls('http', settings.adminHost, adminPort),
  };
}

async function openAdminPort(
  settings: Settings,
): Promise<{ admin: AdminServer; adminPort: number }> {
  const { adminHost, adminHosts } = settings;
  const names = adminHosts === undefined ? [] : parseHostNames(adminHosts);
  const admin = new AdminServer([adminHost, ...names], dashboardMode(settings));
  const listening = admin.listen(adminHost, settings.adminPort);
  const setting = 'WEIR_ADMIN_PORT';
  const adminPort = await requirePort(setting, adminHost, settings.adminPort, listening);
  return { admin, adminPort };
}

function dashboardMode(settings: Settings): DashboardMode {
  if (settings.dashboard === 'true') return 'behind-tls';
  return servesDashboard(settings) ? 'on' : 'off';
}

/** @param reservation resolves with the port. @throws StartError where it rejects */
async function requirePort(
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
