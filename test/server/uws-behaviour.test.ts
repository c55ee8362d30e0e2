/**
 * The behaviour of uWebSockets.js that weir cannot change, pinned for the package that the server
 * has loaded. docs/security.md documents it.
 */

import { describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, requestBytes } from '../support/http.ts';
import { sendUntilClosed } from '../support/raw-connection.ts';
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

  test.each([
    ['HTTP/1.0', 'GET / HTTP/1.0\r\nHost: a\r\n\r\n'],
    ['the target *', 'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['an absolute URL', 'GET http://a/v1/check/a HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['trailers', chunkedRequest(`${formatChunk(body('named'))}0\r\nX: y\r\n\r\n`)],
  ])('names HTTP/1.0 in its 505 for %s', async (_what, bytes) => {
    const { text } = await sendAndListen(bytes);
    expect(text).toContain('This server does not support HTTP/1.0.');
  });

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

  const check = (identifier: string) => {
    return requestBytes({ body: body(identifier) }).toString('latin1');
  };
  const around = (identifier: string, before: string, after: string) => {
    return check(identifier).replace(/(Bearer )(\S+)/, `${before}$1$2${after}`);
  };
  const PROXY_1 = 'PROXY TCP4 127.0.0.1 127.0.0.1 1234 7070\r\n';
  const PROXY_2 = '\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\x04\xd2\x1f\x90';
  const twoHosts = requestBytes({ headers: { host: 'b' }, body: body('hosts') }).toString('latin1');
  /** A check that is complete is counted before the rest of its packet is parsed. */
  const broken = hasOldParser ? '505' : '200';
  const inChunks = (identifier: string, after: string) => {
    return chunkedRequest(`${formatChunk(body(identifier))}${after}`);
  };
  const chunkOf272 = chunkedRequest(`gg\r\n${body('digit').padEnd(16 * 16 + 16)}\r\n0\r\n\r\n`);
  test.each<[what: string, status: string, identifier: string, counted: 0 | 1, packet: string]>([
    ['a preamble of the PROXY protocol version 2', '200', 'v2', 1, PROXY_2 + check('v2')],
    ['a preamble of version 1', '505', 'v1', 0, PROXY_1 + check('v1')],
    // Blanks at both ends of a header.
    ['a byte outside ASCII before a header', '200', 'before', 1, around('before', '\xe9', '')],
    ['bytes outside ASCII after a header', '200', 'after', 1, around('after', '', '\xc3\xa9')],
    ['such bytes in a header', '401', 'in', 0, around('in', '', '\xe9x')],
    ['two Host headers', hasOldParser ? '200' : '400', 'hosts', hasOldParser ? 1 : 0, twoHosts],
    ['a check and a broken request', broken, 'broken', 1, `${check('broken')}POST /v1/rate HTT`],
    ['a check and a broken method', broken, 'method', 1, `${check('method')}POST `],
    ['the digit g, with the value 16, in the size of a chunk', '200', 'digit', 1, chunkOf272],
    ['trailers', '505', 'trailers', 1, inChunks('trailers', '0\r\nX: y\r\n\r\n')],
  ])('answers %s with %s', async (_what, status, identifier, counted, packet) => {
    const { text } = await sendAndAwait(Buffer.from(packet, 'latin1'));
    expect([text.slice(9, 12), await remaining(identifier)]).toEqual([status, 10 - counted]);
  });

  test('drops the responses to complete requests before one of HTTP/1.0', async () => {
    const packet = `${check('dropped')}GET / HTTP/1.0\r\nHost: a\r\n\r\n`;
    const { text, isClosed } = await sendAndListen(packet);
    expect([text.slice(9, 12), text.includes('200 OK'), isClosed]).toEqual(['505', false, true]);
    expect(await remaining('dropped')).toBe(9);
  });

  test.each([
    [
      'text after the size of a chunk',
      formatChunk(body('a')).replace('\r', ' hello\r'),
      '0\r\n\r\n',
      200,
    ],
    ['other bytes at the end of a chunk', formatChunk(body('b')).slice(0, -2), 'XX0\r\n\r\n', 200],
    ['an empty line as a size of 0', '\r\n', body('c'), 400],
    ['a body without its last line', formatChunk(body('d')), '0\r\n', 200],
  ])('accepts %s in a chunked body; the connection closes', async (_what, chunk, end, status) => {
    const { statuses, isClosed } = await sendAndListen(chunkedRequest(chunk + end));
    expect([statuses, isClosed]).toEqual([[status], true]);
  });
});
