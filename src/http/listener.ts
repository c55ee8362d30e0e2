/**
 * Where connections come in: the port, and the Unix socket where one is asked for. One acceptor
 * listens, and hands each connection on to the Apps of all of them in turn, its own among them.
 * Were each to listen on the port, the kernel would spread connections by a hash, and of four that
 * a gateway keeps three would often be in one place; and of a Unix socket there is only one.
 *
 * What is handed to an App that is closed takes the process down with a native fault. So listening
 * ends first, and an acceptor that would end untold stays until the process has ended.
 */

import type { AppDescriptors, Apps } from './apps.ts';
import {
  addChildApp,
  listenAlone,
  removeChildApp,
  type TemplatedApp,
  type us_listen_socket,
  us_listen_socket_close,
} from './uws.ts';

export interface Places {
  host: string;
  port: number;
  socket: string | undefined;
}

export class Listener {
  readonly #plain: TemplatedApp;
  /** The same one where there is no TLS. */
  readonly #atPort: TemplatedApp;
  /** To which connections to the port are handed on, where there is TLS. */
  #children: readonly number[] = [];
  readonly #open: us_listen_socket[] = [];

  constructor({ plain, tls }: Apps) {
    this.#plain = plain;
    this.#atPort = tls ?? plain;
  }

  /**
   * @param apps of all acceptors
   * @returns where it cannot listen, if there is such a place
   */
  open({ host, port, socket }: Places, apps: readonly AppDescriptors[]): string | undefined {
    // A single App takes its connections without a detour through its own queue.
    if (apps.length > 1) {
      for (const { plain } of apps) addChildApp(this.#plain, plain);
      this.handOnTo(apps.flatMap(({ tls }) => tls ?? []));
    }
    let failed: string | undefined;
    // Called within the call.
    const heard = (place: string) => (listening: us_listen_socket | false) => {
      if (listening) this.#open.push(listening);
      else failed ??= place;
    };
    listenAlone(this.#atPort, host, port, heard(`${host}:${port}`));
    if (socket !== undefined) this.#plain.listen_unix(heard(socket), socket);
    return failed;
  }

  /** Who connects to the port from now on comes to one of these Apps, each of another thread. */
  handOnTo(children: readonly number[]): void {
    for (const child of children) addChildApp(this.#atPort, child);
    for (const child of this.#children) removeChildApp(this.#atPort, child);
    this.#children = children;
  }

  close(): void {
    for (const listening of this.#open.splice(0)) us_listen_socket_close(listening);
  }
}
