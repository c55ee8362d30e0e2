/** Certificates that change while connections are open, come and go; and a stop behind TLS. */

import { connect as connectPlain, type Socket } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, describe, expect, test } from 'vitest';
import {
  CERTIFICATE_A,
  CERTIFICATE_B,
  type CertificatePair,
  SECP256K1_CERTIFICATE,
  tlsEnvironment,
  writeCertificate,
} from '../support/certificates.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../support/guarantees.ts';
import {
  exchange,
  type LimitResponse,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
} from '../support/http.ts';
import { type ClientResult, runSequentialClient } from '../support/sequential-client.ts';
import {
  DECIDE_MODES,
  removeDirectory,
  type ServerProcess,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';

const RELOADS = trialCount(20, 200);
const KEPT = 32;

const own = useDataDirectory([]);
const place = temporaryDirectory();
afterAll(() => removeDirectory(place));

const body = JSON.stringify({ identifier: 'a', limit: 1_000_000_000, duration: LONGEST_WINDOW_MS });

/** Whoever has neither certificate is refused by this side. */
const openTls = (server: ServerProcess): TLSSocket => {
  return connect({
    host: '127.0.0.1',
    port: server.port,
    ca: [CERTIFICATE_A.cert, CERTIFICATE_B.cert],
  });
};

/** The certificate that a newcomer is shown. */
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

async function checkOnce(server: ServerProcess): Promise<LimitResponse> {
  const [answer] = await exchange(openTls(server), [requestBytes({ body })]);
  return JSON.parse(answer.body);
}

/**
 * Clients that stay for a while, so that at any time there are some of each of the last
 * certificates, and clients that come for one check.
 * @returns what ends them
 */
function startLoad(
  server: ServerProcess,
): () => Promise<{ kept: ClientResult[]; came: ClientResult[] }> {
  let going = true;
  const kept: ClientResult[] = [];
  const stayers = Array.from({ length: KEPT }, async (_, i) => {
    while (going) {
      let left = 10 + i;
      const shouldContinue = () => going && left-- > 0;
      kept.push(
        await runSequentialClient({
          connect: () => openTls(server),
          body,
          pauseMs: 10,
          shouldContinue,
        }),
      );
    }
  });
  const came: ClientResult[] = [];
  const newcomers = Array.from({ length: 2 }, async () => {
    while (going) {
      const once = {
        connect: () => openTls(server),
        body,
        pauseMs: 0,
        shouldContinue: () => false,
      };
      came.push(await runSequentialClient(once));
    }
  });
  return async () => {
    going = false;
    await Promise.all([...stayers, ...newcomers]);
    return { kept, came };
  };
}

const totalResponses = (outcomes: ClientResult[]) =>
  outcomes.reduce((n, { responses }) => n + responses, 0);

describe.each([
  { acceptors: 1, mode: DECIDE_MODES[0] },
  { acceptors: 2, mode: DECIDE_MODES[1] },
])('on $acceptors acceptors, decided $mode,', ({ acceptors, mode }) => {
  const args = ['--counters', '1024', '--acceptors', `${acceptors}`, '--decide', mode];
  const start = async (drainMs: number) => {
    const env = tlsEnvironment(writeCertificate(place, CERTIFICATE_A));
    return own.start({ args: [...args, '--drain-ms', String(drainMs)], env });
  };

  test(`${RELOADS / 2} certificates change and every request is answered`, async () => {
    const server = await start(1_000);
    const leave = startLoad(server);
    const saidTimes = (text: string) => server.stderr().split(text).length - 1;
    let changed = 0;
    let refused = 0;
    let name = CERTIFICATE_A.name;
    const reload = async (pair: Omit<CertificatePair, 'name'>, text: string, times: number) => {
      writeCertificate(place, pair);
      server.child.kill('SIGHUP');
      await waitUntil(`the log says: ${text}`, () => saidTimes(text) === times);
    };
    for (let i = 1; i <= RELOADS / 2; i++) {
      if (i % 5 === 0) {
        const unfit =
          i % 2 === 0
            ? SECP256K1_CERTIFICATE
            : { cert: CERTIFICATE_A.cert, key: CERTIFICATE_B.key };
        await reload(unfit, 'SIGHUP: the certificate was not reloaded', ++refused);
      } else {
        const next = name === CERTIFICATE_A.name ? CERTIFICATE_B : CERTIFICATE_A;
        await reload(next, 'SIGHUP: the certificate was reloaded', ++changed);
        name = next.name;
      }
      // On each acceptor.
      for (let j = 0; j < acceptors; j++) expect(await certificateName(server)).toBe(name);
    }
    const { kept, came } = await leave();
    const lost = [...kept, ...came].flatMap((outcome) => outcome.failures);
    const reloads = `${changed} reloads, ${refused} refused, ${acceptors} acceptors, ${mode}`;
    const all = `${totalResponses(kept)} requests on ${kept.length} kept connections and ${totalResponses(came)} on new`;
    recordMeasurement(
      'P3',
      'SIGHUP under TLS load',
      reloads,
      `${all}, ${lost.length} without an answer`,
    );
    expect(lost).toEqual([]);
    expect(totalResponses(kept)).toBeGreaterThan(KEPT);
    expect(totalResponses(came)).toBe(came.length);
    await waitUntil('all are counted as closed', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) === 0;
    });
    expect(server.stderr()).not.toMatch(/"level":60|native/);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('SIGTERM cuts off no request under way, whichever certificate it has', async () => {
    let answered = 0;
    const stops = trialCount(1, 20);
    for (let i = 0; i < stops; i++) {
      const server = await start(5_000);
      const clients = (goesOn: () => boolean) => {
        const one = { connect: () => openTls(server), body, pauseMs: 10, shouldContinue: goesOn };
        return Array.from({ length: KEPT / 2 }, () => runSequentialClient(one));
      };
      const old = clients(() => true);
      await certificateName(server);
      writeCertificate(place, CERTIFICATE_B);
      server.child.kill('SIGHUP');
      await waitUntil('it has another', () =>
        server.stderr().includes('the certificate was reloaded'),
      );
      const young = clients(() => true);
      await waitUntil('all are counted', async () => {
        return (await readMetric(server.adminUrl, 'weir_connections')) === KEPT;
      });
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      const outcomes = await Promise.all([...old, ...young]);
      expect(outcomes.flatMap(({ failures }) => failures)).toEqual([]);
      answered += totalResponses(outcomes);
    }
    const tried = `${stops} stops, ${KEPT} connections, ${mode}`;
    recordMeasurement(
      'P3',
      'SIGTERM under TLS load',
      tried,
      `${answered} answered, 0 refused or reset`,
    );
    expect(answered).toBeGreaterThanOrEqual(stops * KEPT);
  });
});

test.runIf(IS_LONG)(
  'whoever is slow or silent behind TLS is closed, and charged nothing',
  async () => {
    const server = await own.start({
      args: ['--counters', '1024', '--acceptors', '2'],
      env: tlsEnvironment(writeCertificate(place, CERTIFICATE_A)),
    });
    /** What it sends at once, and then a byte a second. */
    const slow = async (socket: Socket, atOnce: Uint8Array, rest: Uint8Array) => {
      socket.on('error', () => {});
      socket.resume();
      socket.write(atOnce);
      let sent = 0;
      const drip = setInterval(() => socket.write(rest.subarray(sent, ++sent)), 1_000);
      const closed = new Promise<string>((resolve) => socket.on('close', () => resolve('closed')));
      const late = new Promise<string>((resolve) => setTimeout(() => resolve('open'), 25_000));
      const outcome = await Promise.race([closed, late]);
      clearInterval(drip);
      return outcome;
    };
    const request = requestBytes({ body: body.padEnd(200) });
    // How a client begins: a record of 512 bytes, in it a hello of 508.
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
    // The last one had its answer.
    const { remaining } = await checkOnce(server);
    recordMeasurement(
      'P3',
      'TLS: hello, head, body a byte a second',
      '5',
      'all closed, none charged',
    );
    expect(remaining).toBe(1_000_000_000 - 2);
  },
);
