/** Clients that ask and do not read what they are told: they cost little, and nobody else. */

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { V2_DURATION_MAX_MS } from '../../src/core/constants.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../support/guarantees.ts';
import { readMetric, requestBytes } from '../support/http.ts';
import {
  allowedCheckBytes,
  countCharged,
  type HttpConnection,
  openConnections,
  residentMiB,
  wait,
} from '../support/http-connections.ts';
import { type ServerProcess, waitUntil } from '../support/server.ts';

const own = useDataDirectory(['--acceptors', '2', '--workers', '1', '--counters', '65536']);

describe('a client that does not read', () => {
  // What is before the last header makes it rare that a request line is split between packets,
  // which is answered with a 505.
  const get = (path: string) => {
    return Buffer.from(`GET ${path} HTTP/1.1\r\nHost: a\r\nPad: ${'x'.repeat(4_000)}\r\n\r\n`);
  };
  const cases = [
    ['checks', allowedCheckBytes('pipelined'), 20],
    ['what there is not, without a key', get('/no'), 16],
  ] as const;
  test.each(cases)(
    'and goes on asking for %s is closed, and takes little memory',
    async (what, bytes, depth) => {
      const server = await own.start();
      const count = trialCount(2, 40);
      const all = openConnections(server.port, count);
      const packet = Buffer.concat(Array.from({ length: depth }, () => bytes));
      const startedMiB = residentMiB(server);
      let asked = 0;
      let mostMiB = 0;
      for (const { socket } of all) socket.pause();
      const watch = setInterval(() => {
        mostMiB = Math.max(mostMiB, residentMiB(server) - startedMiB);
      }, 20);
      await Promise.all(
        all.map(async ({ socket }) => {
          let gone = false;
          socket.on('error', () => {
            gone = true;
          });
          while (!gone) {
            await new Promise((resolve) => socket.write(packet, resolve));
            asked += depth;
            await wait(1);
          }
        }),
      );
      clearInterval(watch);
      expect([server.child.signalCode, server.stderr()]).toEqual([
        null,
        expect.not.stringContaining('weir:'),
      ]);
      const unread = await readMetric(
        server.adminUrl,
        'weir_shed_total{reason="unread_responses"}',
      );
      recordMeasurement(
        'P7',
        `${what}, unread`,
        `${count} connections`,
        `${unread} closed for it, after ${Math.round(asked / count)} requests each;` +
          ` ${Math.round(mostMiB)} MiB more`,
      );
      expect(unread).toBeGreaterThan(0);
      expect(mostMiB).toBeLessThan(128);
      expect(await countCharged(server, 'beside')).toBe(0);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    },
    120_000,
  );

  /** What the kernel holds of answers that are not read, in bytes. */
  function unreadBytes(server: ServerProcess, caller: HttpConnection): number {
    const ports = [server.port, caller.socket.localPort].map((port) => {
      return `0100007F:${port!.toString(16).toUpperCase().padStart(4, '0')}`;
    });
    let sum = 0;
    for (const line of readFileSync('/proc/net/tcp', 'latin1').split('\n')) {
      const [, local, remote, , queues] = line.trim().split(/ +/);
      const [sent, received] = (queues ?? '').split(':').map((text) => Number.parseInt(text, 16));
      if (local === ports[0] && remote === ports[1]) sum += sent;
      if (local === ports[1] && remote === ports[0]) sum += received;
    }
    return sum;
  }

  /** Asks until an answer does not fit what the kernel keeps. @returns how often it has asked */
  async function fill(server: ServerProcess, late: HttpConnection, bytes: Buffer): Promise<number> {
    await late.send(bytes);
    const size = late.receivedBytes;
    late.socket.pause();
    let asked = 1;
    // A client that pauses has taken a piece of the next one all the same.
    for (let unread = 0, more = 0; asked < 4 || more === size; unread += more) {
      late.socket.write(bytes);
      asked++;
      let now = -1;
      await waitUntil('the kernel has what it takes', async () => {
        const before = now;
        await wait(50);
        now = unreadBytes(server, late);
        return now === before;
      });
      more = now - unread;
    }
    return asked;
  }

  const name = 'x'.repeat(512);
  const item = { namespace: name, identifier: name, limit: 1e12, duration: V2_DURATION_MAX_MS };
  const many = requestBytes({
    path: '/v2/ratelimit.multiLimit',
    body: JSON.stringify(Array.from({ length: 100 }, () => item)),
  });

  test('large answers until the kernel has no room gets them whole when it does', async () => {
    const server = await own.start();
    const [late] = openConnections(server.port, 1);
    const asked = await fill(server, late, many);
    late.socket.resume();
    await waitUntil('all is read', () => late.isClosed || late.responses.length === asked);
    const whole = late.responses.filter(({ body }) => JSON.parse(body).data.limits.length === 100);
    recordMeasurement(
      'P3',
      'large answers, read late',
      `${asked} of 100 checks, the last of which the kernel had no room for`,
      `${whole.length} read whole`,
    );
    expect(whole.length).toBe(asked);
    expect(await readMetric(server.adminUrl, 'weir_shed_total{reason="unread_responses"}')).toBe(0);
    expect((await late.send(many)).status).toBe(200);
    late.socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  }, 60_000);

  test.runIf(IS_LONG)(
    'a large answer at all is closed after some ten seconds',
    async () => {
      const server = await own.start();
      const [late] = openConnections(server.port, 1);
      await fill(server, late, many);
      const began = performance.now();
      const open = () => readMetric(server.adminUrl, 'weir_connections');
      while ((await open()) > 0 && performance.now() - began < 60_000) await wait(100);
      const seconds = Math.round((performance.now() - began) / 1_000);
      recordMeasurement('P3', 'a large answer, never read', '1', `closed after ${seconds} s`);
      expect(await open()).toBe(0);
      late.socket.destroy();
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    },
    90_000,
  );
});
