/** TLS on the port: the same service as without. The files are tested in test/runtime. */

import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import {
  CERTIFICATE_A,
  CERTIFICATE_B,
  SECP256K1_CERTIFICATE,
  tlsEnvironment,
  writeCertificate,
} from '../support/certificates.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { checkBody, errorIn, exchange, remainingIn, requestBytes } from '../support/http.ts';
import {
  CLI_PATH,
  type ExitStatus,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  spawnServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { SMALL, useServer } from '../support/test-server.ts';

const own = useDataDirectory(SMALL);
/** The directory of the TLS files; the data directory is for weir alone. */
const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

/** A connection whose client verifies the certificate of the test. */
const openTls = (server: ServerProcess, pair = CERTIFICATE_A): TLSSocket => {
  return connectTls({ host: '127.0.0.1', port: server.port, ca: pair.cert });
};

const startTls = (args: string[] = [], env: Record<string, string | undefined> = {}) => {
  const files = writeCertificate(directory, CERTIFICATE_A);
  return own.start({ args: [...SMALL, ...args], env: { ...tlsEnvironment(files), ...env } });
};

test.each([
  ['in-place', 2],
  ['worker', 1],
] as const)(
  'decided %s, with TLS on %i acceptors, requests get the same responses as without',
  async (mode, acceptors) => {
    const server = await startTls(['--acceptors', `${acceptors}`, '--decide', mode]);
    for (let i = 0; i < 2 * acceptors; i++) {
      const packets = Array.from({ length: 3 }, () =>
        requestBytes({ body: checkBody(`turn_${i}`) }),
      );
      const responses = await exchange(openTls(server), packets, 3, true);
      expect(responses.map(remainingIn)).toEqual([999, 998, 997]);
    }
    // One byte per TLS record.
    const bytes = [...requestBytes({ body: checkBody('slow') })].map((byte) => Buffer.of(byte));
    const head = bytes.length - checkBody('slow').length;
    const packets = [Buffer.concat(bytes.slice(0, head)), ...bytes.slice(head)];
    expect(remainingIn((await exchange(openTls(server), packets))[0])).toBe(999);
    // The bounds are the same.
    const large = requestBytes({ body: checkBody('x'.repeat(70_000)) });
    const [startError] = await exchange(openTls(server), [large]);
    expect([startError.status, startError.headers.connection]).toEqual([413, 'close']);
    const headers = { Cookie: 'c'.repeat(40_000) };
    const flood = exchange(openTls(server), [requestBytes({ headers })]).then(
      ([response]) => response.status,
      (error: Error) => Number(/HTTP\/1.1 (\d+)/.exec(error.message)?.[1]),
    );
    expect(await flood).toBe(431);
    const [unknown] = await exchange(openTls(server), [requestBytes({ path: '/nowhere' })]);
    expect(errorIn(unknown).docs).toMatch(/^https:\/\/127\.0\.0\.1:\d+\/docs\/errors\//);
    await waitUntil('all are counted as closed', async () => {
      return (await server.metric('weir_connections')) === 0;
    });
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  },
);

describe('with TLS,', () => {
  const path = join(directory, 'weir.sock');
  const env = tlsEnvironment(writeCertificate(directory, CERTIFICATE_A));
  const server = useServer({ args: ['--acceptors', '2', '--socket', path], env });

  test('a client without TLS is disconnected, and counts nothing', async () => {
    const plain = exchange(server.port, [requestBytes({ body: checkBody('plain') })]);
    await expect(plain).rejects.toThrow(/closed after 0 responses|ECONNRESET/);
    const [response] = await exchange(openTls(server), [
      requestBytes({ body: checkBody('plain') }),
    ]);
    expect(remainingIn(response)).toBe(999);
  });

  test('pages show the scheme by which the client has reached them', async () => {
    const request = Buffer.from('GET /docs HTTP/1.1\r\nHost: weir.example\r\n\r\n');
    const [within] = await exchange(connect({ path }), [request]);
    const [without] = await exchange(openTls(server), [request]);
    expect(within.body).toContain('curl -s http://weir.example/v1/');
    expect(within.body).not.toContain('https://weir.example');
    expect(without.body).toContain('curl -s https://weir.example/v1/');
    expect(without.body).not.toContain('http://weir.example');
  });

  test('a Unix socket serves without TLS, with the same counters', async () => {
    for (let i = 0; i < 4; i++) {
      const bytes = requestBytes({ body: checkBody('both') });
      const [within] = await exchange(connect({ path }), [bytes]);
      const [without] = await exchange(openTls(server), [bytes]);
      expect([within, without].map(remainingIn)).toEqual([999 - 2 * i, 998 - 2 * i]);
    }
  });

  test('the command line connects when it trusts the certificate', async () => {
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
    const trusting = { NODE_EXTRA_CA_CERTS: join(directory, 'cert.pem') };
    expect(await weir(trusting)).toMatch(/^allowed: limit 2, remaining 1/);
    expect(await weir({})).toMatch(/self-signed certificate/);
  });

  test('the command of a first start trusts the certificate', async () => {
    const first = await startTls(['--acceptors', '1'], { WEIR_ROOT_KEY: undefined });
    expect(first.stdout()).toContain(`serves checks on https://127.0.0.1:${first.port}`);
    const trust = `curl -s --cacert '${join(directory, 'cert.pem')}' https://127.0.0.1:${first.port}/`;
    expect(first.stdout()).toContain(trust);
  });
});

test('with TLS a connection over the limit is closed before its handshake, and not counted any more', async () => {
  const server = await startTls(['--connections', '3', '--acceptors', '1']);
  const ask = (socket: TLSSocket) => exchange(socket, [requestBytes({ body: checkBody('many') })]);
  const held = Array.from({ length: 3 }, () => openTls(server));
  await Promise.all(held.map((socket) => once(socket, 'secureConnect')));
  for (let i = 0; i < 5; i++) await expect(ask(openTls(server))).rejects.toThrow();
  expect(held.filter((socket) => socket.destroyed)).toEqual([]);
  for (const socket of held) socket.destroy();
  await waitUntil('they are closed', async () => (await server.metric('weir_connections')) === 0);
  expect(remainingIn((await ask(openTls(server)))[0])).toBe(999);
  expect(await server.metric('weir_shed_total{reason="connections"}')).toBe(5);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

describe('a start with TLS', () => {
  const startError = async (env: Record<string, string | undefined>, exit: ExitStatus) => {
    const server = await spawnServer(own.dataDir, { args: [...SMALL, '--acceptors', '2'], env });
    own.started.push(server);
    expect(await server.exited).toEqual(exit);
    expect(server.stdout()).toBe('');
    return server.stderr().replaceAll(directory, '');
  };

  test('fails when uWebSockets.js cannot use files that Node can use', async () => {
    const files = tlsEnvironment(writeCertificate(directory, SECP256K1_CERTIFICATE));
    expect(await startError(files, { code: null, signal: 'SIGKILL' })).toBe(
      'weir: uWebSockets.js cannot use the certificate in /cert.pem (WEIR_TLS_CERT) with the key ' +
        'in /key.pem (WEIR_TLS_KEY)\n',
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
    const [response] = await exchange(server.port, [requestBytes({ body: checkBody('a') })]);
    expect(response.status).toBe(200);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('applies a new certificate to new connections, on every acceptor', async () => {
    const acceptors = 2;
    const server = await startTls(['--acceptors', `${acceptors}`]);
    const name = async () => {
      const socket = openTls(server, CERTIFICATE_A);
      const names = new Promise<string>((resolve, reject) => {
        socket.on('secureConnect', () => resolve(`${socket.getPeerCertificate().subject.CN}`));
        socket.on('error', reject);
      });
      return names.finally(() => socket.destroy());
    };
    for (const [pair, message] of [
      [CERTIFICATE_A, 'has not changed'],
      [{ cert: CERTIFICATE_B.cert, key: CERTIFICATE_A.key }, 'was not reloaded: the key in '],
      [SECP256K1_CERTIFICATE, 'was not reloaded: uWebSockets.js cannot use'],
    ] as const) {
      writeCertificate(directory, pair);
      server.child.kill('SIGHUP');
      await said(server, `SIGHUP: the certificate ${message}`);
      for (let i = 0; i < 2 * acceptors; i++) expect(await name()).toBe(CERTIFICATE_A.name);
    }

    writeCertificate(directory, CERTIFICATE_B);
    server.child.kill('SIGHUP');
    await said(server, 'SIGHUP: the certificate was reloaded');
    for (let i = 0; i < 2 * acceptors; i++) {
      await expect(name()).rejects.toThrow('self-signed certificate');
      const [response] = await exchange(openTls(server, CERTIFICATE_B), [
        requestBytes({ body: checkBody('a') }),
      ]);
      expect(remainingIn(response)).toBe(999 - i);
    }
    const errors = server.stderr().match(/"level":50/g) ?? [];
    expect(errors.length).toBe(2);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});
