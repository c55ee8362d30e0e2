/** Certificates that are reloaded under load, and a stop, with TLS connections. */

import { connect as connectPlain, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, describe, expect, test } from 'vitest';
import {
  CERTIFICATE_A,
  CERTIFICATE_B,
  type CertificatePair,
  SECP256K1_CERTIFICATE,
  tlsEnvironment,
  writeCertificate,
} from '../../support/certificates.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { exchange, LONGEST_WINDOW_MS, readMetric, requestBytes } from '../../support/http.ts';
import {
  DECIDE_MODES,
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import { type ClientResult, runSequentialClient } from './http-connections.ts';

const RELOADS = trialCount(10, 200);
const CONNECTIONS = trialCount(16, 32);

const own = useDataDirectory([]);
const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

const body = JSON.stringify({ identifier: 'a', limit: 1_000_000_000, duration: LONGEST_WINDOW_MS });

/** Opens a TLS connection. The client rejects a server with any other certificate. */
const openTls = (server: ServerProcess): TLSSocket => {
  const ca = [CERTIFICATE_A.cert, CERTIFICATE_B.cert];
  return connect({ host: '127.0.0.1', port: server.port, ca });
};
/** Sends checks on a connection. @param shouldContinue whether to send another one */
const runClient = (server: ServerProcess, shouldContinue: () => boolean) => {
  return runSequentialClient({ connect: () => openTls(server), body, pauseMs: 10, shouldContinue });
};

/** The name in the certificate that a new connection gets. */
function certificateName(server: ServerProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = openTls(server);
    socket.on('error', reject);
    socket.on('secureConnect', () => {
      resolve(String(socket.getPeerCertificate().subject.CN));
      socket.destroy();
    });
  });
}

/**
 * Starts clients with connections of different lengths, so that several certificates are in use at
 * any time, and clients with one check per connection.
 * @returns stops them
 */
function startLoad(
  server: ServerProcess,
): () => Promise<{ long: ClientResult[]; short: ClientResult[] }> {
  let isRunning = true;
  const run = async (results: ClientResult[], checks: number) => {
    while (isRunning) {
      let remaining = checks;
      results.push(await runClient(server, () => isRunning && --remaining > 0));
    }
  };
  const [long, short]: ClientResult[][] = [[], []];
  const runs = [
    ...Array.from({ length: CONNECTIONS }, (_, i) => run(long, 11 + i)),
    ...Array.from({ length: 2 }, () => run(short, 1)),
  ];
  return async () => {
    isRunning = false;
    await Promise.all(runs);
    return { long, short };
  };
}

const totalResponses = (outcomes: ClientResult[]) =>
  outcomes.reduce((n, { responses }) => n + responses, 0);

