/**
 * The Apps of an acceptor: one without TLS, for the Unix socket and, where there is no certificate,
 * for the port; one for each certificate and key that the port has had, with the same routes, of
 * which the last gets what connects from now on; and one for gateways, where they have a place.
 *
 * An App of the past stays until its thread ends, since a connection may be on its way to it and
 * uWebSockets.js gives nothing of it back before: some 40 KB. Its connections go on as they are.
 */

import { StartError } from '../core/errors.ts';
import { App, descriptorOf, SSLApp, type TemplatedApp } from './uws.ts';

/** Paths of PEM files, which uWebSockets.js reads itself. */
export interface TlsFiles {
  cert: string;
  key: string;
}

/** Apps by which the thread that listens knows those of another. */
export interface AppDescriptors {
  plain: number;
  /** The one of the certificate in force, where there is TLS. */
  tls: number | undefined;
  gateway: number | undefined;
}

/** What an App is for. */
export type AppKind = 'plain' | 'tls' | 'gateway';

export class Apps {
  readonly plain: TemplatedApp;
  /** The first one with TLS, which stays the one that listens. */
  readonly tls: TemplatedApp | undefined;
  readonly gateway: TemplatedApp | undefined;
  readonly #openApps: TemplatedApp[] = [];
  readonly #configure: (app: TemplatedApp, kind: AppKind) => void;

  /**
   * @param hasGateway whether there is a place for gateways
   * @param configure gives an App its routes
   * @throws StartError where uWebSockets.js does not take the files
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
    return {
      plain: descriptorOf(plain),
      tls: descriptor(tls),
      gateway: descriptor(gateway),
    };
  }

  /**
   * Makes another one with TLS, of the files as they are now.
   * @throws StartError where uWebSockets.js does not take them
   */
  reloadTls(files: TlsFiles): number {
    return descriptorOf(this.#add(createTlsApp(files), 'tls'));
  }

  /** Nothing may be handed on to them any more. */
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
