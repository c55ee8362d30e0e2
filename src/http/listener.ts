/**
 * Where connections come in: the port, and the Unix socket where one is asked for. One acceptor
 * listens, and hands each connection on to the Apps of all of them in turn, its own among them.
 * Were each to listen on the port, the kernel would spread connections by a hash, and of four that
 * a gateway keeps three would often be in one place; and of a Unix socket there is only one.
 *
 * What is handed to an App that is closed takes the process down with a native fault. So listening
 * ends first, and an acceptor that would end untold stays until the process has ended.
 */

import {
  addChildApp,
  listenAlone,
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
  readonly #app: TemplatedApp;
  readonly #open: us_listen_socket[] = [];

  constructor(app: TemplatedApp) {
    this.#app = app;
  }

  /**
   * @param apps descriptors of the Apps that connections go to
   * @returns where it cannot listen, if there is such a place
   */
  open({ host, port, socket }: Places, apps: readonly number[]): string | undefined {
    // A single App takes its connections without a detour through its own queue.
    if (apps.length > 1) for (const app of apps) addChildApp(this.#app, app);
    let failed: string | undefined;
    // Called within the call.
    const heard = (place: string) => (listening: us_listen_socket | false) => {
      if (listening) this.#open.push(listening);
      else failed ??= place;
    };
    listenAlone(this.#app, host, port, heard(`${host}:${port}`));
    if (socket !== undefined) this.#app.listen_unix(heard(socket), socket);
    return failed;
  }

  close(): void {
    for (const listening of this.#open.splice(0)) us_listen_socket_close(listening);
  }
}
