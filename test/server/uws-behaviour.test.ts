/**
 * The behaviour of uWebSockets.js that weir cannot change, pinned for the package that the server
 * has loaded. docs/security.md documents it.
 */

import { describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, requestBytes } from '../support/http.ts';
import { sendAndProbe, sendUntilClosed } from '../support/raw-connection.ts';
import { useServer } from '../support/test-server.ts';
import { hasOldParser } from '../support/uws-binaries.ts';

const server = useServer();

const checkFields = (identifier: string) => ({
  identifier,
  limit: 10,
  duration: LONGEST_WINDOW_MS,
});
const body = (identifier: string) => JSON.stringify(checkFields(identifier));
const remaining = async (identifier: string) => {
  return (await server.check({ ...checkFields(identifier), cost: 0 })).remaining;
};

/** Only a failure takes so long. */
const WAIT_MS = 20_000;
/** Writes a packet, and reads until the server closes, or for `waitMs`. */
const sendAndListen = (packet: Buffer | string, waitMs = WAIT_MS) => {
  return sendUntilClosed(server.port, [packet], waitMs);
};
/** Writes a packet, and waits for the beginnings of responses. */
const sendAndAwait = (packet: Buffer | string, responseCount = 1) => {
  return sendUntilClosed(server.port, [packet], 0, 1, responseCount);
};

/** A chunked check, with these bytes after the head. */
const chunkedRequest = (after: string) => {
  const headers = { 'Content-Length': '', 'Transfer-Encoding': 'chunked' };
  return `${requestBytes({ headers })}${after}`;
};
const formatChunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;

