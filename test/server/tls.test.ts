/** TLS on the port: the same service behind it, and what files a start refuses. */

import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import {
  CERTIFICATE_A,
  CERTIFICATE_B,
  ENCRYPTED_KEY,
  EXPIRED_CERTIFICATE,
  NOT_YET_VALID_CERTIFICATE,
  SECP256K1_CERTIFICATE,
  tlsEnvironment,
  writeCertificate,
} from '../support/certificates.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import {
  errorIn,
  exchange,
  type LimitResponse,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
} from '../support/http.ts';
import {
  CLI_PATH,
  DECIDE_MODES,
  type ExitStatus,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  spawnServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const SMALL = ['--counters', '1024'];
const own = useDataDirectory(SMALL);
/** Where the files for TLS are; not in the data directory, which weir has alone. */
const place = temporaryDirectory();
afterAll(() => removeDirectory(place));

/** Where curl is not installed its test is skipped, but not where nothing may be. */
const noCurl = spawnSync('curl', ['--version']).status !== 0 && process.env.CI === undefined;

const body = (identifier: string, limit = 1_000) => {
  return JSON.stringify({ identifier, limit, duration: LONGEST_WINDOW_MS });
};
const remainingOf = (text: string) => (JSON.parse(text) as LimitResponse).remaining;

/** A connection that is refused by this side unless the server proves to be the one of the test. */
const openTls = (server: ServerProcess, pair = CERTIFICATE_A): TLSSocket => {
  return connectTls({ host: '127.0.0.1', port: server.port, ca: pair.cert });
};

const startTls = (args: string[] = [], env: Record<string, string | undefined> = {}) => {
  const files = writeCertificate(place, CERTIFICATE_A);
  return own.start({ args: [...SMALL, ...args], env: { ...tlsEnvironment(files), ...env } });
};

describe.each(DECIDE_MODES)('decided %s, with TLS,', (mode) => {
  describe.each([1, 2])('on %i acceptors,', (acceptors) => {
    test('requests are answered as without it', async () => {
      const server = await startTls(['--acceptors', `${acceptors}`, '--decide', mode]);
      for (let i = 0; i < 2 * acceptors; i++) {
        const pieces = Array.from({ length: 3 }, () => requestBytes({ body: body(`turn_${i}`) }));
        const answers = await exchange(openTls(server), pieces, 3, true);
        expect(answers.map((answer) => remainingOf(answer.body))).toEqual([999, 998, 997]);
      }
      // A byte in a record of its own.
      const bytes = [...requestBytes({ body: body('slow') })].map((byte) => Buffer.of(byte));
      const head = bytes.length - body('slow').length;
      const pieces = [Buffer.concat(bytes.slice(0, head)), ...bytes.slice(head)];
      expect(remainingOf((await exchange(openTls(server), pieces))[0].body)).toBe(999);
      // The bounds are the same.
      const large = requestBytes({ body: body('x'.repeat(70_000)) });
      const [refused] = await exchange(openTls(server), [large]);
      expect([refused.status, refused.headers.connection]).toEqual([413, 'close']);
      const headers = { Cookie: 'c'.repeat(40_000) };
      const flood = exchange(openTls(server), [requestBytes({ headers })]).then(
        ([answer]) => answer.status,
        (error: Error) => Number(/HTTP\/1.1 (\d+)/.exec(error.message)?.[1]),
      );
      expect(await flood).toBe(431);
      const [unknown] = await exchange(openTls(server), [requestBytes({ path: '/nowhere' })]);
      expect(errorIn(unknown).docs).toMatch(/^https:\/\/127\.0\.0\.1:\d+\/docs\/errors\//);
      await waitUntil('all are counted as closed', async () => {
        return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
      });
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    });
  });
});

describe('with TLS,', () => {
  test('requests that a client pipelines are answered in order', async () => {
    const server = await startTls(['--acceptors', '2']);
    const packet = Buffer.concat(
      Array.from({ length: 20 }, () => requestBytes({ body: body('pipelined') })),
    );
    const answers = await exchange(openTls(server), [packet], 20);
    const expected = Array.from({ length: 20 }, (_, i) => 999 - i);
    expect(answers.map((answer) => remainingOf(answer.body))).toEqual(expected);
  });

  test('who speaks without it is hung up on, and charged nothing', async () => {
    const server = await startTls(['--acceptors', '2']);
    const plain = exchange(server.port, [requestBytes({ body: body('plain') })]);
    await expect(plain).rejects.toThrow(/closed after 0 answers|ECONNRESET/);
    const [answer] = await exchange(openTls(server), [requestBytes({ body: body('plain') })]);
    expect(remainingOf(answer.body)).toBe(999);
  });

  test('a connection too many is closed before its handshake, and counts no longer', async () => {
    const server = await startTls(['--connections', '3', '--acceptors', '2']);
    const ask = (socket: TLSSocket) => exchange(socket, [requestBytes({ body: body('many') })]);
    const held = Array.from({ length: 3 }, () => openTls(server));
    await Promise.all(held.map((socket) => once(socket, 'secureConnect')));
    for (let i = 0; i < 20; i++) await expect(ask(openTls(server))).rejects.toThrow();
    expect(held.filter((socket) => socket.destroyed)).toEqual([]);
    for (const socket of held) socket.destroy();
    await waitUntil(
      'they are gone',
      async () => (await readMetric(server.adminUrl, 'weir_connections')) === 0,
    );
    expect(remainingOf((await ask(openTls(server)))[0].body)).toBe(999);
    expect(await readMetric(server.adminUrl, 'weir_shed_total{reason="connections"}')).toBe(20);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('a Unix socket beside it speaks without, and counts on the same counters', async () => {
    const path = join(place, 'weir.sock');
    const server = await startTls(['--acceptors', '2', '--socket', path]);
    for (let i = 0; i < 4; i++) {
      const bytes = requestBytes({ body: body('both') });
      const [within] = await exchange(connect({ path }), [bytes]);
      const [without] = await exchange(openTls(server), [bytes]);
      expect([within, without].map((answer) => remainingOf(answer.body))).toEqual([
        999 - 2 * i,
        998 - 2 * i,
      ]);
    }
    expect(await readMetric(server.adminUrl, 'weir_connections')).toBeLessThanOrEqual(8);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test.skipIf(noCurl)('the line that a first start prints works as printed', async () => {
    const server = await startTls(['--acceptors', '2'], { WEIR_ROOT_KEY: undefined });
    expect(server.stdout()).toContain(`serves checks on https://127.0.0.1:${server.port}`);
    const [line] = server.stdout().match(/^curl .*$/m) ?? [];
    const { stdout } = await promisify(execFile)('sh', ['-c', line ?? '']);
    expect(JSON.parse(stdout)).toMatchObject({ success: true, limit: 10, remaining: 9 });
  });

  test('the command line talks to it, once it trusts the certificate', async () => {
    const server = await startTls(['--acceptors', '2']);
    const weir = async (env: Record<string, string>) => {
      const url = `https://127.0.0.1:${server.port}`;
      const known = { PATH: process.env.PATH, WEIR_URL: url, WEIR_KEY: ROOT_KEY, ...env };
      const args = [CLI_PATH, 'check', 'user_1', '--limit', '2', '--duration', '30d'];
      const options = { env: known as NodeJS.ProcessEnv };
      const ran = promisify(execFile)(process.execPath, args, options);
      return ran.then(
        ({ stdout }) => stdout,
        ({ stderr }: { stderr: string }) => stderr,
      );
    };
    const trusting = { NODE_EXTRA_CA_CERTS: join(place, 'cert.pem') };
    expect(await weir(trusting)).toMatch(/^allowed: limit 2, remaining 1/);
    expect(await weir({})).toMatch(/self-signed certificate/);
  });
});

describe('a start with TLS', () => {
  const refused = async (
    env: Record<string, string | undefined>,
    exit: ExitStatus = { code: EXIT.USAGE, signal: null },
  ) => {
    const args = [...SMALL, '--acceptors', '2'];
    const server = await spawnServer(own.dataDir, { args, env });
    own.started.push(server);
    expect(await server.exited).toEqual(exit);
    expect(server.stdout()).toBe('');
    const said = server.stderr().split('\n');
    expect([said.length, said[1]]).toEqual([2, '']);
    return said[0].replaceAll(place, '');
  };
  const withPair = (cert: string, key: string, exit?: ExitStatus) => {
    return refused(tlsEnvironment(writeCertificate(place, { cert, key })), exit);
  };

  test('needs both files', async () => {
    const { WEIR_TLS_CERT, WEIR_TLS_KEY } = tlsEnvironment(writeCertificate(place, CERTIFICATE_A));
    expect(await refused({ WEIR_TLS_CERT })).toBe(
      'weir: WEIR_TLS_CERT requires WEIR_TLS_KEY, which is not set',
    );
    expect(await refused({ WEIR_TLS_KEY })).toBe(
      'weir: WEIR_TLS_KEY requires WEIR_TLS_CERT, which is not set',
    );
  });

  test('is refused where a file cannot be read', async () => {
    const files = tlsEnvironment(writeCertificate(place, CERTIFICATE_A));
    const nowhere = join(place, 'nowhere');
    expect(await refused({ ...files, WEIR_TLS_CERT: nowhere })).toMatch(
      /^weir: \/nowhere \(WEIR_TLS_CERT\) cannot be read: no such file/,
    );
    expect(await refused({ ...files, WEIR_TLS_KEY: place })).toMatch(
      /^weir: {2}\(WEIR_TLS_KEY\) cannot be read: it is a directory/,
    );
  });

  test('is refused where a file is not what it should be', async () => {
    const garbage = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
    for (const cert of ['', 'garbage', garbage, CERTIFICATE_A.key]) {
      expect(await withPair(cert, CERTIFICATE_A.key)).toMatch(
        /^weir: \/cert\.pem \(WEIR_TLS_CERT\) cannot be read as a certificate in PEM: /,
      );
    }
    for (const key of ['', 'garbage', CERTIFICATE_A.cert, ENCRYPTED_KEY]) {
      expect(await withPair(CERTIFICATE_A.cert, key)).toMatch(
        /^weir: \/key\.pem \(WEIR_TLS_KEY\) cannot be read as a private key in PEM without a pass/,
      );
    }
    // The chain behind the certificate counts.
    expect(await withPair(CERTIFICATE_A.cert + garbage, CERTIFICATE_A.key)).toMatch(
      /^weir: \/cert\.pem \(WEIR_TLS_CERT\) cannot be used: /,
    );
  });

  test('is refused where the key is that of another certificate', async () => {
    expect(await withPair(CERTIFICATE_A.cert, CERTIFICATE_B.key)).toBe(
      'weir: the key in /key.pem (WEIR_TLS_KEY) does not belong to the certificate in /cert.pem ' +
        '(WEIR_TLS_CERT)',
    );
  });

  test('is refused where the certificate has expired, or is not valid yet', async () => {
    expect(await withPair(EXPIRED_CERTIFICATE.cert, EXPIRED_CERTIFICATE.key)).toBe(
      'weir: the certificate in /cert.pem (WEIR_TLS_CERT) expired on Jan  1 00:00:00 2021 GMT',
    );
    expect(await withPair(NOT_YET_VALID_CERTIFICATE.cert, NOT_YET_VALID_CERTIFICATE.key)).toBe(
      'weir: the certificate in /cert.pem (WEIR_TLS_CERT) is not valid before Jan  1 00:00:00 ' +
        '2119 GMT',
    );
  });

  test('is refused where uWebSockets.js cannot use what Node can', async () => {
    const killed: ExitStatus = { code: null, signal: 'SIGKILL' };
    expect(await withPair(SECP256K1_CERTIFICATE.cert, SECP256K1_CERTIFICATE.key, killed)).toBe(
      'weir: uWebSockets.js cannot use the certificate in /cert.pem (WEIR_TLS_CERT) with the key ' +
        'in /key.pem (WEIR_TLS_KEY)',
    );
  });
});

describe('SIGHUP', () => {
  const said = (server: ServerProcess, text: string) => {
    return waitUntil(`the log says: ${text}`, () => server.stderr().includes(text));
  };

  test('without TLS changes nothing', async () => {
    const server = await own.start();
    server.child.kill('SIGHUP');
    await said(server, 'SIGHUP: there is nothing to reload');
    const [answer] = await exchange(server.port, [requestBytes({ body: body('a') })]);
    expect(answer.status).toBe(200);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test.each([1, 2])(
    'gives a new certificate to who connects then, on %i acceptors',
    async (acceptors) => {
      const server = await startTls(['--acceptors', `${acceptors}`]);
      const name = async () => {
        const socket = openTls(server, CERTIFICATE_A);
        const names = new Promise<string>((resolve, reject) => {
          socket.on('secureConnect', () => resolve(`${socket.getPeerCertificate().subject.CN}`));
          socket.on('error', reject);
        });
        return names.finally(() => socket.destroy());
      };
      expect(await name()).toBe(CERTIFICATE_A.name);
      server.child.kill('SIGHUP');
      await said(server, 'SIGHUP: the certificate has not changed');

      writeCertificate(place, { cert: CERTIFICATE_B.cert, key: CERTIFICATE_A.key });
      server.child.kill('SIGHUP');
      await said(server, 'SIGHUP: the certificate was not reloaded: the key in ');
      expect(await name()).toBe(CERTIFICATE_A.name);
      writeCertificate(place, SECP256K1_CERTIFICATE);
      server.child.kill('SIGHUP');
      await said(server, 'SIGHUP: the certificate was not reloaded: uWebSockets.js cannot use');
      for (let i = 0; i < 2 * acceptors; i++) expect(await name()).toBe(CERTIFICATE_A.name);

      writeCertificate(place, CERTIFICATE_B);
      server.child.kill('SIGHUP');
      await said(server, 'SIGHUP: the certificate was reloaded');
      for (let i = 0; i < 2 * acceptors; i++) {
        await expect(name()).rejects.toThrow('self-signed certificate');
        const [answer] = await exchange(openTls(server, CERTIFICATE_B), [
          requestBytes({ body: body('a') }),
        ]);
        expect(remainingOf(answer.body)).toBe(999 - i);
      }
      const errors = server.stderr().match(/"level":50/g) ?? [];
      expect(errors.length).toBe(2);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    },
  );
});
