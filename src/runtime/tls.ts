/**
 * The certificate and the key of a listener, on the main thread. It validates the files before the
 * threads use them: the errors of uWebSockets.js do not say what is wrong. Invalid files stop a
 * start; a reload then keeps the active certificate.
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

/** The settings that name the files. */
interface SettingNames {
  cert: string;
  key: string;
}

const PORT_SETTINGS: SettingNames = { cert: 'WEIR_TLS_CERT', key: 'WEIR_TLS_KEY' };

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
    this.#contents = readTlsFiles(files, PORT_SETTINGS);
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
    const contents = readTlsFiles(this.files, PORT_SETTINGS);
    if (isEqual(contents, this.#contents)) return false;
    await apply(() => isEqual(contents, readTlsFiles(this.files, PORT_SETTINGS)));
    this.#contents = contents;
    return true;
  }
}

function isEqual(a: TlsContents, b: TlsContents): boolean {
  return a.cert === b.cert && a.key === b.key;
}

/** @throws StartError that names the invalid file */
export function readTlsFiles(files: TlsFiles, settings: SettingNames): TlsContents {
  const readText = (name: 'cert' | 'key') => {
    return readOrFail(settings[name], files[name], 'be read', () => {
      return readFileSync(files[name], 'utf8');
    });
  };
  const cert = readText('cert');
  const key = readText('key');
  const certificate = readOrFail(
    settings.cert,
    files.cert,
    'be read as a certificate in PEM',
    () => new X509Certificate(cert),
  );
  const privateKey: KeyObject = readOrFail(
    settings.key,
    files.key,
    'be read as a private key in PEM without a passphrase',
    () => createPrivateKey(key),
  );
  const { validFrom, validTo } = certificate;
  const named = `the certificate in ${files.cert} (${settings.cert})`;
  if (Date.parse(validTo) <= systemMs()) throw usageError(`${named} expired on ${validTo}`);
  if (Date.parse(validFrom) > systemMs()) {
    throw usageError(`${named} is not valid before ${validFrom}`);
  }
  if (!certificate.checkPrivateKey(privateKey)) {
    throw usageError(
      `the key in ${files.key} (${settings.key}) does not belong to the certificate in ` +
        `${files.cert} (${settings.cert})`,
    );
  }
  // This validates the rest of the chain too.
  readOrFail(settings.cert, files.cert, 'be used', () => createSecureContext({ cert, key }));
  return { cert, key, expires: validTo, isSelfSigned: certificate.verify(certificate.publicKey) };
}

/** Reads certificates that sign those of clients. @throws StartError */
export function readClientCa(path: string, setting: string): string {
  return readOrFail(setting, path, 'be read as certificates in PEM', () => {
    const ca = readFileSync(path, 'utf8');
    new X509Certificate(ca);
    createSecureContext({ ca });
    return ca;
  });
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
