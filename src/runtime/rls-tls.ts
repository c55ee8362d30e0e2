/**
 * The certificate of the rate limit service, on the main thread, which reads and validates its
 * files. Invalid files stop a start; a reload then keeps the active certificate.
 */

import type { RlsSettings, RlsTlsFiles } from '../rls/config/settings.ts';
import type { RlsTlsContents } from '../rls/messages.ts';
import { readClientCa, readTlsFiles } from './tls.ts';

const SETTINGS = { cert: 'WEIR_RLS_TLS_CERT', key: 'WEIR_RLS_TLS_KEY' };

export class RlsTls {
  readonly #files: RlsTlsFiles;
  #contents: RlsTlsContents;

  private constructor(files: RlsTlsFiles) {
    this.#files = files;
    this.#contents = readContents(files);
  }

  /** @throws StartError that names the invalid file */
  static open({ tls }: RlsSettings): RlsTls | undefined {
    return tls && new RlsTls(tls);
  }

  get path(): string {
    return this.#files.cert;
  }

  get contents(): RlsTlsContents {
    return this.#contents;
  }

  /**
   * Reads the files again. @returns whether they have changed
   * @throws StartError; then nothing has changed
   */
  reload(): boolean {
    const before = this.#contents;
    const contents = readContents(this.#files);
    this.#contents = contents;
    return (['cert', 'key', 'clientCa'] as const).some((name) => before[name] !== contents[name]);
  }
}

function readContents(files: RlsTlsFiles): RlsTlsContents {
  const { cert, key } = readTlsFiles(files, SETTINGS);
  const { clientCa: path } = files;
  const clientCa = path && readClientCa(path, 'WEIR_RLS_TLS_CLIENT_CA');
  return { cert, key, clientCa };
}
