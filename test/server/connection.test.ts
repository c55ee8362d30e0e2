import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { exchange, type LimitResponse, LONGEST_WINDOW_MS, requestBytes } from '../support/http.ts';
import {
  DECIDE_MODES,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { hasOldParser } from '../support/uws-binaries.ts';

describe.each(DECIDE_MODES)('decided %s:', (mode) => {
  let server: ServerProcess;
  const dataDir = temporaryDirectory();

  beforeAll(async () => {
    server = await startServer(dataDir, {
      args: ['--acceptors', '2', '--counters', '65536', '--decide', mode],
    });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  const body = (identifier: string, limit = 1_000) => {
    return JSON.stringify({ identifier, limit, duration: LONGEST_WINDOW_MS });
  };
  const remainingOf = (text: string) => (JSON.parse(text) as LimitResponse).remaining;

  /** Chunked, with every byte of the body in a chunk of its own. */
  function chunked(text: string): Buffer {
    const head = requestBytes({
      headers: { 'Content-Length': '', 'Transfer-Encoding': 'chunked' },
    });
    const chunks = [...Buffer.from(text)].map((byte) =>
      Buffer.concat([Buffer.from('1\r\n'), Buffer.of(byte), Buffer.from('\r\n')]),
    );
    return Buffer.concat([head, ...chunks, Buffer.from('0\r\n\r\n')]);
  }

  describe('a connection', () => {
    test('serves one request after another, on paths with doubled slashes too', async () => {
      const paths = ['/v1/ratelimits.limit', '//v1/ratelimits.limit', '//v1///ratelimits.limit'];
      const pieces = [...paths, ...paths].map((path) =>
        requestBytes({ path, body: body('slashes') }),
      );
      const answers = await exchange(server.port, pieces, 6, true);
      expect(answers.map((answer) => remainingOf(answer.body))).toEqual([
        999, 998, 997, 996, 995, 994,
      ]);
      const query = requestBytes({ path: '/v1/ratelimits.limit?a=b', body: body('slashes') });
      expect((await exchange(server.port, [query]))[0].status).toBe(200);
    });
  });

  describe('a body', () => {
    test('split at every byte gives the same answer', async () => {
      const text = body('split-é-😀');
      const whole = requestBytes({ body: text });
      const start = whole.length - Buffer.byteLength(text);
      let expected = 1_000;
      for (let at = start; at <= whole.length; at++) {
        const pieces = [whole.subarray(0, at), whole.subarray(at)].filter(
          (piece) => piece.length > 0,
        );
        const [answer] = await exchange(server.port, pieces);
        expected--;
        expect([answer.status, remainingOf(answer.body)]).toEqual([200, expected]);
      }
    });

    test('that comes in a packet for each byte gives the same answer', async () => {
      const text = body('bytewise');
      const whole = requestBytes({ body: text });
      const start = whole.length - text.length;
      const pieces = [
        whole.subarray(0, start),
        ...[...whole.subarray(start)].map((byte) => Buffer.of(byte)),
      ];
      const [answer] = await exchange(server.port, pieces);
      expect(remainingOf(answer.body)).toBe(999);
    });

    test('that is chunked, a byte a chunk, in one packet or many, gives the same answer', async () => {
      const whole = chunked(body('chunked-é'));
      const head = whole.indexOf('\r\n\r\n') + 4;
      expect(remainingOf((await exchange(server.port, [whole]))[0].body)).toBe(999);
      for (let at = head, expected = 998; at < whole.length; at += 7, expected--) {
        const [answer] = await exchange(server.port, [whole.subarray(0, at), whole.subarray(at)]);
        expect([answer.status, remainingOf(answer.body)]).toEqual([200, expected]);
      }
    });

    test('of no length is answered, wherever its head is split behind the first line', async () => {
      const empty = requestBytes({ body: '' });
      for (let at = empty.indexOf('\r\n') + 2; at <= empty.length; at++) {
        const pieces = [empty.subarray(0, at), empty.subarray(at)];
        const [answer] = await exchange(server.port, pieces);
        expect([at, answer.status]).toEqual([at, 400]);
        expect(answer.body).toContain('it is empty');
      }
    });

    test('that is chunked and too large is answered with a 413', async () => {
      const text = JSON.stringify({
        identifier: 'large',
        limit: 1,
        duration: 1_000,
        meta: { pad: 'x'.repeat(70_000) },
      });
      const [answer] = await exchange(server.port, [chunked(text)]);
      expect(answer.status).toBe(413);
      expect(answer.headers.connection).toBe('close');
    });

    test('that does not come whole charges nothing', async () => {
      const whole = requestBytes({ body: body('aborted') });
      for (const cut of [1, 10, 30]) {
        const half = exchange(server.port, [whole.subarray(0, whole.length - cut)]);
        const late = new Promise((resolve) => setTimeout(() => resolve('none'), 150));
        expect(await Promise.race([half.catch(() => 'none'), late])).toBe('none');
      }
      const [answer] = await exchange(server.port, [whole]);
      expect(remainingOf(answer.body)).toBe(999);
    });
  });

  test('bodies that come at the same time, in pieces, or never whole, are kept apart', async () => {
    // On 300 connections, of which every third ends before its body does, and of the
    // others every fifth is too large. Which piece comes when is as it happens.
    const texts = Array.from({ length: 300 }, (_, i) => {
      return i % 15 === 1 ? body('x'.repeat(70_000)) : body(`beside_${i}`, 1_000 + i);
    });
    const answered = texts.map(async (text, i) => {
      const bytes = requestBytes({ body: text });
      const head = bytes.indexOf('\r\n\r\n') + 4;
      const end = i % 3 === 0 ? bytes.length - 1 - (i % 40) : bytes.length;
      const length = Math.ceil(text.length / (2 + (i % 7)));
      const pieces = [bytes.subarray(0, head)];
      for (let at = head; at < end; at += length) {
        pieces.push(bytes.subarray(at, Math.min(at + length, end)));
      }
      if (i % 3 !== 0) return (await exchange(server.port, pieces))[0];
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => {});
      for (const one of pieces) {
        await new Promise((sent) => socket.write(one, sent));
        await new Promise((next) => setImmediate(next));
      }
      socket.destroy();
      return undefined;
    });
    const answers = await Promise.all(answered);
    for (const [i, answer] of answers.entries()) {
      if (i % 3 === 0) continue;
      expect([i, answer?.status]).toEqual([i, i % 15 === 1 ? 413 : 200]);
      if (i % 15 !== 1) expect(remainingOf(answer?.body ?? '')).toBe(1_000 + i - 1);
    }
    // Nothing of those that were cut off was counted.
    for (let i = 0; i < 300; i += 3) {
      const [answer] = await exchange(server.port, [requestBytes({ body: texts[i] })]);
      expect(remainingOf(answer.body)).toBe(1_000 + i - 1);
    }
  });

  describe('bodies in pieces of one byte', () => {
    test.runIf(process.platform === 'linux')('take no more memory than they are long', async () => {
      const rss = () => {
        const status = readFileSync(`/proc/${server.child.pid}/status`, 'utf8');
        return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
      };
      const head = requestBytes({
        headers: { 'Content-Length': '', 'Transfer-Encoding': 'chunked' },
      });
      const pieces = Buffer.from('1\r\n{\r\n'.repeat(65_000));
      const before = rss();
      const sockets = Array.from({ length: 20 }, () => connect(server.port, '127.0.0.1'));
      for (const socket of sockets) {
        socket.on('error', () => {});
        socket.write(Buffer.concat([head, pieces]));
      }
      // When all of it was read, a check on each connection's acceptor is answered.
      await Promise.all(sockets.map((socket) => once(socket, 'drain').catch(() => {})));
      for (let i = 0; i < 20; i++)
        await exchange(server.port, [requestBytes({ body: body('beside') })]);
      expect(rss() - before).toBeLessThan(100);
      for (const socket of sockets) socket.destroy();
    });
  });

  describe('a head', () => {
    test('split at any byte gets the same answer; uws-pack may answer 505 at eleven of them', async () => {
      const whole = requestBytes({ body: body('head') });
      const end = whole.indexOf('\r\n\r\n') + 4;
      const refused: number[] = [];
      let expected = 1_000;
      for (let at = 1; at < end; at++) {
        const [answer] = await exchange(server.port, [whole.subarray(0, at), whole.subarray(at)]);
        if (answer.status === 505) {
          refused.push(at);
          continue;
        }
        expected--;
        expect([at, answer.status, remainingOf(answer.body)]).toEqual([at, 200, expected]);
      }
      // Behind "POST ", and inside " HTTP/1.1\r"; nothing was charged.
      const version = whole.indexOf(' HTTP/1.1');
      const known = [5, ...Array.from({ length: 10 }, (_, i) => version + 1 + i)];
      expect(refused.filter((at) => !hasOldParser || !known.includes(at))).toEqual([]);
    });

    test('with 16 KiB of cookies is read', async () => {
      const headers = { Cookie: 'c'.repeat(16_384) };
      const [answer] = await exchange(server.port, [
        requestBytes({ headers, body: body('cookies') }),
      ]);
      expect(answer.status).toBe(200);
    });
  });
});
