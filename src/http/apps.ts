/**
 * The Apps of an acceptor, all of them with the same routes: one without TLS, for the Unix socket
 * and, where there is no certificate, for the port; and one for each certificate and key that the
 * port has had, of which the last gets what connects from now on.
 *
 * An App of the past stays until its thread ends, since a connection may be on its way to it and
 * uWebSockets.js gives nothing of it back before: some 40 KB. Its connections go on as they are.
 */

import { StartError } from '../errors.ts';
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
}

export class Apps {
  readonly plain: TemplatedApp;
  /** The first one with TLS, which stays the one that listens. */
  readonly tls: TemplatedApp | undefined;
  readonly #open: TemplatedApp[] = [];
  readonly #furnish: (app: TemplatedApp, isTls: boolean) => void;

  /**
   * @param furnish gives an App its routes
   * @throws StartError where uWebSockets.js does not take the files
   */
  constructor(files: TlsFiles | undefined, furnish: (app: TemplatedApp, isTls: boolean) => void) {
    this.#furnish = furnish;
    this.plain = this.#add(App(), false);
    this.tls = files === undefined ? undefined : this.#add(withTls(files), true);
  }

  descriptors(): AppDescriptors {
    const tls = this.tls === undefined ? undefined : descriptorOf(this.tls);
    return { plain: descriptorOf(this.plain), tls };
  }

  /**
   * Makes another one with TLS, of the files as they are now.
   * @throws StartError where uWebSockets.js does not take them
   */
  renew(files: TlsFiles): number {
    return descriptorOf(this.#add(withTls(files), true));
  }

  /** Nothing may be handed on to them any more. */
  close(): void {
    for (const app of this.#open) app.close();
  }

  #add(app: TemplatedApp, isTls: boolean): TemplatedApp {
    this.#furnish(app, isTls);
    this.#open.push(app);
    return app;
  }
}

function withTls({ cert, key }: TlsFiles): TemplatedApp {
  try {
    return SSLApp({ cert_file_name: cert, key_file_name: key });
  } catch {
    throw new StartError(
      `uWebSockets.js cannot use the certificate in ${cert} (WEIR_TLS_CERT) with the key in ` +
        `${key} (WEIR_TLS_KEY)`,
    );
  }
}
