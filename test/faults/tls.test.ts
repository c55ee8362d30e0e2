/** Certificates that change while connections are open, come and go; and a stop behind TLS. */

import { connect as connectPlain, type Socket } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, describe, expect, test } from 'vitest';
import { KOBLITZ, ONE, type Pair, put, TWO, tlsEnvironment } from '../support/certificates.ts';
import { exchange, LASTING_MS, type LimitAnswer, metric, requestBytes } from '../support/http.ts';
import { eachOnItsOwn } from '../support/own.ts';
import {
  MODES,
  type Running,
  removeDirectory,
  temporaryDirectory,
  until,
} from '../support/server.ts';
import { type Outcome, steady } from '../support/steady.ts';
import { figure, IS_LONG, trials } from './promises.ts';

const RELOADS = trials(20, 200);
const KEPT = 32;

const own = eachOnItsOwn([]);
const place = temporaryDirectory();
afterAll(() => removeDirectory(place));

const body = JSON.stringify({ identifier: 'a', limit: 1_000_000_000, duration: LASTING_MS });

/** Whoever has neither certificate is refused by this side. */
const secure = (server: Running): TLSSocket => {
  return connect({ host: '127.0.0.1', port: server.port, ca: [ONE.cert, TWO.cert] });
};

/** The certificate that a newcomer is shown. */
function shown(server: Running): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = secure(server);
    socket.on('error', reject);
    socket.on('secureConnect', () => {
      resolve(String(socket.getPeerCertificate().subject.CN));
      socket.destroy();
    });
  });
}

async function exchangeOnce(server: Running): Promise<LimitAnswer> {
  const [answer] = await exchange(secure(server), [requestBytes({ body })]);
  return JSON.parse(answer.body);
}

/**
 * Clients that stay for a while, so that at any time there are some of each of the last
 * certificates, and clients that come for one check.
 * @returns what ends them
 */
function load(server: Running): () => Promise<{ kept: Outcome[]; came: Outcome[] }> {
  let going = true;
  const kept: Outcome[] = [];
  const stayers = Array.from({ length: KEPT }, async (_, i) => {
    while (going) {
      let left = 10 + i;
      const goesOn = () => going && left-- > 0;
      kept.push(await steady({ connect: () => secure(server), body, pauseMs: 10, goesOn }));
    }
  });
  const came: Outcome[] = [];
  const newcomers = Array.from({ length: 2 }, async () => {
    while (going) {
      const once = { connect: () => secure(server), body, pauseMs: 0, goesOn: () => false };
      came.push(await steady(once));
    }
  });
  return async () => {
    going = false;
    await Promise.all([...stayers, ...newcomers]);
    return { kept, came };
  };
}

const sum = (outcomes: Outcome[]) => outcomes.reduce((n, { answered }) => n + answered, 0);

describe.each([
  { acceptors: 1, mode: MODES[0] },
  { acceptors: 2, mode: MODES[1] },
])('on $acceptors acceptors, decided $mode,', ({ acceptors, mode }) => {
  const args = ['--counters', '1024', '--acceptors', `${acceptors}`, '--decide', mode];
  const start = async (drainMs: number) => {
    const env = tlsEnvironment(put(place, ONE));
    return own.start({ args: [...args, '--drain-ms', String(drainMs)], env });
  };

  test(`${RELOADS / 2} certificates change and every request is answered`, async () => {
    const server = await start(1_000);
    const leave = load(server);
    const saidTimes = (text: string) => server.stderr().split(text).length - 1;
    let changed = 0;
    let refused = 0;
    let name = ONE.name;
    const reload = async (pair: Omit<Pair, 'name'>, text: string, times: number) => {
      put(place, pair);
      server.child.kill('SIGHUP');
      await until(`the log says: ${text}`, () => saidTimes(text) === times);
    };
    for (let i = 1; i <= RELOADS / 2; i++) {
      if (i % 5 === 0) {
        const unfit = i % 2 === 0 ? KOBLITZ : { cert: ONE.cert, key: TWO.key };
        await reload(unfit, 'SIGHUP: the certificate was not reloaded', ++refused);
      } else {
        const next = name === ONE.name ? TWO : ONE;
        await reload(next, 'SIGHUP: the certificate was reloaded', ++changed);
        name = next.name;
      }
      // On each acceptor.
      for (let j = 0; j < acceptors; j++) expect(await shown(server)).toBe(name);
    }
    const { kept, came } = await leave();
    const lost = [...kept, ...came].flatMap((outcome) => outcome.lost);
    const reloads = `${changed} reloads, ${refused} refused, ${acceptors} acceptors, ${mode}`;
    const all = `${sum(kept)} requests on ${kept.length} kept connections and ${sum(came)} on new`;
    figure('P3', 'SIGHUP under TLS load', reloads, `${all}, ${lost.length} without an answer`);
    expect(lost).toEqual([]);
    expect(sum(kept)).toBeGreaterThan(KEPT);
    expect(sum(came)).toBe(came.length);
    await until('all are counted as closed', async () => {
      return (await metric(server.adminUrl, 'weir_connections')) === 0;
    });
    expect(server.stderr()).not.toMatch(/"level":60|native/);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('SIGTERM cuts off no request under way, whichever certificate it has', async () => {
    let answered = 0;
    const stops = trials(1, 20);
    for (let i = 0; i < stops; i++) {
      const server = await start(5_000);
      const clients = (goesOn: () => boolean) => {
        const one = { connect: () => secure(server), body, pauseMs: 10, goesOn };
        return Array.from({ length: KEPT / 2 }, () => steady(one));
      };
      const old = clients(() => true);
      await shown(server);
      put(place, TWO);
      server.child.kill('SIGHUP');
      await until('it has another', () => server.stderr().includes('the certificate was reloaded'));
      const young = clients(() => true);
      await until('all are counted', async () => {
        return (await metric(server.adminUrl, 'weir_connections')) === KEPT;
      });
      expect(await server.stop()).toEqual({ code: 0, signal: null });
      const outcomes = await Promise.all([...old, ...young]);
      expect(outcomes.flatMap(({ lost }) => lost)).toEqual([]);
      answered += sum(outcomes);
    }
    const tried = `${stops} stops, ${KEPT} connections, ${mode}`;
    figure('P3', 'SIGTERM under TLS load', tried, `${answered} answered, 0 refused or reset`);
    expect(answered).toBeGreaterThanOrEqual(stops * KEPT);
  });
});

test.runIf(IS_LONG)(
  'whoever is slow or silent behind TLS is closed, and charged nothing',
  async () => {
    const server = await own.start({
      args: ['--counters', '1024', '--acceptors', '2'],
      env: tlsEnvironment(put(place, ONE)),
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
      slow(secure(server), none, none),
      slow(secure(server), none, request),
      slow(secure(server), request.subarray(0, -100), request.subarray(-100)),
      slow(secure(server), request, none),
    ]);
    expect(outcomes).toEqual(['closed', 'closed', 'closed', 'closed', 'closed']);
    // The last one had its answer.
    const { remaining } = await exchangeOnce(server);
    figure('P3', 'TLS: hello, head, body a byte a second', '5', 'all closed, none charged');
    expect(remaining).toBe(1_000_000_000 - 2);
  },
);
