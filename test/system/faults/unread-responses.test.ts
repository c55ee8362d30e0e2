/** Clients that do not read their responses: they use little memory, and affect no other client. */

import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { V2_DURATION_MAX_MS } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { IS_LONG, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetric, requestBytes } from '../../support/http.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import {
  allowedCheckBytes,
  countCharged,
  type HttpConnection,
  openConnections,
  residentMiB,
} from './http-connections.ts';
import { expectHealthy } from './server-health.ts';

vi.setConfig({ testTimeout: 120_000 });

/** Requests in a packet. */
const DEPTH = 16;

const own = useDataDirectory(['--acceptors', '2', '--workers', '1', '--counters', '65536']);

describe('a client that does not read responses', () => {
  // The long header before the last one makes it rare that a request line is split between packets.
  // uWebSockets.js answers such a request with 505.
  const get = (path: string) => {
    return Buffer.from(`GET ${path} HTTP/1.1\r\nHost: a\r\nPad: ${'x'.repeat(4_000)}\r\n\r\n`);
  };
  /** Sends packets, although nothing is read, until the server closes the connection. */
  const sendUntilClosed = async ({ socket }: HttpConnection, packet: Buffer): Promise<number> => {
    let packets = 0;
    socket.pause();
    while (!socket.destroyed) {
      await new Promise((resolve) => socket.write(packet, resolve));
      packets++;
      await sleep(1);
    }
    return packets;
  };

  const known = 'GET /docs HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n';
  /** Responses without a body take long to fill the buffers, and close fewer connections. */
  const WITHOUT_BODIES = [
    ['HEAD of unknown paths', Buffer.from('HEAD /no HTTP/1.1\r\nHost: a\r\n\r\n'), false],
    ['pages that the client has', Buffer.from(known), false],
    ['redirects', Buffer.from('GET /docs/ HTTP/1.1\r\nHost: a\r\n\r\n'), false],
  ] as const;
  test.each([
    ['checks', allowedCheckBytes('pipelined'), true],
    ['unknown paths, without a key', get('/no'), true],
    ...WITHOUT_BODIES.slice(0, IS_LONG ? 3 : 1),
  ] as const)(
    'but continues to request %s is closed, and uses little memory',
    async (what, bytes, hasBody) => {
      const server = await own.start();
      const count = trialCount(2, hasBody ? 40 : 4);
      const packet = Buffer.concat(Array.from({ length: DEPTH }, () => bytes));
      const startedMiB = residentMiB(server);
      let [packets, maxMiB, opened, unread] = [0, 0, 0, 0];
      const watch = setInterval(() => {
        maxMiB = Math.max(maxMiB, residentMiB(server) - startedMiB);
      }, 20);
      // A 505 for a split request line may end all connections of a round.
      do {
        const all = openConnections(server.port, count);
        opened += count;
        const sent = await Promise.all(all.map((one) => sendUntilClosed(one, packet)));
        packets += sent.reduce((a, b) => a + b);
        expectHealthy(server);
        unread = await readMetric(server.adminUrl, 'weir_shed_total{reason="unread_responses"}');
      } while (hasBody && unread === 0);
      clearInterval(watch);
      const requests = Math.round((packets * DEPTH) / opened);
      const measured = `${unread} closed for it, after ${requests} requests each`;
      const trials = `${opened} connections`;
      recordMeasurement(
        'P7',
        `${what}, unread`,
        trials,
        `${measured}; ${Math.round(maxMiB)} MiB added`,
      );
      expect(maxMiB).toBeLessThan(128);
      expect(await countCharged(server, 'other')).toBe(0);
      expect(await server.stop()).toEqual({ code: 0, signal: null });
    },
  );

  /** Bytes of unread responses in the buffers of the kernel. */
  function unreadBytes(server: ServerProcess, connection: HttpConnection): number {
    const ports = [server.port, connection.socket.localPort].map((port) => {
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

  /** Sends requests until a response does not fit the buffers. @returns the number of requests */
  async function fill(server: ServerProcess, late: HttpConnection, bytes: Buffer): Promise<number> {
    await late.send(bytes);
    const size = late.receivedBytes;
    late.socket.pause();
    let requests = 1;
    // A paused client still reads a part of the next response.
    for (let unread = 0, more = 0; requests < 4 || more === size; unread += more) {
      late.socket.write(bytes);
      requests++;
      let now = -1;
      await waitUntil('the buffers do not change', async () => {
        const before = now;
        await sleep(50);
        now = unreadBytes(server, late);
        return now === before;
      });
      more = now - unread;
    }
    return requests;
  }

  const name = 'x'.repeat(512);
  const item = { namespace: name, identifier: name, limit: 1e12, duration: V2_DURATION_MAX_MS };
  const many = requestBytes({
    path: '/v2/ratelimit.multiLimit',
    body: JSON.stringify(Array.from({ length: 100 }, () => item)),
  });

  test('gets a page completely when it reads again, and the page is not kept for it', async () => {
    const server = await own.start();
    const all = openConnections(server.port, 800);
    const request = (host: string) => Buffer.from(`GET /docs HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    const { body } = await all[0].send(request('host-xxx'));
    const startedMiB = residentMiB(server);
    let maxMiB = 0;
    for (const [i, { socket }] of all.entries()) {
      socket.pause();
      socket.write(request(`host-${100 + i}`));
      if (i % 20 === 0) await sleep(10);
      maxMiB = Math.max(maxMiB, residentMiB(server) - startedMiB);
    }
    for (const { socket } of all) socket.resume();
    await Promise.all(all.map((one, i) => one.waitFor(i === 0 ? 2 : 1, 60_000)));
    const complete = all.filter(({ responses }, i) => {
      return responses.at(-1)?.body === body.replaceAll('host-xxx', `host-${100 + i}`);
    });
    const pagesMiB = Math.round((all.length * body.length) / 2 ** 20);
    recordMeasurement(
      'P7',
      'pages for different hosts, read late',
      `${all.length} of ${pagesMiB} MiB in all`,
      `${complete.length} received completely; ${Math.round(maxMiB)} MiB added`,
    );
    expect(complete.length).toBe(all.length);
    expect(maxMiB).toBeLessThan(128);
    expect(await readMetric(server.adminUrl, 'weir_shed_total{reason="unread_responses"}')).toBe(0);
    for (const { socket } of all) socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test('gets large ones completely when it reads again', async () => {
    const server = await own.start();
    const [late] = openConnections(server.port, 1);
    const requests = await fill(server, late, many);
    late.socket.resume();
    await waitUntil('all is read', () => late.isClosed || late.responses.length === requests);
    const complete = late.responses.filter(
      ({ body }) => JSON.parse(body).data.limits.length === 100,
    );
    recordMeasurement(
      'P3',
      'large responses, read late',
      `${requests} of 100 checks, the last of which did not fit the buffers`,
      `${complete.length} received completely`,
    );
    expect(complete.length).toBe(requests);
    expect(await readMetric(server.adminUrl, 'weir_shed_total{reason="unread_responses"}')).toBe(0);
    expect((await late.send(many)).status).toBe(200);
    late.socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });

  test.runIf(IS_LONG)('is closed after some ten seconds with a large one pending', async () => {
    const server = await own.start();
    const [late] = openConnections(server.port, 1);
    await fill(server, late, many);
    const startedMs = performance.now();
    const open = () => readMetric(server.adminUrl, 'weir_connections');
    while ((await open()) > 0 && performance.now() - startedMs < 60_000) await sleep(100);
    const seconds = Math.round((performance.now() - startedMs) / 1_000);
    recordMeasurement('P3', 'a large response, never read', '1', `closed after ${seconds} s`);
    expect(await open()).toBe(0);
    late.socket.destroy();
    expect(await server.stop()).toEqual({ code: 0, signal: null });
  });
});
