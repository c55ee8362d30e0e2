/** No request is read as two, and no request is served after the last one of a connection. */

import { connect as connectTls } from 'node:tls';
import { afterAll, describe, expect, test } from 'vitest';
import { CERTIFICATE_A, tlsEnvironment, writeCertificate } from '../support/certificates.ts';
import { errorIn, LONGEST_WINDOW_MS, requestBytes } from '../support/http.ts';
import { gatewayRequestBytes } from '../support/policy-config.ts';
import { sendAndProbe, sendUntilClosed } from '../support/raw-connection.ts';
import { DECIDE_MODES, ROOT_KEY, removeDirectory, temporaryDirectory } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const LIMIT = 1_000;
/** Only a failure takes so long. */
const WAIT_MS = 20_000;
const limited = (identifier: string) => ({ identifier, limit: LIMIT, duration: LONGEST_WINDOW_MS });
const body = (identifier: string) => JSON.stringify(limited(identifier));
const chunks = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n0\r\n`;

/** A check with other headers; a header with the value '' is omitted. */
const checkBytes = (identifier: string, headers: Record<string, string> = {}, text?: string) => {
  return requestBytes({ headers, body: text ?? body(identifier) }).toString('latin1');
};
/** A chunked check, and bytes after its last chunk. */
const chunkedCheck = (identifier: string, after: string, headers: Record<string, string> = {}) => {
  const chunked = { 'Content-Length': '', 'Transfer-Encoding': 'chunked', ...headers };
  return checkBytes(identifier, chunked, chunks(body(identifier))) + after;
};

describe.each(DECIDE_MODES)('decided %s:', (mode) => {
  const args = ['--decide', mode];
  const server = useServer({ args, policies: { gw: { limit: LIMIT } } });

  const used = async (identifier: string, namespace = 'default') => {
    const { remaining } = await server.check({
      ...limited(identifier),
      namespace,
      cost: 0,
    });
    return LIMIT - remaining;
  };
  const usedAtGateway = (address: string) => used(address, 'gw');

  const gatewayCheck = (address: string, headers: Record<string, string> = {}, method = 'GET') => {
    const path = '/v1/check/gw';
    return gatewayRequestBytes(path, { 'X-Forwarded-For': address, ...headers }, method).toString(
      'latin1',
    );
  };

  describe('a request that closes its connection', () => {
    const routes: [string, string, number][] = [
      ['a check of v1', checkBytes('v1', { Connection: 'close' }), 200],
      ['a chunked check', chunkedCheck('chunked', '\r\n'), 200],
      [
        'a check with zeros before its length',
        checkBytes('zeros', { 'Content-Length': `00${body('zeros').length}` }),
        200,
      ],
      ['a wrong body', checkBytes('', { Connection: 'close' }, 'nonsense'), 400],
      ['no body', checkBytes('', {}, ''), 400],
      ['a wrong key', checkBytes('', { Connection: 'close', Authorization: 'Bearer no' }), 401],
      ['an unknown path', `GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`, 404],
      [
        'a page',
        `GET /docs/errors/NOT_FOUND HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n`,
        200,
      ],
      [
        'a list',
        `GET /v1/keys.list HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ROOT_KEY}\r\nConnection: te, close\r\n\r\n`,
        200,
      ],
    ];
    test.each(routes)(
      'gets one response, which announces the close: %s',
      async (_name, bytes, status) => {
        const { text, statuses, isClosed } = await sendUntilClosed(server.port, [bytes], WAIT_MS);
        expect([statuses, isClosed]).toEqual([[status], true]);
        expect(text).toMatch(/\r\nConnection: close\r\n/i);
        expect(text).not.toMatch(/\r\nKeep-Alive:/i);
      },
    );

    test('is the last that is decided or answered, in its packet and in the next', async () => {
      for (const [i, packet] of [true, false].entries()) {
        for (const [j, first] of [
          checkBytes(`first ${i} 0`, { Connection: 'close' }),
          chunkedCheck(`first ${i} 1`, '\r\n'),
          checkBytes('', { Connection: 'close' }, 'nonsense'),
          `GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
        ].entries()) {
          const later = Array.from({ length: 5 }, () => checkBytes(`behind ${i} ${j}`));
          const packets = packet ? [first + later.join('')] : [first, ...later];
          const { statuses, isClosed } = await sendUntilClosed(server.port, packets, WAIT_MS);
          expect([isClosed, statuses.length <= 1]).toEqual([true, true]);
          expect([i, j, await used(`behind ${i} ${j}`)]).toEqual([i, j, 0]);
        }
      }
    });

    test('of a gateway is the last that is decided, with any announced body', async () => {
      const closing: Record<string, string>[] = [
        { Connection: 'close' },
        { 'Transfer-Encoding': 'chunked' },
        { 'Content-Length': '5' },
      ];
      for (const [i, headers] of closing.entries()) {
        const body = ['', '0\r\n\r\n', 'hello'][i];
        const one = gatewayCheck(`192.0.2.${i}`, headers) + body;
        const alone = await sendUntilClosed(server.gatewayPort, [one], WAIT_MS);
        expect([i, alone.statuses, alone.isClosed]).toEqual([i, [200], true]);
        const { isClosed } = await sendUntilClosed(
          server.gatewayPort,
          [one + gatewayCheck(`198.51.100.${i}`)],
          WAIT_MS,
        );
        expect([isClosed, await usedAtGateway(`198.51.100.${i}`)]).toEqual([true, 0]);
      }
    });
  });

  test('a connection stays open after usual requests', async () => {
    const usual = [
      checkBytes('open'),
      checkBytes('open', { Connection: 'keep-alive' }),
      'GET /docs/errors/NOT_FOUND HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n',
      checkBytes('open'),
    ];
    // uWebSockets.js closes a connection with a request after one that a worker has not decided.
    if (mode === 'in-place') {
      const { statuses, isClosed } = await sendAndProbe(server.port, usual.join(''), 4);
      expect([statuses, isClosed]).toEqual([[200, 200, 200, 200], false]);
    }
    const checks = [
      gatewayCheck('203.0.113.1'),
      gatewayCheck('203.0.113.1', {}, 'POST'),
      gatewayCheck('203.0.113.1', { 'Content-Length': '0' }, 'HEAD'),
    ];
    for (const one of checks) {
      const { statuses, isClosed } = await sendAndProbe(server.gatewayPort, one, 1);
      expect([statuses, isClosed]).toEqual([[200], false]);
    }
  });

  test('trailers are not served as a second request, on any listener', async () => {
    const check = requestBytes({ body: body('trailed') }).toString('latin1');
    const gateway = gatewayCheck('203.0.113.2');
    // uWebSockets.js skips two bytes after the last chunk, and reads on.
    for (const trailer of [`X-${check}`, `X-P:${check.slice(1)}`, `X-${gateway}`]) {
      const onPort = await sendUntilClosed(
        server.port,
        [chunkedCheck('trailing', trailer)],
        WAIT_MS,
      );
      expect([onPort.isClosed, onPort.statuses.length <= 1]).toEqual([true, true]);
      const chunked = { 'Transfer-Encoding': 'chunked' };
      const atGateway = `${gatewayCheck('203.0.113.3', chunked, 'POST')}0\r\n${trailer}`;
      const received = await sendUntilClosed(server.gatewayPort, [atGateway], WAIT_MS);
      expect([received.isClosed, received.statuses.length <= 1]).toEqual([true, true]);
    }
    expect([await used('trailed'), await usedAtGateway('203.0.113.2')]).toEqual([0, 0]);
  });

  test('a length of 0 before another, or hidden by a header without a name, does not make two requests', async () => {
    const hidden = checkBytes('hidden');
    const head = `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ROOT_KEY}\r\n`;
    const openings = [
      `${head}Content-Length: 0\r\nContent-Length: ${hidden.length}\r\n\r\n`,
      `${head}: x\r\nContent-Length: ${hidden.length}\r\n\r\n`,
      `${head}Content-Length:\r\nContent-Length: ${hidden.length}\r\n\r\n`,
    ];
    for (const opening of openings) {
      const { statuses, isClosed } = await sendUntilClosed(
        server.port,
        [opening + hidden],
        WAIT_MS,
      );
      expect([isClosed, statuses.includes(200)]).toEqual([true, false]);
    }
    expect(await used('hidden')).toBe(0);
  });

  const ambiguous: [string, Record<string, string>][] = [
    ['two lengths, the first of which is 0', { 'Content-Length': '0', 'content-length': '7' }],
    ['a length that is not a number', { 'Content-Length': 'x' }],
    ['a length with a sign', { 'Content-Length': '+5' }],
    ['two lengths in one header', { 'Content-Length': '5, 5' }],
    ['an encoding besides chunked', { 'Content-Length': '', 'Transfer-Encoding': 'gzip, chunked' }],
    ['an encoding other than chunked', { 'Content-Length': '', 'Transfer-Encoding': 'identity' }],
    [
      'two headers of encodings',
      { 'Content-Length': '', 'Transfer-Encoding': 'chunked', 'transfer-encoding': 'chunked' },
    ],
  ];
  test.each(ambiguous)(
    'a head with %s gets a 400, counts nothing and closes',
    async (name, headers) => {
      const onPort = await sendUntilClosed(server.port, [checkBytes(name, headers, '')], WAIT_MS);
      expect([onPort.text.slice(9, 12), onPort.isClosed]).toEqual(['400', true]);
      expect(await used(name)).toBe(0);
      const address = '203.0.113.9';
      const atGateway = await sendUntilClosed(
        server.gatewayPort,
        [gatewayCheck(address, headers, 'POST')],
        WAIT_MS,
      );
      expect([atGateway.text.slice(9, 12), atGateway.isClosed]).toEqual(['400', true]);
      expect(await usedAtGateway(address)).toBe(0);
    },
  );

  test('HEAD with an ambiguous length gets a 400 without a body', async () => {
    const head = 'HEAD /docs/errors/NOT_FOUND HTTP/1.1\r\nHost: a\r\n';
    const lengths = 'Content-Length: 0\r\nContent-Length: 0\r\n\r\n';
    const { text, isClosed } = await sendUntilClosed(server.port, [head + lengths], WAIT_MS);
    expect([text.slice(9, 12), text.split('\r\n\r\n')[1], isClosed]).toEqual(['400', '', true]);
  });

  test('an error of framing names the header, the values accepted and the value received', async () => {
    const twice = { 'Content-Length': '0', 'content-length': '0' };
    expect(errorIn(await server.send({ headers: twice })).message).toBe(
      'the header Content-Length must be a decimal number of bytes, in one header; got 2 headers',
    );
  });
});

describe('with TLS', () => {
  const files = temporaryDirectory();
  const server = useServer({ env: tlsEnvironment(writeCertificate(files, CERTIFICATE_A)) });
  afterAll(() => removeDirectory(files));

  test('no request is served after one that closes its connection', async () => {
    const sendSecurely = (text: string) => {
      const secure = connectTls({ host: '127.0.0.1', port: server.port, ca: CERTIFICATE_A.cert });
      return sendUntilClosed(secure, [text], WAIT_MS);
    };
    const first = checkBytes('first', { Connection: 'close' });
    expect(await sendSecurely(first)).toMatchObject({ statuses: [200], isClosed: true });
    const transcript = await sendSecurely(first + checkBytes('behind'));
    expect([transcript.isClosed, transcript.statuses.length <= 1]).toEqual([true, true]);
    const query = JSON.stringify({ ...limited('behind'), cost: 0 });
    const { text } = await sendSecurely(checkBytes('', { Connection: 'close' }, query));
    expect(text).toContain(`"remaining":${LIMIT}`);
  });
});
