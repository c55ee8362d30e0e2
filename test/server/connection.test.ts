import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { checkBody, exchange, remainingIn, requestBytes } from '../support/http.ts';
import { DECIDE_MODES } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { hasOldParser } from '../support/uws-binaries.ts';

describe.each(DECIDE_MODES)('decided %s:', (mode) => {
  const server = useServer({ args: ['--acceptors', '2', '--decide', mode] });

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
    test('serves one request after another, also on paths with doubled slashes', async () => {
      const paths = ['/v1/ratelimits.limit', '//v1/ratelimits.limit', '//v1///ratelimits.limit'];
      const packets = [...paths, ...paths].map((path) =>
        requestBytes({ path, body: checkBody('slashes') }),
      );
      const responses = await exchange(server.port, packets, 6, true);
      expect(responses.map(remainingIn)).toEqual([999, 998, 997, 996, 995, 994]);
      const query = requestBytes({ path: '/v1/ratelimits.limit?a=b', body: checkBody('slashes') });
      expect((await exchange(server.port, [query]))[0].status).toBe(200);
    });
  });

  describe('a body', () => {
    test('split at any byte gets the same response', async () => {
      const text = checkBody('split-é-😀');
      const whole = requestBytes({ body: text });
      const start = whole.length - Buffer.byteLength(text);
      let expected = 1_000;
      for (let at = start; at <= whole.length; at++) {
        const packets = [whole.subarray(0, at), whole.subarray(at)].filter(
          (packet) => packet.length > 0,
        );
        const [response] = await exchange(server.port, packets);
        expected--;
        expect([response.status, remainingIn(response)]).toEqual([200, expected]);
      }
    });

    test('in chunks of one byte, in one packet or several, gets the same response', async () => {
      const whole = chunked(checkBody('chunked-é'));
      const head = whole.indexOf('\r\n\r\n') + 4;
      expect(remainingIn((await exchange(server.port, [whole]))[0])).toBe(999);
      for (let at = head, expected = 998; at < whole.length; at += 7, expected--) {
        const [response] = await exchange(server.port, [whole.subarray(0, at), whole.subarray(at)]);
        expect([response.status, remainingIn(response)]).toEqual([200, expected]);
      }
    });

    test('of length 0 gets a response, wherever its head is split after the request line', async () => {
      const empty = requestBytes({ body: '' });
      for (let at = empty.indexOf('\r\n') + 2; at <= empty.length; at++) {
        const packets = [empty.subarray(0, at), empty.subarray(at)];
        const [response] = await exchange(server.port, packets);
        expect([at, response.status]).toEqual([at, 400]);
        expect(response.body).toContain('it is empty');
      }
    });

    test('that is chunked and too large gets a 413', async () => {
      const text = JSON.stringify({
        identifier: 'large',
        limit: 1,
        duration: 1_000,
        meta: { pad: 'x'.repeat(70_000) },
      });
      const [response] = await exchange(server.port, [chunked(text)]);
      expect(response.status).toBe(413);
      expect(response.headers.connection).toBe('close');
    });

    test('that is incomplete counts nothing', async () => {
      const whole = requestBytes({ body: checkBody('aborted') });
      for (const cut of [1, 10, 30]) {
        const socket = connect(server.port, '127.0.0.1');
        socket.write(whole.subarray(0, whole.length - cut));
        // The server closes its side after it has read the bytes and the end.
        socket.end();
        let received = '';
        for await (const data of socket) received += data;
        expect(received).toBe('');
      }
      const [response] = await exchange(server.port, [whole]);
      expect(remainingIn(response)).toBe(999);
    });
  });

  test('concurrent bodies in chunks, complete or not, are not mixed up', async () => {
    // Every third of 60 connections ends before its body, and every fifth of the others is too
    // large. The order of the packets is not fixed.
    const texts = Array.from({ length: 60 }, (_, i) => {
      return i % 15 === 1 ? checkBody('x'.repeat(70_000)) : checkBody(`beside_${i}`, 1_000 + i);
    });
    const responded = texts.map(async (text, i) => {
      const bytes = requestBytes({ body: text });
      const head = bytes.indexOf('\r\n\r\n') + 4;
      const end = i % 3 === 0 ? bytes.length - 1 - (i % 40) : bytes.length;
      const length = Math.ceil(text.length / (2 + (i % 7)));
      const packets = [bytes.subarray(0, head)];
      for (let at = head; at < end; at += length) {
        packets.push(bytes.subarray(at, Math.min(at + length, end)));
      }
      if (i % 3 !== 0) return (await exchange(server.port, packets))[0];
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => {});
      for (const one of packets) {
        await new Promise((sent) => socket.write(one, sent));
        await new Promise((next) => setImmediate(next));
      }
      socket.destroy();
      return undefined;
    });
    const responses = await Promise.all(responded);
    for (const [i, response] of responses.entries()) {
      if (i % 3 === 0) continue;
      expect([i, response?.status]).toEqual([i, i % 15 === 1 ? 413 : 200]);
      if (i % 15 !== 1) expect(remainingIn(response!)).toBe(1_000 + i - 1);
    }
    // No incomplete body was counted.
    for (let i = 0; i < 60; i += 3) {
      const [response] = await exchange(server.port, [requestBytes({ body: texts[i] })]);
      expect(remainingIn(response)).toBe(1_000 + i - 1);
    }
  });

  describe('a head', () => {
    test('split at any byte gets the same response; uws-pack may send a 505 for eleven of them', async () => {
      const whole = requestBytes({ body: checkBody('head') });
      const end = whole.indexOf('\r\n\r\n') + 4;
      const rejected: number[] = [];
      let expected = 1_000;
      for (let at = 1; at < end; at++) {
        const [response] = await exchange(server.port, [whole.subarray(0, at), whole.subarray(at)]);
        if (response.status === 505) {
          rejected.push(at);
          continue;
        }
        expected--;
        expect([at, response.status, remainingIn(response)]).toEqual([at, 200, expected]);
      }
      // After "POST " and inside " HTTP/1.1\r"; nothing was counted.
      const version = whole.indexOf(' HTTP/1.1');
      const known = [5, ...Array.from({ length: 10 }, (_, i) => version + 1 + i)];
      expect(rejected.filter((at) => !hasOldParser || !known.includes(at))).toEqual([]);
    });

    test('with 16 KiB of cookies is accepted', async () => {
      const headers = { Cookie: 'c'.repeat(16_384) };
      const [response] = await exchange(server.port, [
        requestBytes({ headers, body: checkBody('cookies') }),
      ]);
      expect(response.status).toBe(200);
    });
  });
});
