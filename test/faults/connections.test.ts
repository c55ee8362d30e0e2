/** More connections than there may be, and connections that are slow: nobody else feels them. */

import { execFileSync, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  BUFFERED_BODY_BYTES_MAX,
  MULTI_LIMIT_MAX_BYTES,
  V2_DURATION_MAX_MS,
} from '../../src/core/constants.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../support/guarantees.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  readMetric,
  requestBytes,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import {
  allowedCheck,
  allowedCheckBytes,
  countCharged,
  type HttpConnection,
  openConnections,
  residentMiB,
  wait,
} from '../support/http-connections.ts';
import { callOperationOk } from '../support/operations.ts';
import { type ServerProcess, waitUntil } from '../support/server.ts';

const ARGS = ['--acceptors', '2', '--workers', '1', '--counters', '65536'];
const own = useDataDirectory(ARGS);

const readShedCount = ({ adminUrl }: ServerProcess, reason: string) => {
  return readMetric(adminUrl, `weir_shed_total{reason="${reason}"}`);
};
/** Each is answered one check. */
async function countServed(all: readonly HttpConnection[], identifier: string): Promise<number> {
  const answers = await Promise.all(
    all.map((caller) => caller.send(allowedCheckBytes(identifier))),
  );
  return answers.filter(({ status }) => status === 200).length;
}

/** How many were told to come again, and how many had their connection reset before they heard. */
async function countRejected(all: readonly HttpConnection[]) {
  const answers = await Promise.all(all.map((caller) => caller.firstResponse()));
  const told = answers.filter((answer) => answer !== undefined);
  for (const answer of told) {
    expect(answer).toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    expect(errorIn(answer).code).toBe('SERVICE_UNAVAILABLE');
  }
  await Promise.all(all.map((caller) => caller.closed));
  return { told: told.length, reset: all.length - told.length };
}

describe('connections beyond the bound', () => {
  const bound = 100;
  const start = () => own.start({ args: [...ARGS, '--connections', String(bound)] });

  test('are told so and closed; those within it are unharmed, and places are free again', async () => {
    const server = await start();
    const within = openConnections(server.port, bound);
    expect(await countServed(within, 'a')).toBe(bound);
    const more = trialCount(200, 2_000);
    const silent = await countRejected(openConnections(server.port, more));
    const eager = openConnections(server.port, more);
    for (const { socket } of eager) socket.write(allowedCheckBytes('eager'));
    const told = await countRejected(eager);
    expect(await readShedCount(server, 'connections')).toBe(2 * more);
    expect(await countServed(within, 'a')).toBe(bound);
    for (const { socket } of within.slice(0, 10)) socket.destroy();
    await waitUntil('they are gone', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) === bound - 10;
    });
    expect(await countServed(openConnections(server.port, 10), 'a')).toBe(10);
    for (const { socket } of within) socket.destroy();
    await waitUntil('all are gone', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) <= 10;
    });
    recordMeasurement(
      'P3',
      `connections beyond ${bound}`,
      `${2 * more}, half of them sending at once`,
      `503 read by ${silent.told}, and ${told.told} of those that sent; ${told.reset} reset; ` +
        `${2 * bound + 10} checks within the bound answered`,
    );
    expect(silent).toEqual({ told: more, reset: 0 });
    expect(await countCharged(server, 'a')).toBe(2 * bound + 10);
    expect(await countCharged(server, 'eager')).toBe(0);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});

