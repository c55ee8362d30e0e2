/** Connections above the limit, slow ones, and those of the admin port: other clients are served. */

import { execFileSync, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import {
  BUFFERED_BODY_BYTES_MAX,
  MULTI_LIMIT_MAX_BYTES,
  V2_DURATION_MAX_MS,
} from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { sendUntilClosed } from '../../support/raw-connection.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import {
  allowedCheck,
  allowedCheckBytes,
  countCharged,
  type HttpConnection,
  openConnections,
  residentMiB,
} from './http-connections.ts';

const HOLDER = new URL('../../support/connection-holder.process.mjs', import.meta.url).pathname;
const ARGS = ['--acceptors', '2', '--workers', '1', '--counters', '65536'];
const own = useDataDirectory(ARGS);

const readShedCount = ({ adminUrl }: ServerProcess, reason: string) => {
  return readMetric(adminUrl, `weir_shed_total{reason="${reason}"}`);
};
const waitForConnections = ({ adminUrl }: ServerProcess, count: number) => {
  return waitUntil(`${count} connections are open`, async () => {
    return (await readMetric(adminUrl, 'weir_connections')) === count;
  });
};
/** Sends a check on each connection. @returns the number of 200 responses */
async function countServed(all: readonly HttpConnection[], identifier: string): Promise<number> {
  const answers = await Promise.all(
    all.map((connection) => connection.send(allowedCheckBytes(identifier))),
  );
  return answers.filter(({ status }) => status === 200).length;
}

/** Counts connections that received a 503, and connections that were reset before they did. */
async function countRejected(all: readonly HttpConnection[]) {
  const responses = await Promise.all(all.map((connection) => connection.firstResponse()));
  const rejections = responses.filter((response) => response !== undefined);
  for (const response of rejections) {
    expect(response).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect(errorIn(response).code).toBe('SERVICE_UNAVAILABLE');
  }
  await Promise.all(all.map((connection) => connection.closed));
  return { rejected: rejections.length, reset: all.length - rejections.length };
}

/** Holds connections to the admin port in another process, which sends these texts in turn. */
async function holdAdminConnections(server: ServerProcess, count: number, texts: string[]) {
  const { port } = new URL(server.adminUrl);
  const args = [HOLDER, port, String(count), JSON.stringify(texts)];
  const holder = spawn(process.execPath, args);
  await new Promise((resolve) => holder.stdout.once('data', resolve));
  return { end: () => holder.stdin.end() };
}

/** Sends a request on a new connection: the server may close an idle one between two requests. */
async function expectProbed(server: ServerProcess, path: string): Promise<void> {
  const { port } = new URL(server.adminUrl);
  const { status } = await sendRequest(Number(port), { path, method: 'GET' });
  expect([path, status]).toEqual([path, 200]);
}

test('connections above the limit get a 503 and are closed; others are served, and closed ones make room', async () => {
  const limit = 100;
  const server = await own.start({ args: [...ARGS, '--connections', String(limit)] });
  const within = openConnections(server.port, limit);
  expect(await countServed(within, 'a')).toBe(limit);
  const more = trialCount(100, 2_000);
  const silent = await countRejected(openConnections(server.port, more));
  const eager = openConnections(server.port, more);
  for (const { socket } of eager) socket.write(allowedCheckBytes('eager'));
  const sending = await countRejected(eager);
  expect(await readShedCount(server, 'connections')).toBe(2 * more);
  expect(await countServed(within, 'a')).toBe(limit);
  for (const { socket } of within.slice(0, 10)) socket.destroy();
  await waitForConnections(server, limit - 10);
  const later = openConnections(server.port, 10);
  expect(await countServed(later, 'a')).toBe(10);
  for (const { socket } of [...within, ...later]) socket.destroy();
  await waitForConnections(server, 0);
  const measured = `503 read by ${silent.rejected}, and by ${sending.rejected} of those that sent`;
  recordMeasurement('P3', `connections above the limit of ${limit}`, `${2 * more}`, measured);
  expect(silent).toEqual({ rejected: more, reset: 0 });
  expect(await countCharged(server, 'a')).toBe(2 * limit + 10);
  expect(await countCharged(server, 'eager')).toBe(0);
  expect(await server.stop()).toEqual({ code: 0, signal: null });
});

