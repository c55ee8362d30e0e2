/** What uWebSockets.js decides before any handler of ours is asked: pinned, and in the README. */

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { check, LASTING_MS, requestBytes } from '../support/http.ts';
import {
  type Running,
  removeDirectory,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';

let server: Running;
const dataDir = temporaryDirectory();
beforeAll(async () => {
  server = await startServer(dataDir, { args: ['--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

const limited = (identifier: string) => ({ identifier, limit: 10, duration: LASTING_MS });
const body = (identifier: string) => JSON.stringify(limited(identifier));
const remaining = async (identifier: string) => {
  return (await check(server.port, { ...limited(identifier), cost: 0 })).remaining;
};

interface Heard {
  text: string;
  closed: boolean;
}

/** Writes pieces, one every `everyMs`, and listens until the server closes, or for `waitMs`. */
function listen(pieces: (Buffer | string)[], waitMs: number, everyMs = 0): Promise<Heard> {
  return new Promise((resolve) => {
    const socket = connect(server.port, '127.0.0.1');
    let text = '';
    let at = 0;
    const writing = setInterval(() => at < pieces.length && socket.write(pieces[at++]), everyMs);
    const finish = (closed: boolean) => {
      clearInterval(writing);
      clearTimeout(waiting);
      socket.destroy();
      resolve({ text, closed });
    };
    const waiting = setTimeout(() => finish(false), waitMs);
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      text += data;
    });
    socket.on('error', () => finish(true));
    socket.on('end', () => finish(true));
  });
}

describe('uWebSockets.js by itself', () => {
  const refused: [string, string, Buffer | string][] = [
    [
      'Content-Length and Transfer-Encoding together',
      '400',
      requestBytes({ headers: { 'Transfer-Encoding': 'chunked' }, body: body('refused') }),
    ],
    ['no Host', '400', requestBytes({ headers: { Host: '' }, body: body('refused') })],
    [
      'a Content-Length that is no number',
      '400',
      requestBytes({ headers: { 'Content-Length': 'abc' }, body: body('refused') }),
    ],
    [
      'a negative Content-Length',
      '400',
      requestBytes({ headers: { 'Content-Length': '-5' }, body: body('refused') }),
    ],
    [
      'a chunk without a size',
      '400',
      `${requestBytes({
        headers: { 'Content-Length': '', 'Transfer-Encoding': 'chunked' },
      })}zz\r\n${body('refused')}`,
    ],
    ['HTTP/1.0', '505', 'GET / HTTP/1.0\r\nHost: a\r\n\r\n'],
    ['the preface of HTTP/2', '505', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    [
      'a head of more than 32 KiB',
      '431',
      requestBytes({ headers: { Cookie: 'c'.repeat(33_000) }, body: body('refused') }),
    ],
  ];
  test.each(refused)(
    'refuses %s with a %s of its own, and closes',
    async (_what, status, bytes) => {
      const { text, closed } = await listen([bytes], 5_000);
      expect([text.slice(9, 12), closed]).toEqual([status, true]);
      expect(text).not.toContain('X-Request-Id');
      expect(await remaining('refused')).toBe(10);
    },
  );

  test('takes the first of two Content-Lengths', async () => {
    const text = body('two lengths');
    const right = String(text.length);
    const both = (first: string, second: string) => {
      const headers = { 'Content-Length': first, 'content-length': second };
      return requestBytes({ headers, body: text });
    };
    expect((await listen([both(right, '3')], 500)).text.slice(9, 12)).toBe('200');
    expect((await listen([both('3', right)], 500)).text).not.toContain('200 OK');
    expect(await remaining('two lengths')).toBe(9);
  });

  test('takes bytes beyond ASCII at the ends of a header for blanks', async () => {
    const key = (before: string, after: string) => {
      const head = requestBytes({ body: body('bytes') }).toString('latin1');
      return Buffer.from(head.replace(/(Bearer )(\S+)/, `${before}$1$2${after}`), 'latin1');
    };
    for (const [before, after] of [
      ['\xe9', ''],
      ['', '\xc3\xa9'],
    ]) {
      expect((await listen([key(before, after)], 500)).text.slice(9, 12)).toBe('200');
    }
    expect((await listen([key('', '\xe9x')], 500)).text.slice(9, 12)).toBe('401');
  });

  test('drops the answers of whole requests that share a packet with a broken one', async () => {
    const packet = (identifier: string, tail: string) => {
      return `${requestBytes({ body: body(identifier) })}${tail}`;
    };
    const tails = ['POST /v1/ratelimits.limit HTT', 'POST ', 'GET / HTTP/1.0\r\nHost: a\r\n\r\n'];
    for (const [i, tail] of tails.entries()) {
      const { text, closed } = await listen([packet(`dropped ${i}`, tail)], 5_000);
      expect([text.slice(9, 12), text.includes('200 OK'), closed]).toEqual(['505', false, true]);
      // It was decided and counted before the rest of the packet was looked at.
      expect(await remaining(`dropped ${i}`)).toBe(9);
    }
  });

  test('answers trailers with a 505 behind a check that was counted', async () => {
    const headers = { 'Content-Length': '', 'Transfer-Encoding': 'chunked' };
    const text = body('trailers');
    const chunk = `${text.length.toString(16)}\r\n${text}\r\n0\r\nX: y\r\n\r\n`;
    expect((await listen([`${requestBytes({ headers })}${chunk}`], 500)).text.slice(9, 12)).toBe(
      '505',
    );
    expect(await remaining('trailers')).toBe(9);
  });

  test('closes what is idle or slow after about 10 s, and nothing is charged', async () => {
    const whole = requestBytes({ body: body('slow') });
    const cut = whole.length - 60;
    const slowly = [whole.subarray(0, cut), ...[...whole.subarray(cut)].map((b) => Buffer.of(b))];
    const [idle, slow] = await Promise.all([
      listen([requestBytes({ body: body('idle') })], 20_000),
      listen(slowly, 20_000, 500),
    ]);
    expect([idle.text.slice(9, 12), idle.closed]).toEqual(['200', true]);
    expect(slow).toEqual({ text: '', closed: true });
    expect([await remaining('idle'), await remaining('slow')]).toEqual([9, 10]);
  });
});