describe('descriptors', () => {
  test('that are few make the connections fewer, and leave some for everything else', async () => {
    // 640 and four for each of three threads are kept.
    const server = await own.start({ descriptors: 712 });
    await waitUntil('the log says so', () => {
      return /"connections":60,"asked":10000,"descriptors":712/.test(server.stderr());
    });
    const within = openConnections(server.port, 60);
    expect(await countServed(within, 'a')).toBe(60);
    expect((await countRejected(openConnections(server.port, 200))).told).toBe(200);
    expect((await fetch(`${server.adminUrl}/readyz`)).status).toBe(200);
    within[0].socket.destroy();
    await waitUntil('there is a place', async () => {
      return (await readMetric(server.adminUrl, 'weir_connections')) === 59;
    });
    await callOperationOk(server.port, 'keys.create', { name: 'k', permissions: ['*'] });
    expect(await countServed(within.slice(1), 'a')).toBe(59);
    for (const { socket } of within) socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('are left for checks and the store while many connections are open to the admin port', async () => {
    const server = await own.start({ descriptors: 712 });
    const { port } = new URL(server.adminUrl);
    const script = new URL('../support/connection-holder.process.mjs', import.meta.url).pathname;
    const attacker = spawn(process.execPath, [script, port, '1500', '[""]']);
    await new Promise((resolve) => attacker.stdout.once('data', resolve));
    // Of the 60 that there may be, some are for operations.
    const within = openConnections(server.port, 50);
    for (let i = 0; i < 20; i++) {
      expect(await countServed(within, 'a')).toBe(50);
      await callOperationOk(server.port, 'ratelimits.setOverride', {
        ...{
          namespaceName: 'default',
          identifier: `id_${i}`,
          limit: 1,
          duration: LONGEST_WINDOW_MS,
        },
      });
      // On a connection of its own: one that is kept may be closed between two requests.
      const probe = await sendRequest(Number(port), { path: '/readyz', method: 'GET' });
      expect(probe.status).toBe(200);
    }
    for (const { socket } of within) socket.destroy();
    attacker.stdin.end();
  });

  test('that are too few to serve anybody stop the start, in one sentence', async () => {
    await expect(own.start({ descriptors: 652 })).rejects.toThrow(
      'the limit of open files (ulimit -n) must be above 652, which weir reserves for itself; got 652',
    );
  });

  /** Descriptors that newcomers still get, beside some that are free now and then. */
  const FREE = 5;

  test('that are all in use keep newcomers waiting, and nobody else', async () => {
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
    await wait(200);
    const taken = late.filter(({ responses }) => responses.length > 0).length;
    const ticks = () => {
      const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
      return Number(fields[11]) + Number(fields[12]);
    };
    const before = ticks();
    await wait(1_000);
    const busy = ticks() - before;
    const rounds = trialCount(20, 100);
    for (let round = 0; round < rounds; round++) expect(await countServed(within, 'a')).toBe(20);
    // Those that were taken are idle meanwhile, and may be closed for that.
    const lost = late.filter(({ isClosed, responses }) => isClosed && responses.length === 0);
    expect(lost.length).toBe(0);
    allow(20_000);
    const answers = await Promise.all(late.map((caller) => caller.firstResponse()));
    recordMeasurement(
      'P3',
      'no descriptor left',
      `50 newcomers, ${20 * rounds} checks on 20 open connections`,
      `${taken} newcomers at once, ${50 - taken} later, all answered; ${busy} % of a core meanwhile`,
    );
    expect(taken).toBeLessThan(50);
    expect(answers.map((answer) => answer?.status)).toEqual(Array(50).fill(200));
    expect(await countCharged(server, 'late')).toBe(50);
    for (const { socket } of [...within, ...late]) socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});

describe('slow connections', () => {
  test('of heads and bodies, a byte a second, are closed, charge nothing and disturb nobody', async () => {
    const server = await own.start();
    const count = trialCount(200, 5_000);
    const seconds = IS_LONG ? 20 : 2;
    const whole = allowedCheckBytes('slow');
    const head = whole.indexOf('\r\n\r\n') + 4;
    const startedMiB = residentMiB(server);
    const slow = openConnections(server.port, count);
    slow.forEach(({ socket }, i) => {
      if (i % 2 === 0) socket.write(whole.subarray(0, head));
    });
    let checks = 0;
    let lastClosedMs = 0;
    const began = performance.now();
    for (let second = 0; second < seconds; second++) {
      slow.forEach(({ socket, isClosed }, i) => {
        if (isClosed) return;
        lastClosedMs = performance.now() - began;
        const at = i % 2 === 0 ? head + second : second;
        socket.write(whole.subarray(at, at + 1));
      });
      while (performance.now() - began < (second + 1) * 1_000) {
        await sendCheck(server.port, allowedCheck('beside'));
        checks++;
      }
    }
    const moreMiB = residentMiB(server) - startedMiB;
    const open = slow.filter(({ isClosed }) => !isClosed).length;
    for (const { socket } of slow) socket.destroy();
    recordMeasurement(
      'P3',
      'a byte a second',
      `${count} connections for ${seconds} s`,
      `${open} open at the end, the last closed after ${Math.round(lastClosedMs / 1_000)} s;` +
        ` ${checks} checks beside them, ${Math.round(moreMiB)} MiB more`,
    );
    if (IS_LONG) expect(open).toBe(0);
    expect(checks).toBeGreaterThan(seconds);
    expect(moreMiB).toBeLessThan(256);
    expect(await countCharged(server, 'beside')).toBe(checks);
    expect(await countCharged(server, 'slow')).toBe(0);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  }, 60_000);

  test('of large bodies have a bound together: beyond it a 503, and nothing is charged', async () => {
    const server = await own.start({ args: [...ARGS, '--acceptors', '1'] });
    const duration = V2_DURATION_MAX_MS;
    const item = { namespace: 'n', identifier: 'large', limit: 1e12, duration };
    const json = JSON.stringify([item]);
    const body = json.padEnd(MULTI_LIMIT_MAX_BYTES, ' ');
    const whole = requestBytes({ path: '/v2/ratelimit.multiLimit', body });
    const startedMiB = residentMiB(server);
    // More than fit, in the quick set too.
    const count = IS_LONG ? 400 : 40;
    const all = openConnections(server.port, count);
    for (const { socket } of all) socket.write(whole.subarray(0, -1));
    const fit = BUFFERED_BODY_BYTES_MAX / MULTI_LIMIT_MAX_BYTES;
    await waitUntil('as many are told so as do not fit', () => {
      return all.filter(({ isClosed }) => isClosed).length === count - fit;
    });
    const moreMiB = residentMiB(server) - startedMiB;
    const told = all.flatMap(({ responses }) => responses);
    for (const answer of told) {
      expect(answer).toMatchObject({ status: 503, headers: { connection: 'close' } });
    }
    expect(await readShedCount(server, 'bodies')).toBe(count - fit);
    // Who holds back a byte holds up no check, and those that fit are answered when they are whole.
    await sendCheck(server.port, allowedCheck('beside'));
    const held = all.filter(({ isClosed }) => !isClosed);
    const half = held.slice(0, fit / 2);
    const answers = await Promise.all(half.map((caller) => caller.send(whole.subarray(-1))));
    expect(answers.map(({ status }) => status)).toEqual(Array(fit / 2).fill(200));
    for (const { socket } of all) socket.destroy();
    await waitUntil('room is free again', async () => {
      const pieces = openConnections(server.port, fit);
      for (const { socket } of pieces) socket.write(whole.subarray(0, 1_000_000));
      await wait(20);
      for (const { socket } of pieces) socket.write(whole.subarray(1_000_000));
      const heard = await Promise.all(pieces.map((caller) => caller.firstResponse()));
      for (const { socket } of pieces) socket.destroy();
      return heard.every((answer) => answer?.status === 200);
    });
    recordMeasurement(
      'P7',
      'large bodies without their last byte',
      `${count} of 1 MiB`,
      `${fit} held, ${told.length} told by a 503, ${Math.round(moreMiB)} MiB more`,
    );
    const answer = await sendRequest(server.port, {
      path: '/v2/ratelimit.limit',
      body: JSON.stringify({ ...item, cost: 0 }),
    });
    const consumed = 1e12 - JSON.parse(answer.body).data.remaining;
    expect(consumed % (fit / 2)).toBe(0);
    expect(consumed).toBeLessThanOrEqual(fit / 2 + 20 * fit);
    expect(moreMiB).toBeLessThan(128);
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});
