/**
 * The options of the modules for Express and Fastify, and the headers that they send. The files of
 * test/gateways run the whole modules.
 */

import { readFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TIMEOUT_MS } from '../../src/commands/gateways/setup.ts';
import { LIMITER_OPTIONS } from '../../src/middleware/fetch.ts';
import {
  type CheckedRequest,
  type CheckOptions,
  gatewayCheck,
} from '../../src/middleware/gateway-check.ts';
import { RATE_LIMIT_OPTIONS } from '../../src/middleware/gateway-limit.ts';
import { readTimeout } from '../../src/middleware/options.ts';
import { readPart, TOKEN } from '../../src/policies/identity-part.ts';
import { reducedCapacity } from '../../src/policies/quota.ts';
import { listen } from '../support/http.ts';

const VALID = { url: 'http://127.0.0.1:7072', namespace: 'login' };
const optionsWith = (more: object) => ({ ...VALID, ...more }) as CheckOptions;
const REQUEST: CheckedRequest = { headers: {}, socket: {} };

describe('an invalid option is an error that names it, the value and what is accepted', () => {
  test.each([
    [{ url: undefined }, '"url" must be a URL such as http://127.0.0.1:7072, or unix: and'],
    [{ url: 'https://weir.example.com' }, 'got "https://weir.example.com"'],
    [{ url: 'http://127.0.0.1:7072/v1' }, 'got "http://127.0.0.1:7072/v1"'],
    [{ url: 'http://user:secret@127.0.0.1:7072' }, 'got "a URL with a user"'],
    [{ url: 'unix:weir.sock' }, 'got "unix:weir.sock"'],
    [
      { namespace: 'a/../b' },
      '"namespace" must be the namespace of a policy of weir; got "a/../b"',
    ],
    [{ namespace: 'a?gateway=nginx' }, '"namespace" must be'],
    [{ key: undefined }, '"key" must be an API key of weir, in printable ASCII; got nothing'],
    [{ key: ' ' }, '"key" must be an API key'],
    [{ identify: [] }, '"identify" must be one or more of'],
    [{ identify: 'header:x api' }, 'got "header:x api"'],
    [{ identify: ['ip', 7] }, 'got ip,7'],
    [{ skip: 'preflight' }, `"skip" must be an array of 'preflight' and paths such as '/healthz'`],
    [{ skip: ['options'] }, 'got options'],
    [{ onError: 'open' }, '"onError" must be \'allow\' or \'deny\'; got "open"'],
    [{ trustedHops: 0 }, '"trustedHops" must be an integer from 1 to 32; got 0'],
    [{ legacyHeaders: 'yes' }, '"legacyHeaders" must be true or false; got "yes"'],
    [{ timeoutMs: 0.5 }, '"timeoutMs" must be a number of milliseconds from 1 to 60000; got 0.5'],
    [{ timeout: 50 }, '"timeout" is none of url, namespace, key'],
  ])('%j', (more, message) => {
    expect(() => gatewayCheck('express', optionsWith(more))).toThrow(message);
    expect(() => gatewayCheck('express', optionsWith(more))).toThrow(TypeError);
  });

  test('the key is not part of an error', () => {
    const create = () => gatewayCheck('express', optionsWith({ key: 'sécret' }));
    expect(create).toThrow('got another text');
  });
});

test('each part that a policy may have can identify', () => {
  const token = fc.stringMatching(new RegExp(`^${TOKEN}$`));
  const kind = fc.constantFrom('header:', 'ip:header:', 'cookie:', '');
  const word = fc.oneof(token, fc.string(), fc.constantFrom('ip', 'method', 'path'));
  fc.assert(
    fc.property(kind, word, (kind, word) => {
      const identify = kind + word;
      if (readPart(identify) === undefined) return;
      gatewayCheck('express', optionsWith({ identify }));
    }),
  );
});

test('the default timeout is that of other printed configurations', () => {
  expect(readTimeout()).toBe(TIMEOUT_MS);
});

test('every option is in the documentation', () => {
  const page = readFileSync(new URL('../../docs/middleware.md', import.meta.url), 'utf8');
  const documented = (heading: string) => {
    const section = page.split(`## ${heading}\n`)[1].split('\n## ')[0];
    return [...section.matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name);
  };
  expect(documented('Options of Express and Fastify')).toEqual(RATE_LIMIT_OPTIONS);
  expect(documented('Options of `createLimiter`')).toEqual(LIMITER_OPTIONS);
});

