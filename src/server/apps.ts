/**
 * The Apps of an acceptor. The plain App serves the Unix socket, and the port unless it has TLS.
 * Each certificate that the port has had has an App of its own; the last one gets new connections.
 * The gateway App serves the listener for gateways, if there is one.
 *
 * A replaced App stays open until its thread ends: connections may still be distributed to it, and
 * its open connections continue. It costs some 40 KB, which uWebSockets.js frees only then.
 */

import { StartError } from '../core/errors.ts';
import { App, descriptorOf, SSLApp, type TemplatedApp } from './uws.ts';

/** Paths of PEM files, which uWebSockets.js reads itself. */
export interface TlsFiles {
  cert: string;
  key: string;
}

/** The Apps of an acceptor as the acceptor that listens addresses them. */
export interface AppDescriptors {
  plain: number;
  /** The App of the active certificate; undefined without TLS. */
  tls: number | undefined;
  gateway: number | undefined;
}

export type AppKind = 'plain' | 'tls' | 'gateway';

export class Apps {
  readonly plain: TemplatedApp;
  /** The first App with TLS. It keeps listening when another certificate replaces its own. */
  readonly tls: TemplatedApp | undefined;
  readonly gateway: TemplatedApp | undefined;
  readonly #openApps: TemplatedApp[] = [];
  readonly #configure: (app: TemplatedApp, kind: AppKind) => void;

  /**
   * @param hasGateway whether there is a listener for gateways
   * @param configure adds the routes to an App
   * @throws StartError when uWebSockets.js cannot use the files
   */
  constructor(
    files: TlsFiles | undefined,
    hasGateway: boolean,
    configure: (app: TemplatedApp, kind: AppKind) => void,
  ) {
    this.#configure = configure;
    this.plain = this.#add(App(), 'plain');
    this.tls = files === undefined ? undefined : this.#add(createTlsApp(files), 'tls');
    this.gateway = hasGateway ? this.#add(App(), 'gateway') : undefined;
  }

  descriptors(): AppDescriptors {
    const descriptor = (app: TemplatedApp | undefined) => app && descriptorOf(app);
    const { plain, tls, gateway } = this;
    return { plain: descriptorOf(plain), tls: descriptor(tls), gateway: descriptor(gateway) };
  }

  /**
   * Adds an App with the TLS files as they are now.
   * @throws StartError when uWebSockets.js cannot use the files
   */
  reloadTls(files: TlsFiles): number {
    return descriptorOf(this.#add(createTlsApp(files), 'tls'));
  }

  /** Called when no thread distributes connections to the Apps any more. */
  close(): void {
    for (const app of this.#openApps) app.close();
  }

  #add(app: TemplatedApp, kind: AppKind): TemplatedApp {
    this.#configure(app, kind);
    this.#openApps.push(app);
    return app;
  }
}

function createTlsApp({ cert, key }: TlsFiles): TemplatedApp {
  try {
    return SSLApp({ cert_file_name: cert, key_file_name: key });
  } catch {
    throw new StartError(
      `uWebSockets.js cannot use the certificate in ${cert} (WEIR_TLS_CERT) with the key in ` +
        `${key} (WEIR_TLS_KEY)`,
    );
  }
}
