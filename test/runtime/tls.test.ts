import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import type { Settings } from '../../src/config/schema.ts';
import { EXIT } from '../../src/core/exit.ts';
import { TlsCertificate } from '../../src/runtime/tls.ts';
import {
  CERTIFICATE_A,
  CERTIFICATE_B,
  ENCRYPTED_KEY,
  EXPIRED_CERTIFICATE,
  NOT_YET_VALID_CERTIFICATE,
  writeCertificate,
} from '../support/certificates.ts';
import { useDataDirectory } from '../support/data-directory.ts';

const own = useDataDirectory([]);
const GARBAGE = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
const { cert, key } = CERTIFICATE_A;

const write = (pair: { cert: string; key: string }) => writeCertificate(own.dataDir, pair);
const open = (tlsCert: string, tlsKey: string) => {
  return TlsCertificate.open({ tlsCert, tlsKey } as Settings);
};
/** The error of a failed function, without the directory of the files. */
const errorOf = async (run: () => unknown) => {
  try {
    await run();
  } catch (error) {
    expect(error).toMatchObject({ exitCode: EXIT.USAGE });
    return (error as Error).message.replaceAll(own.dataDir, '');
  }
  throw new Error('it does not fail');
};
const errorOfPair = (ofCert: string, ofKey: string) => {
  const files = write({ cert: ofCert, key: ofKey });
  return errorOf(() => open(files.cert, files.key));
};

describe('a certificate', () => {
  test('is opened if both files are set', () => {
    const files = write(CERTIFICATE_A);
    expect(open(files.cert, files.key)).toMatchObject({ files, isSelfSigned: true });
    for (const one of [{ tlsCert: files.cert }, { tlsKey: files.key }, {}]) {
      expect(TlsCertificate.open(one as unknown as Settings)).toBeUndefined();
    }
  });

  test('is rejected if a file cannot be read', async () => {
    const files = write(CERTIFICATE_A);
    const missing = join(own.dataDir, 'missing');
    expect(await errorOf(() => open(missing, files.key))).toMatch(
      /^\/missing \(WEIR_TLS_CERT\) cannot be read: no such file/,
    );
    expect(await errorOf(() => open(files.cert, own.dataDir))).toMatch(
      /^ \(WEIR_TLS_KEY\) cannot be read: it is a directory/,
    );
  });

  const notCertificate = /^\/cert\.pem \(WEIR_TLS_CERT\) cannot be read as a certificate in PEM: /;
  const notKey =
    /^\/key\.pem \(WEIR_TLS_KEY\) cannot be read as a private key in PEM without a pass/;
  const { cert: expired, key: expiredKey } = EXPIRED_CERTIFICATE;
  const { cert: early, key: earlyKey } = NOT_YET_VALID_CERTIFICATE;
  test.each([
    ...['', 'garbage', GARBAGE, key].map((text) => [text, key, notCertificate] as const),
    ...['', 'garbage', cert, ENCRYPTED_KEY].map((text) => [cert, text, notKey] as const),
    [cert + GARBAGE, key, /^\/cert\.pem \(WEIR_TLS_CERT\) cannot be used: /],
    [
      cert,
      CERTIFICATE_B.key,
      /^the key in \/key\.pem \(WEIR_TLS_KEY\) does not belong to the certificate in \/cert\.pem \(/,
    ],
    [expired, expiredKey, /^the certificate in .*\) expired on Jan {2}1 00:00:00 2021 GMT$/],
    [early, earlyKey, /^the certificate in .*\) is not valid before Jan {2}1 00:00:00 2119 GMT$/],
  ] as const)('is rejected with its reason: %#', async (ofCert, ofKey, reason) => {
    expect(await errorOfPair(ofCert, ofKey)).toMatch(reason);
  });

  test('is valid from its first millisecond to the one before its last', () => {
    const files = write(CERTIFICATE_A);
    const { expires } = open(files.cert, files.key)!;
    const isOpenAt = (ms: number) => {
      vi.useFakeTimers({ now: ms, toFake: ['Date'] });
      try {
        return open(files.cert, files.key) !== undefined;
      } catch {
        return false;
      } finally {
        vi.useRealTimers();
      }
    };
    const endMs = Date.parse(expires);
    expect([endMs - 1, endMs].map(isOpenAt)).toEqual([true, false]);
  });
});

describe('a reload', () => {
  const opened = () => {
    const files = write(CERTIFICATE_A);
    return open(files.cert, files.key)!;
  };

  test('of the same files applies nothing', async () => {
    const apply = vi.fn<() => Promise<void>>();
    expect(await opened().reload(apply)).toBe(false);
    expect(apply).not.toHaveBeenCalled();
  });

  test('applies new files once, and tells whether they change meanwhile', async () => {
    const certificate = opened();
    write(CERTIFICATE_B);
    const seen: boolean[] = [];
    const apply = async (isUnchanged: () => boolean) => {
      seen.push(isUnchanged());
      write(CERTIFICATE_A);
      seen.push(isUnchanged());
      write(CERTIFICATE_B);
    };
    expect([await certificate.reload(apply), await certificate.reload(apply)]).toEqual([
      true,
      false,
    ]);
    expect(seen).toEqual([true, false]);
  });

  test('that fails keeps the old certificate, and the next one is tried again', async () => {
    const certificate = opened();
    write({ cert: CERTIFICATE_B.cert, key });
    expect(await errorOf(() => certificate.reload(async () => {}))).toContain('does not belong');
    write(CERTIFICATE_B);
    const failed = certificate.reload(() => Promise.reject(new Error('not applied')));
    await expect(failed).rejects.toThrow('not applied');
    expect(await certificate.reload(async () => {})).toBe(true);
  });
});