describe('a check', () => {
  let received: { url: string; headers: IncomingHttpHeaders }[] = [];
  let status = 200;
  const server = createServer((request, response) => {
    const { url, headers } = request;
    received.push({ url: url!, headers });
    response.writeHead(status, { 'RateLimit-Policy': '"login";q=3;w=60', Server: 'x' }).end('body');
  });
  let url: string;
  beforeAll(async () => {
    url = `http://127.0.0.1:${await listen(server)}`;
  });
  afterAll(() => server.close());

  /** The headers of a check that depend on the options. */
  async function sentHeaders(more: object, request: Partial<CheckedRequest>) {
    received = [];
    status = 200;
    const check = gatewayCheck('express', optionsWith({ url, ...more }));
    await check({ ...REQUEST, ...request });
    const { host, connection, ...headers } = received[0].headers;
    return headers;
  }

  test.each([
    ['the address that the framework determines', {}, { ip: '::1' }, { 'x-forwarded-for': '::1' }],
    [
      'the address of the connection, if the framework determines none',
      {},
      { socket: { remoteAddress: '192.0.2.1' }, headers: { 'x-forwarded-for': '192.0.2.9' } },
      { 'x-forwarded-for': '192.0.2.1' },
    ],
    [
      'the address of the connection, behind those that proxies have seen',
      { trustedHops: 2 },
      { ip: '::1', socket: { remoteAddress: '::2' }, headers: { 'x-forwarded-for': '::3' } },
      { 'x-forwarded-for': '::3,::2' },
    ],
    [
      'method and path, without the query',
      { identify: ['method', 'path'] },
      { method: 'POST', url: '/b', originalUrl: '/a/b?token=secret' },
      { 'x-forwarded-method': 'POST', 'x-forwarded-uri': '/a/b' },
    ],
    ['no header that the client has not sent', { identify: 'header:X-Api-Key' }, {}, {}],
    [
      'one header, and no other',
      { identify: 'header:X-Api-Key' },
      { headers: { 'x-api-key': 'a', authorization: 'secret' } },
      { 'x-api-key': 'a' },
    ],
    [
      'the header that holds the address of the client',
      { identify: ['ip:header:CF-Connecting-IP', 'method'] },
      { method: 'GET', headers: { 'cf-connecting-ip': '::1', cookie: 'a=b' } },
      { 'cf-connecting-ip': '::1', 'x-forwarded-method': 'GET' },
    ],
    [
      'one cookie, and no other',
      { identify: ['cookie:sid'] },
      { headers: { cookie: 'a=b; sid=c=d; e=f' } },
      { cookie: 'sid=c=d' },
    ],
    [
      'all cookies, if the whole header identifies',
      { identify: ['header:Cookie', 'cookie:sid'] },
      { headers: { cookie: 'a=b; sid=c' } },
      { cookie: 'a=b; sid=c' },
    ],
    [
      'the path that the policy may skip',
      { identify: 'header:a', skip: ['/healthz'] },
      { originalUrl: '/%68ealthz?a', method: 'GET' },
      { 'x-forwarded-uri': '/%68ealthz' },
    ],
    [
      'no path that the policy cannot skip',
      { identify: 'header:a', skip: ['/healthz'] },
      { originalUrl: `/${'a'.repeat(16_384)}`, method: 'GET' },
      {},
    ],
    [
      'a preflight that the policy may skip',
      { identify: 'header:a', skip: ['preflight'] },
      {
        ...{ url: '/', method: 'OPTIONS' },
        headers: { origin: 'o', 'access-control-request-method': 'PUT', cookie: 'a' },
      },
      {
        ...{ 'x-forwarded-method': 'OPTIONS', origin: 'o' },
        ...{ 'access-control-request-method': 'PUT' },
      },
    ],
    [
      'nothing of CORS with another method',
      { identify: 'header:a', skip: ['preflight'] },
      {
        url: '/',
        method: 'POST',
        headers: { origin: 'o', 'access-control-request-method': 'PUT' },
      },
      {},
    ],
    [
      'the key, without blanks around it',
      { identify: 'path', key: 'weir_a\n' },
      { url: '/' },
      { 'x-weir-key': 'weir_a', 'x-forwarded-uri': '/' },
    ],
  ])('contains %s', async (_name, more, request, headers) => {
    expect(await sentHeaders(more, request)).toEqual(headers);
    expect(received[0].url).toBe('/v1/check/login?gateway=express');
  });

  test.each([
    ['a path', { originalUrl: '/😀' }, 400],
    ['an address', { ip: 'a\nb' }, 400],
    ['a long path', { originalUrl: `/${'a'.repeat(16_384)}` }, 431],
  ])('is not sent for %s that no header can have', async (_name, request, denied) => {
    received = [];
    const check = gatewayCheck('express', optionsWith({ url, identify: ['ip', 'path'] }));
    const decision = await check({ ...REQUEST, ...request });
    expect([decision, received]).toEqual([{ status: denied, headers: {}, body: '' }, []]);
  });

  test.each([
    ['allow', { status: 200, headers: {}, body: '' }],
    [
      'deny',
      {
        status: 429,
        headers: expect.objectContaining({ 'Retry-After': '1', 'Cache-Control': 'no-store' }),
        body: reducedCapacity(),
      },
    ],
  ] as const)('without a decision has that of onError: %s', async (onError, decision) => {
    const check = gatewayCheck('express', optionsWith({ url, onError }));
    for (status of [500, 404, 401, 302]) expect(await check(REQUEST)).toEqual(decision);
  });
});