describe('uWebSockets.js itself', () => {
  const rejected: [string, string, Buffer | string][] = [
    [
      'Content-Length and Transfer-Encoding together',
      '400',
      requestBytes({ headers: { 'Transfer-Encoding': 'chunked' }, body: body('rejected') }),
    ],
    ['no Host', '400', requestBytes({ headers: { Host: '' }, body: body('rejected') })],
    [
      'a Content-Length that is not a number',
      '400',
      requestBytes({ headers: { 'Content-Length': 'abc' }, body: body('rejected') }),
    ],
    [
      'a negative Content-Length',
      '400',
      requestBytes({ headers: { 'Content-Length': '-5' }, body: body('rejected') }),
    ],
    [
      'a chunk without a size',
      '400',
      `${requestBytes({
        headers: { 'Content-Length': '', 'Transfer-Encoding': 'chunked' },
      })}zz\r\n${body('rejected')}`,
    ],
    ['HTTP/1.0', '505', 'GET / HTTP/1.0\r\nHost: a\r\n\r\n'],
    ['the preface of HTTP/2', '505', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    [
      'a head of more than 32 KiB',
      '431',
      requestBytes({ headers: { Cookie: 'c'.repeat(33_000) }, body: body('rejected') }),
    ],
  ];
  test.each(rejected)(
    'rejects %s with a %s of its own, and closes',
    async (_what, status, bytes) => {
      const { text, isClosed } = await sendAndListen(bytes);
      expect([text.slice(9, 12), isClosed]).toEqual([status, true]);
      expect(text).not.toContain('X-Request-Id');
      expect(await remaining('rejected')).toBe(10);
    },
  );

  test('uses the first of two Content-Lengths if it begins with 1 to 9', async () => {
    const text = body('two lengths');
    const right = String(text.length);
    const both = (first: string, second: string) => {
      const headers = { 'Content-Length': first, 'content-length': second };
      return requestBytes({ headers, body: text });
    };
    expect((await sendAndAwait(both(right, '3'))).statuses).toEqual([200]);
    expect((await sendAndListen(both('3', right))).text).not.toContain('200 OK');
    expect(await remaining('two lengths')).toBe(9);
  });

  test('hides all headers after one without a name', async () => {
    const hidden = requestBytes({ body: body('hidden') });
    // A GET without a length has no body, so a hidden length looks like none.
    const get = `GET /docs/errors/NOT_FOUND HTTP/1.1\r\nHost: a\r\n: x\r\nContent-Length: ${hidden.length}\r\n\r\n`;
    expect((await sendAndAwait(get + hidden, 2)).statuses).toEqual([200, 200]);
    expect(await remaining('hidden')).toBe(9);
  });

  test('of uws-pack only: accepts two Host headers, and never responds to a blank before a colon', async () => {
    const hosts = requestBytes({ headers: { host: 'b' }, body: body('hosts') });
    const blank = requestBytes({ headers: { 'X ': 'y' }, body: body('blank') });
    const two = await (hasOldParser ? sendAndProbe(server.port, hosts, 1) : sendAndListen(hosts));
    const one = await sendAndListen(blank, hasOldParser ? 500 : WAIT_MS);
    expect([two.text.slice(9, 12), one.text.slice(9, 12)]).toEqual(
      hasOldParser ? ['200', ''] : ['400', '400'],
    );
    expect([two.isClosed, one.isClosed]).toEqual(hasOldParser ? [false, false] : [true, true]);
    expect([await remaining('hosts'), await remaining('blank')]).toEqual([
      hasOldParser ? 9 : 10,
      10,
    ]);
  });

  test('accepts and ignores a preamble of the PROXY protocol version 2, but not version 1', async () => {
    const v2 = '\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\x04\xd2\x1f\x90';
    const v1 = 'PROXY TCP4 127.0.0.1 127.0.0.1 1234 7070\r\n';
    const request = requestBytes({ body: body('proxied') }).toString('latin1');
    expect((await sendAndAwait(v2 + request)).statuses).toEqual([200]);
    expect((await sendAndAwait(v1 + request)).text.slice(9, 12)).toBe('505');
    expect(await remaining('proxied')).toBe(9);
  });

  test('reads bytes outside ASCII at both ends of a header as blanks', async () => {
    const key = (before: string, after: string) => {
      const head = requestBytes({ body: body('bytes') }).toString('latin1');
      return Buffer.from(head.replace(/(Bearer )(\S+)/, `${before}$1$2${after}`), 'latin1');
    };
    for (const [before, after] of [
      ['\xe9', ''],
      ['', '\xc3\xa9'],
    ]) {
      expect((await sendAndAwait(key(before, after))).text.slice(9, 12)).toBe('200');
    }
    expect((await sendAndAwait(key('', '\xe9x'))).text.slice(9, 12)).toBe('401');
  });

  test('responds to complete requests before a broken one, except in uws-pack', async () => {
    const responded = hasOldParser ? 505 : 200;
    for (const [i, tail] of ['POST /v1/ratelimits.limit HTT', 'POST '].entries()) {
      const packet = `${requestBytes({ body: body(`dropped ${i}`) })}${tail}`;
      const { statuses } = await sendAndAwait(packet);
      expect(statuses).toEqual([responded]);
      // It was decided and counted before the rest of the packet was parsed.
      expect(await remaining(`dropped ${i}`)).toBe(9);
    }
  });

  test('drops the responses to complete requests before one of HTTP/1.0', async () => {
    const packet = `${requestBytes({ body: body('before') })}GET / HTTP/1.0\r\nHost: a\r\n\r\n`;
    const { text, isClosed } = await sendAndListen(packet);
    expect([text.slice(9, 12), text.includes('200 OK'), isClosed]).toEqual(['505', false, true]);
    expect(await remaining('before')).toBe(9);
  });

  // The older parser sends a 505 when the end of a packet splits a request line.
  test.runIf(!hasOldParser)('responds to every request of a pipeline of 1 MiB', async () => {
    const one = requestBytes({ body: body('pipeline') });
    const count = Math.ceil(2 ** 20 / one.length);
    const answersOf = async () => {
      const { text } = await sendAndAwait(Buffer.concat(Array(count).fill(one)), count);
      return text.split('HTTP/1.1 200 OK').length - 1;
    };
    expect(await answersOf()).toBe(count);
  });

  const sizes: [string, string, number][] = [
    [
      'text after the size of a chunk',
      `${formatChunk(body('text')).replace('\r', ' hello\r')}0\r\n\r\n`,
      200,
    ],
    [
      'other bytes at the end of a chunk',
      `${formatChunk(body('ends')).slice(0, -2)}XX0\r\n\r\n`,
      200,
    ],
    ['an empty line as a size of 0', `\r\n${body('empty')}`, 400],
    ['a body without its last line', `${formatChunk(body('last'))}0\r\n`, 200],
  ];
  test.each(sizes)(
    'accepts %s in a chunked body; the connection closes',
    async (_what, bytes, status) => {
      const { statuses, isClosed } = await sendAndListen(chunkedRequest(bytes));
      expect([statuses, isClosed]).toEqual([[status], true]);
    },
  );

  test('reads g as a hexadecimal digit of value 16 in the size of a chunk', async () => {
    const text = body('sixteen').padEnd(16 * 16 + 16);
    const { statuses } = await sendAndAwait(chunkedRequest(`gg\r\n${text}\r\n0\r\n\r\n`));
    expect(statuses).toEqual([200]);
    expect(await remaining('sixteen')).toBe(9);
  });

  test('responds to trailers with a 505 after the check was counted', async () => {
    const received = await sendAndAwait(
      chunkedRequest(`${formatChunk(body('trailers'))}0\r\nX: y\r\n\r\n`),
    );
    expect(received.text.slice(9, 12)).toBe('505');
    expect(await remaining('trailers')).toBe(9);
  });
});