describe('file descriptors', () => {
  test('when few, reduce the connection limit and stay available, also under a flood of the admin port', async () => {
    // 640, and four for each of the three threads, are reserved.
    const server = await own.start({ descriptors: 712 });
    await waitUntil('the log reports the limit', () => {
      return /"connections":60,"requested":10000,"descriptors":712/.test(server.stderr());
    });
    const within = openConnections(server.port, 60);
    expect(await countServed(within, 'a')).toBe(60);
    expect((await countRejected(openConnections(server.port, 200))).rejected).toBe(200);
    for (const { socket } of within.splice(0, 10)) socket.destroy();
    await waitForConnections(server, 50);
    const holder = await holdAdminConnections(server, 1_500, ['']);
    // 10 of the 60 are free for operations.
    const override = { namespaceName: 'default', limit: 1, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < 20; i++) {
      expect(await countServed(within, 'a')).toBe(50);
      const fields = { ...override, identifier: `id_${i}` };
      await callOperationOk(server.port, 'ratelimits.setOverride', fields);
      await expectProbed(server, '/readyz');
    }
    holder.end();
    for (const { socket } of within) socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('too few for any connection end the start with one message', async () => {
    await expect(own.start({ descriptors: 652 })).rejects.toThrow(
      'the limit of open files (ulimit -n) must be above 652, which weir reserves for itself; got 652',
    );
  });

  /** Free descriptors for new connections. More may become free for a moment. */
  const FREE = 5;

  test('when exhausted, delay new connections and no others', async () => {
    const server = await own.start();
    const pid = String(server.child.pid);
    const within = openConnections(server.port, 20);
    expect(await countServed(within, 'a')).toBe(20);
    const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
    let number = 0;
    for (let free = 0; free < FREE; number++) if (!open.has(number)) free++;
    const allow = (count: number) => {
      execFileSync('prlimit', ['--pid', pid, `--nofile=${count}:20000`]);
    };
    allow(number);
    const late = openConnections(server.port, 50);
    for (const { socket } of late) socket.write(allowedCheckBytes('late'));
    await sleep(200);
    const accepted = late.filter(({ responses }) => responses.length > 0).length;
    const ticks = () => {
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
      return Number(fields[11]) + Number(fields[12]);
    };
    const ticksBefore = ticks();
    const watchedMs = trialCount(100, 1_000);
    await sleep(watchedMs);
    const busy = (1_000 * (ticks() - ticksBefore)) / watchedMs;
    const rounds = trialCount(10, 100);
    for (let round = 0; round < rounds; round++) expect(await countServed(within, 'a')).toBe(20);
    // Accepted connections are idle meanwhile, so the server may close them.
    const lost = late.filter(({ isClosed, responses }) => isClosed && responses.length === 0);
    expect(lost.length).toBe(0);
    allow(20_000);
    const responses = await Promise.all(late.map((connection) => connection.firstResponse()));
    const trials = `50 new connections, ${20 * rounds} checks on 20 open connections`;
    const measured = `${accepted} answered at once, all later; ${busy} % of a core meanwhile`;
    recordMeasurement('P3', 'no free descriptor', trials, measured);
    expect(accepted).toBeLessThan(50);
    expect(responses.map((response) => response?.status)).toEqual(Array(50).fill(200));
    expect(await countCharged(server, 'late')).toBe(50);
    for (const { socket } of [...within, ...late]) socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});

describe('slow connections', () => {
  test('with one byte per second are closed, charge nothing and delay no other client', async () => {
    const server = await own.start();
    const count = trialCount(100, 5_000);
    const seconds = trialCount(1, 20);
    const whole = allowedCheckBytes('slow');
    const head = whole.indexOf('\r\n\r\n') + 4;
    const startedMiB = residentMiB(server);
    const slow = openConnections(server.port, count);
    slow.forEach(({ socket }, i) => {
      if (i % 2 === 0) socket.write(whole.subarray(0, head));
    });
    let checks = 0;
    const began = performance.now();
    for (let second = 0; second < seconds; second++) {
      slow.forEach(({ socket, isClosed }, i) => {
        const at = i % 2 === 0 ? head + second : second;
        if (!isClosed) socket.write(whole.subarray(at, at + 1));
      });
      while (performance.now() - began < (second + 1) * 1_000) {
        await sendCheck(server.port, allowedCheck('other'));
        checks++;
      }
    }
    const addedMiB = residentMiB(server) - startedMiB;
    const open = slow.filter(({ isClosed }) => !isClosed).length;
    for (const { socket } of slow) socket.destroy();
    const trials = `${count} connections for ${seconds} s, ${checks} checks of other clients`;
    const measured = `${open} open at the end, ${Math.round(addedMiB)} MiB added`;
    recordMeasurement('P3', 'one byte per second', trials, measured);
    if (IS_LONG) expect(open).toBe(0);
    expect(checks).toBeGreaterThan(seconds);
    expect(addedMiB).toBeLessThan(256);
    expect(await countCharged(server, 'other')).toBe(checks);
    expect(await countCharged(server, 'slow')).toBe(0);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  }, 60_000);

  test('with large bodies share a limit: above it they get a 503, and nothing is charged', async () => {
    const server = await own.start({ args: [...ARGS, '--acceptors', '1'] });
    const duration = V2_DURATION_MAX_MS;
    const item = { namespace: 'n', identifier: 'large', limit: 1e12, duration };
    const body = JSON.stringify([item]).padEnd(MULTI_LIMIT_MAX_BYTES, ' ');
    const whole = requestBytes({ path: '/v2/ratelimit.multiLimit', body });
    const startedMiB = residentMiB(server);
    // More than fit, also in the quick set.
    const count = trialCount(40, 400);
    const all = openConnections(server.port, count);
    for (const { socket } of all) socket.write(whole.subarray(0, -1));
    const fit = BUFFERED_BODY_BYTES_MAX / MULTI_LIMIT_MAX_BYTES;
    await waitUntil('the bodies that do not fit are rejected', () => {
      return all.filter(({ isClosed }) => isClosed).length === count - fit;
    });
    const addedMiB = residentMiB(server) - startedMiB;
    const rejections = all.flatMap(({ responses }) => responses);
    for (const response of rejections) {
      expect(response).toMatchObject({ status: 503, headers: { connection: 'close' } });
    }
    expect(await readShedCount(server, 'bodies')).toBe(count - fit);
    // The incomplete bodies delay no check, and those that fit are answered once complete.
    await sendCheck(server.port, allowedCheck('other'));
    const half = all.filter(({ isClosed }) => !isClosed).slice(0, fit / 2);
    const responses = await Promise.all(
      half.map((connection) => connection.send(whole.subarray(-1))),
    );
    expect(responses.map(({ status }) => status)).toEqual(Array(fit / 2).fill(200));
    for (const { socket } of all) socket.destroy();
    await waitUntil('the memory for bodies is free again', async () => {
      const next = openConnections(server.port, fit);
      for (const { socket } of next) socket.write(whole.subarray(0, 1_000_000));
      await sleep(20);
      for (const { socket } of next) socket.write(whole.subarray(1_000_000));
      const first = await Promise.all(next.map((connection) => connection.firstResponse()));
      for (const { socket } of next) socket.destroy();
      return first.every((response) => response?.status === 200);
    });
    const measured = `${fit} held, others rejected with 503, ${Math.round(addedMiB)} MiB added`;
    recordMeasurement('P7', 'large bodies without their last byte', `${count} of 1 MiB`, measured);
    const response = await sendRequest(server.port, {
      path: '/v2/ratelimit.limit',
      body: JSON.stringify({ ...item, cost: 0 }),
    });
    const consumed = 1e12 - JSON.parse(response.body).data.remaining;
    expect(consumed % (fit / 2)).toBe(0);
    expect(consumed).toBeLessThanOrEqual(fit / 2 + 20 * fit);
    expect(addedMiB).toBeLessThan(128);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});

describe('connections of the admin port', () => {
  const SMALL = ['--counters', '1024', '--acceptors', '1'];
  const HOST = 'HTTP/1.1\r\nHost: localhost\r\n\r\n';

  test('with pipelined requests get at most one response each, and take little memory', async () => {
    // Garbage alone takes up to 105 MiB in a young generation of the usual size.
    const server = await own.start({ args: SMALL, execArgv: ['--max-semi-space-size=1'] });
    const port = Number(new URL(server.adminUrl).port);
    const beforeMiB = residentMiB(server);
    const requests = `GET /metrics ${HOST}`.repeat(2_000);
    const results = await Promise.all(
      Array.from({ length: 20 }, () => sendUntilClosed(port, [requests], 10_000)),
    );
    for (const { statuses } of results) expect(statuses.length).toBeLessThanOrEqual(1);
    // Without the bound, one of these connections took 180 MiB.
    expect(residentMiB(server) - beforeMiB).toBeLessThan(100);
    await expectProbed(server, '/livez');
  });

  test('that send nothing are closed when the time for a request is over', async () => {
    const server = await own.start({ args: SMALL });
    const idle = openConnections(Number(new URL(server.adminUrl).port), 50);
    await Promise.all(idle.map(({ closed }) => closed));
    await expectProbed(server, '/livez');
  });

  test('in a flood do not keep probes from being answered, whatever they send', {
    timeout: 180_000,
  }, async () => {
    const server = await own.start({ args: SMALL });
    // Nothing, a part of a request, one whose response is read, and two whose responses are not.
    const texts = ['', 'GET', `GET / ${HOST}`, `GET /metrics ${HOST}`.repeat(2)];
    // Those of one kind alone are more than there may be.
    const holder = await holdAdminConnections(server, 300 * texts.length, texts);
    for (let i = 0; i < 30; i++) {
      for (const path of ['/livez', '/readyz', '/metrics']) await expectProbed(server, path);
    }
    holder.end();
  });
});
