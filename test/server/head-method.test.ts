/** HEAD gets the head of the response to GET, with its Content-Length, and no body. */

import { beforeAll, describe, expect, test } from 'vitest';
import { exchange, type ParsedResponse } from '../support/http.ts';
import { forwardedFor, gatewayRequestBytes, sendGatewayCheck } from '../support/policy-config.ts';
import { sendUntilClosed } from '../support/raw-connection.ts';
import { DECIDE_MODES, ROOT_KEY } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

/** The name of each response, the path and the headers of its request. */
const WITH_BODY: [string, string, Record<string, string>?][] = [
  ['a documentation page', '/docs/errors/NOT_FOUND'],
  ['a documentation page, by a path with doubled slashes', '//docs/errors/NOT_FOUND'],
  ['an unknown path', '/nowhere'],
  ['an unknown path of v2', '/v2/nowhere'],
  ['a path that accepts another method', '/v1/ratelimits.limit'],
  ['a path of v2 that accepts another method', '/v2/ratelimit.limit'],
  ['a check of a gateway without a key', '/v1/check/denied', forwardedFor('10.0.0.1')],
  ['a check of an unknown policy', '/v1/check/unknown', { 'X-Weir-Key': ROOT_KEY }],
  [
    'a denied check of a gateway',
    '/v1/check/denied',
    { 'X-Weir-Key': ROOT_KEY, ...forwardedFor('10.0.0.1') },
  ],
];
const WITHOUT_BODY: [string, string][] = [
  ['an allowed check of a gateway', '/v1/check/allowed'],
  ['an allowed check of nginx', '/v1/auth-request/allowed'],
  ['a denied check of nginx', '/v1/auth-request/denied'],
];

describe.each(DECIDE_MODES)('decided %s, HEAD of', (mode) => {
  const policies = { denied: { limit: 1 }, allowed: { limit: 1_000 } };
  const server = useServer({ args: ['--decide', mode], policies });
  const check = (path: string, method?: string) => {
    return sendGatewayCheck(server.gatewayPort, path, forwardedFor('10.0.0.1'), method);
  };
  // From now on, the policy "denied" denies every check of this address.
  beforeAll(() => check('/v1/check/denied'));

  /** The responses to HEAD, GET and HEAD on one connection: in one packet, or one by one. */
  async function headAndGet(path: string, headers: Record<string, string>, isSequential: boolean) {
    const methods = ['HEAD', 'GET', 'HEAD'];
    const requests = methods.map((method) => gatewayRequestBytes(path, headers, method));
    const packets = isSequential ? requests : [Buffer.concat(requests)];
    return exchange(server.port, packets, 3, isSequential, methods);
  }

  /** A request id may be a digit longer than the one before. */
  const lengthWithoutId = ({ headers }: ParsedResponse) => {
    return Number(headers['content-length']) - (headers['x-request-id'] ?? '').length;
  };

  test.each(WITH_BODY)(
    '%s has the Content-Length of GET, and the next request gets its own response',
    async (_, path, headers = {}) => {
      // uWebSockets.js closes a connection that sends a request before a worker has decided.
      const isDecided = path === '/v1/check/denied' && headers['X-Weir-Key'] !== undefined;
      const orders = mode === 'worker' && isDecided ? [true] : [false, true];
      for (const isSequential of orders) {
        const [head, get, again] = await headAndGet(path, headers, isSequential);
        expect(get.body).not.toBe('');
        for (const { status, headers } of [head, again]) {
          expect([status, headers['content-type']]).toEqual([
            get.status,
            get.headers['content-type'],
          ]);
          expect(headers.connection).toBeUndefined();
        }
        expect([head, again].map(lengthWithoutId)).toEqual([get, get].map(lengthWithoutId));
      }
    },
  );

  test.each(WITHOUT_BODY)('%s has the Content-Length 0, as for GET', async (_, path) => {
    for (const method of ['HEAD', 'GET']) {
      const { headers } = await check(path, method);
      expect([method, headers['content-length']]).toEqual([method, '0']);
    }
  });

  test('a denied check that announces a body has the Content-Length, and closes', async () => {
    const get = await check('/v1/check/denied');
    const announced = { ...forwardedFor('10.0.0.1'), 'Content-Length': '5' };
    const received = await untilClosed(gatewayRequestBytes('/v1/check/denied', announced, 'HEAD'));
    expect(received.match(/^(?:HTTP|Content-Length|Connection).*/gm)).toEqual([
      'HTTP/1.1 429 Too Many Requests',
      'Connection: close',
      `Content-Length: ${get.headers['content-length']}`,
    ]);
    expect(received.endsWith('\r\n\r\n')).toBe(true);
  });

  test('an unknown path with "Connection: close" closes', async () => {
    const headers = { Connection: 'close' };
    const received = await untilClosed(gatewayRequestBytes('/nowhere', headers, 'HEAD'));
    expect(received).toMatch(/^HTTP\/1\.1 404 [\s\S]*Content-Length: [1-9]\d+\r\n\r\n$/);
  });

  /** Everything that the server sends before it closes the connection. */
  async function untilClosed(bytes: Buffer): Promise<string> {
    const { text, isClosed } = await sendUntilClosed(server.gatewayPort, [bytes], 20_000);
    expect(isClosed).toBe(true);
    return text;
  }
});
