/**
 * The certificate and the key of the check port, as the main thread sees them. It reads and judges
 * the files before an acceptor has uWebSockets.js read them, which says of a wrong one only that it
 * is wrong. What it refuses stops the start; later, it leaves in force what is.
 */

import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { Settings } from '../config/schema.ts';
import { fileFault } from '../errno.ts';
import { StartError } from '../errors.ts';
import { EXIT } from '../exit.ts';
import type { TlsFiles } from '../http/apps.ts';
import { systemMs } from '../time.ts';

/** What was in the files, and found to be in order. */
interface Contents {
  cert: string;
  key: string;
  expires: string;
  isSelfSigned: boolean;
}

export class Tls {
  readonly files: TlsFiles;
  #contents: Contents;

  private constructor(files: TlsFiles) {
    this.files = files;
    this.#contents = read(files);
  }

  /** @throws StartError that names the file that is at fault */
  static open({ tlsCert, tlsKey }: Settings): Tls | undefined {
    if (tlsCert === undefined || tlsKey === undefined) return undefined;
    return new Tls({ cert: tlsCert, key: tlsKey });
  }

  get isSelfSigned(): boolean {
    return this.#contents.isSelfSigned;
  }

  get expires(): string {
    return this.#contents.expires;
  }

  /**
   * Takes over what is in the files now.
   * @param use has all acceptors use them; they read them again, so they have to stay as they are
   * @returns whether they have changed
   * @throws StartError; then all is as it was
   */
  async reload(use: (unchanged: () => boolean) => Promise<void>): Promise<boolean> {
    const contents = read(this.files);
    if (isSame(contents, this.#contents)) return false;
    await use(() => isSame(contents, read(this.files)));
    this.#contents = contents;
    return true;
  }
}

function isSame(a: Contents, b: Contents): boolean {
  return a.cert === b.cert && a.key === b.key;
}

function read(files: TlsFiles): Contents {
  const cert = needed('WEIR_TLS_CERT', files.cert, 'be read', () => {
    return readFileSync(files.cert, 'utf8');
  });
  const key = needed('WEIR_TLS_KEY', files.key, 'be read', () => readFileSync(files.key, 'utf8'));
  const certificate = needed('WEIR_TLS_CERT', files.cert, 'be read as a certificate in PEM', () => {
    return new X509Certificate(cert);
  });
  const privateKey: KeyObject = needed(
    'WEIR_TLS_KEY',
    files.key,
    'be read as a private key in PEM without a passphrase',
    () => createPrivateKey(key),
  );
  const { validFrom, validTo } = certificate;
  if (Date.parse(validTo) <= systemMs()) {
    throw unusable(`the certificate in ${files.cert} (WEIR_TLS_CERT) expired on ${validTo}`);
  }
  if (Date.parse(validFrom) > systemMs()) {
    throw unusable(
      `the certificate in ${files.cert} (WEIR_TLS_CERT) is not valid before ${validFrom}`,
    );
  }
  if (!certificate.checkPrivateKey(privateKey)) {
    throw unusable(
      `the key in ${files.key} (WEIR_TLS_KEY) does not belong to the certificate in ` +
        `${files.cert} (WEIR_TLS_CERT)`,
    );
  }
  // The rest of the chain too.
  needed('WEIR_TLS_CERT', files.cert, 'be used', () => createSecureContext({ cert, key }));
  return { cert, key, expires: validTo, isSelfSigned: certificate.verify(certificate.publicKey) };
}

function needed<T>(setting: string, path: string, what: string, get: () => T): T {
  try {
    return get();
  } catch (error) {
    throw unusable(`${path} (${setting}) cannot ${what}: ${fileFault(error)}`);
  }
}

function unusable(sentence: string): StartError {
  return new StartError(sentence, EXIT.USAGE);
}