describe.each([
  { acceptors: 1, mode: DECIDE_MODES[0] },
  { acceptors: 2, mode: DECIDE_MODES[1] },
])('with $acceptors acceptors and decisions $mode,', ({ acceptors, mode }) => {
  const args = ['--counters', '1024', '--acceptors', `${acceptors}`, '--decide', mode];
  const start = async (drainMs: number) => {
    const env = tlsEnvironment(writeCertificate(directory, CERTIFICATE_A));
    return own.start({ args: [...args, '--drain-ms', String(drainMs)], env });
  };

  test(`every request is answered while ${RELOADS / 2} certificates are reloaded`, async () => {
    const server = await start(1_000);
    const stopLoad = startLoad(server);
    const countInLog = (text: string) => server.stderr().split(text).length - 1;
    let reloaded = 0;
    let rejected = 0;
    let name = CERTIFICATE_A.name;
    const reload = async (pair: Omit<CertificatePair, 'name'>, text: string, times: number) => {
      writeCertificate(directory, pair);
      server.child.kill('SIGHUP');
      await waitUntil(`the log contains: ${text}`, () => countInLog(text) === times);
    };
    for (let i = 1; i <= RELOADS / 2; i++) {
      if (i % 5 === 0) {
        const mixed = { cert: CERTIFICATE_A.cert, key: CERTIFICATE_B.key };
        const invalid = i % 2 === 0 ? SECP256K1_CERTIFICATE : mixed;
        await reload(invalid, 'SIGHUP: the certificate was not reloaded', ++rejected);
      } else {
        const next = name === CERTIFICATE_A.name ? CERTIFICATE_B : CERTIFICATE_A;
        await reload(next, 'SIGHUP: the certificate was reloaded', ++reloaded);
        name = next.name;
      }
      // As many connections as acceptors reach each acceptor.
      for (let j = 0; j < acceptors; j++) expect(await certificateName(server)).toBe(name);
    }
    const { long, short } = await stopLoad();
    const lost = [...long, ...short].flatMap(({ failures }) => failures);
    const [onLong, onShort] = [long, short].map(totalResponses);
    recordMeasurement(
      'P3',
      'SIGHUP under TLS load',
      `${reloaded} reloads, ${rejected} rejected, ${acceptors} acceptors, ${mode}`,
      `${onLong} requests on ${long.length} long connections, ${onShort} on short ones, ${lost.length} lost`,
    );
    expect(lost).toEqual([]);
    expect(onLong).toBeGreaterThan(CONNECTIONS);
    expect(onShort).toBe(short.length);
    await waitUntil('all connections are counted as closed', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
    });
    expect(server.stderr()).not.toMatch(/"level":60|native/);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('SIGTERM cuts off no pending request, with the old or the new certificate', async () => {
    let answered = 0;
    const stops = trialCount(1, 20);
    for (let i = 0; i < stops; i++) {
      const server = await start(5_000);
      const startClients = () => {
        return Array.from({ length: CONNECTIONS / 2 }, () => runClient(server, () => true));
      };
      const withOld = startClients();
      await certificateName(server);
      writeCertificate(directory, CERTIFICATE_B);
      server.child.kill('SIGHUP');
      await waitUntil('the certificate is reloaded', () =>
        server.stderr().includes('the certificate was reloaded'),
      );
      const withNew = startClients();
      await waitUntil('all connections are counted', async () => {
        return (await readMetric(server.adminUrl, 'weir_connections')) === CONNECTIONS;
      });
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      const outcomes = await Promise.all([...withOld, ...withNew]);
      expect(outcomes.flatMap(({ failures }) => failures)).toEqual([]);
      answered += totalResponses(outcomes);
    }
    const trials = `${stops} stops, ${CONNECTIONS} connections, ${mode}`;
    const measured = `${answered} answered, 0 refused or reset`;
    recordMeasurement('P3', 'SIGTERM under TLS load', trials, measured);
    expect(answered).toBeGreaterThanOrEqual(stops * CONNECTIONS);
  });
});

test.runIf(IS_LONG)('a slow or silent client over TLS is closed, and charged nothing', async () => {
  const server = await own.start({
    args: ['--counters', '1024', '--acceptors', '2'],
    env: tlsEnvironment(writeCertificate(directory, CERTIFICATE_A)),
  });
  /** Sends bytes at once, and then one byte per second. */
  const slow = async (socket: Socket, atOnce: Uint8Array, rest: Uint8Array) => {
    socket.on('error', () => {});
    socket.resume();
    socket.write(atOnce);
    let sent = 0;
    const drip = setInterval(() => socket.write(rest.subarray(sent, ++sent)), 1_000);
    const closed = new Promise<string>((resolve) => socket.on('close', () => resolve('closed')));
    const timeout = sleep(25_000, 'open');
    const outcome = await Promise.race([closed, timeout]);
    clearInterval(drip);
    return outcome;
  };
  const request = requestBytes({ body: body.padEnd(200) });
  // The beginning of a client's handshake: a record of 512 bytes with a hello of 508.
  const hello = Buffer.concat([Buffer.from('1603010200010001fc0303', 'hex'), Buffer.alloc(506)]);
  const none = Buffer.alloc(0);
  const outcomes = await Promise.all([
    slow(connectPlain(server.port, '127.0.0.1'), none, hello),
    slow(openTls(server), none, none),
    slow(openTls(server), none, request),
    slow(openTls(server), request.subarray(0, -100), request.subarray(-100)),
    slow(openTls(server), request, none),
  ]);
  expect(outcomes).toEqual(['closed', 'closed', 'closed', 'closed', 'closed']);
  // The last of these clients got its response.
  const [response] = await exchange(openTls(server), [requestBytes({ body })]);
  const { remaining } = JSON.parse(response.body);
  const fault = 'TLS: hello, head, body at one byte per second';
  recordMeasurement('P3', fault, '5', 'all closed, none charged');
  expect(remaining).toBe(1_000_000_000 - 2);
});
