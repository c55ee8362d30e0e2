/**
 * The certificate and the key of the check port, on the main thread. It validates the files before
 * the acceptors have uWebSockets.js read them, whose errors do not say what is wrong. Invalid files
 * stop a start; a reload then keeps the active certificate.
 */

import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { Settings } from '../config/schema.ts';
import { describeFileError } from '../core/errno.ts';
import { StartError } from '../core/errors.ts';
import { EXIT } from '../core/exit.ts';
import type { TlsFiles } from '../server/apps.ts';
import { systemMs } from '../shared-memory/clock.ts';

/** The contents of valid files. */
interface TlsContents {
  cert: string;
  key: string;
  expires: string;
  isSelfSigned: boolean;
}

export class TlsCertificate {
  readonly files: TlsFiles;
  #contents: TlsContents;

  private constructor(files: TlsFiles) {
    this.files = files;
    this.#contents = readContents(files);
  }

  /** @throws StartError that names the invalid file */
  static open({ tlsCert, tlsKey }: Settings): TlsCertificate | undefined {
    if (tlsCert === undefined || tlsKey === undefined) return undefined;
    return new TlsCertificate({ cert: tlsCert, key: tlsKey });
  }

  get isSelfSigned(): boolean {
    return this.#contents.isSelfSigned;
  }

  get expires(): string {
    return this.#contents.expires;
  }

  /**
   * Reads the files again, and applies them where they have changed.
   * @param apply makes all acceptors read the files; its argument tells whether they are still the
   * files that were validated here
   * @returns whether the files have changed
   * @throws StartError; then nothing has changed
   */
  async reload(apply: (unchanged: () => boolean) => Promise<void>): Promise<boolean> {
    const contents = readContents(this.files);
    if (isEqual(contents, this.#contents)) return false;
    await apply(() => isEqual(contents, readContents(this.files)));
    this.#contents = contents;
    return true;
  }
}

function isEqual(a: TlsContents, b: TlsContents): boolean {
  return a.cert === b.cert && a.key === b.key;
}

function readContents(files: TlsFiles): TlsContents {
  const cert = readOrFail('WEIR_TLS_CERT', files.cert, 'be read', () => {
    return readFileSync(files.cert, 'utf8');
  });
  const key = readOrFail('WEIR_TLS_KEY', files.key, 'be read', () =>
    readFileSync(files.key, 'utf8'),
  );
  const certificate = readOrFail(
    'WEIR_TLS_CERT',
    files.cert,
    'be read as a certificate in PEM',
    () => {
      return new X509Certificate(cert);
    },
  );
  const privateKey: KeyObject = readOrFail(
    'WEIR_TLS_KEY',
    files.key,
    'be read as a private key in PEM without a passphrase',
    () => createPrivateKey(key),
  );
  const { validFrom, validTo } = certificate;
  if (Date.parse(validTo) <= systemMs()) {
    throw usageError(`the certificate in ${files.cert} (WEIR_TLS_CERT) expired on ${validTo}`);
  }
  if (Date.parse(validFrom) > systemMs()) {
    throw usageError(
      `the certificate in ${files.cert} (WEIR_TLS_CERT) is not valid before ${validFrom}`,
    );
  }
  if (!certificate.checkPrivateKey(privateKey)) {
    throw usageError(
      `the key in ${files.key} (WEIR_TLS_KEY) does not belong to the certificate in ` +
        `${files.cert} (WEIR_TLS_CERT)`,
    );
  }
  // This validates the rest of the chain too.
  readOrFail('WEIR_TLS_CERT', files.cert, 'be used', () => createSecureContext({ cert, key }));
  return { cert, key, expires: validTo, isSelfSigned: certificate.verify(certificate.publicKey) };
}

/** @param purpose completes the error: "<path> cannot <purpose>" */
function readOrFail<T>(setting: string, path: string, purpose: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw usageError(`${path} (${setting}) cannot ${purpose}: ${describeFileError(error)}`);
  }
}

function usageError(sentence: string): StartError {
  return new StartError(sentence, EXIT.USAGE);
}
