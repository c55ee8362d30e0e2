/** The option `concurrency` of the three modules, with a real server and with a recorded one. */

import { EventEmitter } from 'node:events';
import { createServer, get, type ServerResponse } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import express from 'express';
import Fastify from 'fastify';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { rateLimit as expressLimit } from '../../src/middleware/express.ts';
import { rateLimit as fastifyLimit } from '../../src/middleware/fastify.ts';
import { createLimiter, type LimiterOptions, rateLimit } from '../../src/middleware/fetch.ts';
import type { CheckedRequest } from '../../src/middleware/gateway-check.ts';
import { gatewayLimit, type RateLimitOptions } from '../../src/middleware/gateway-limit.ts';
import { listen } from '../support/http.ts';
import { freePort, ROOT_KEY, waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { type RecordedWeir, startRecordedWeir } from './recorded-weir.ts';

const policies = {
  both: { gateway: 'express' as const, limit: 4, skip: ['/healthz'] },
  one: { gateway: 'express' as const, limit: 1 },
};
const weir = useServer({ policies });

const warnings: string[] = [];
const emitWarning = vi.spyOn(process, 'emitWarning').mockImplementation((warning) => {
  warnings.push(String(warning));
});
afterAll(() => emitWarning.mockRestore());

// A slow machine must not make a decision fail.
const COMMON = { key: ROOT_KEY, timeoutMs: 60_000 };
const TTL = 60_000;
const USUAL_RENEWAL = { success: true };
let lastName = 0;
const newName = () => `name-${++lastName}`;

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

interface Application {
  url: string;
  /** Whether requests run until the test ends them. */
  isSlow: boolean;
  /** The responses of such requests. */
  running: ServerResponse[];
}

function newApplication(): Application & { handle: (response: ServerResponse) => void } {
  const application = {
    ...{ url: '', isSlow: true, running: [] as ServerResponse[] },
    handle: (response: ServerResponse) => {
      if (application.isSlow) application.running.push(response);
      else response.end();
    },
  };
  return application;
}

async function expressApplication(options: Partial<RateLimitOptions>): Promise<Application> {
  const limit = expressLimit({
    ...{ ...COMMON, url: weir.url, namespace: newName(), concurrency: { limit: 1, ttl: TTL } },
    ...options,
  });
  const application = newApplication();
  const app = express();
  app.use(limit);
  app.use((_request, response) => application.handle(response));
  const server = createServer(app);
  closers.push(
    () => server.closeAllConnections(),
    () => server.close(),
  );
  application.url = `http://127.0.0.1:${await listen(server)}`;
  return application;
}

async function fastifyApplication(options: Partial<RateLimitOptions>): Promise<Application> {
  const limit = fastifyLimit({
    ...{ ...COMMON, url: weir.url, namespace: newName(), concurrency: { limit: 1, ttl: TTL } },
    ...options,
  });
  const application = newApplication();
  const app = Fastify();
  app.addHook('onRequest', limit);
  app.get('/', (_request, reply) => {
    reply.hijack();
    application.handle(reply.raw);
  });
  closers.push(
    () => app.server.closeAllConnections(),
    () => app.close(),
  );
  application.url = await app.listen({ port: 0, host: '127.0.0.1' });
  return application;
}

const isRunning = (application: Application, count: number) => {
  return waitUntil(`${count} run`, () => application.running.length === count);
};
/** A free application does not keep the lease of the request that shows it. */
const isFree = (application: Application) => {
  application.isSlow = false;
  return waitUntil('the lease is released', async () => {
    return (await statusOf(application.url)) === 200;
  });
};
const statusOf = async (url: string) => (await fetch(url)).status;

describe.each([
  ['Express', expressApplication],
  ['Fastify', fastifyApplication],
])('with the module for %s', (_name, start) => {
  test('more requests than the limit get a 429, until one has ended', async () => {
    const application = await start({ namespace: 'busy', checks: false });
    const first = fetch(application.url);
    await isRunning(application, 1);
    const denied = await fetch(application.url);
    expect([denied.status, await denied.json()]).toEqual([
      429,
      {
        type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
        title: 'Request cannot be satisfied as assigned quota has been exceeded',
        status: 429,
        detail: 'too many requests of this client run at once',
        'violated-policies': ['busy'],
      },
    ]);
    const header = (name: string) => denied.headers.get(name);
    expect([header('RateLimit-Policy'), header('RateLimit')]).toEqual([
      '"busy";q=1;qu="concurrent-requests"',
      '"busy";r=0',
    ]);
    expect(['Retry-After', 'Cache-Control', 'Content-Type'].map(header)).toEqual([
      '1',
      'no-store',
      'application/problem+json',
    ]);
    application.running[0].end('first');
    expect(await (await first).text()).toBe('first');
    await isFree(application);
  });

  test('a client that goes away releases its lease', async () => {
    const application = await start({ checks: false });
    const client = get(application.url).on('error', () => {});
    await isRunning(application, 1);
    expect(await statusOf(application.url)).toBe(429);
    client.destroy();
    await isFree(application);
  });

  test('without weir, onError decides', async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    const open = await start({ url, checks: false });
    const allowed = fetch(open.url);
    await isRunning(open, 1);
    open.running[0].end();
    expect((await allowed).status).toBe(200);
    const closed = await start({ url, checks: false, onError: 'deny' });
    const denied = await fetch(closed.url);
    expect([denied.status, denied.headers.get('Retry-After')]).toEqual([429, '1']);
    expect(await denied.json()).toMatchObject({
      detail: 'requests cannot be counted at the moment',
    });
  });
});

describe('with a policy', () => {
  test('a request needs both: the check, and then the lease', async () => {
    const application = await expressApplication({ namespace: 'both', skip: ['/healthz'] });
    const first = fetch(application.url);
    await isRunning(application, 1);
    // It is denied by the lease, and counted by the check.
    expect((await fetch(application.url)).headers.get('RateLimit')).toBe('"both";r=0');
    const skipped = fetch(`${application.url}/healthz`);
    await isRunning(application, 2);
    for (const response of application.running) response.end();
    await skipped;
    expect((await first).headers.get('RateLimit')).toMatch(/^"both";r=3;t=/);
  });

  test('a request that the check denies gets the answer of the policy', async () => {
    const application = await expressApplication({ namespace: 'one' });
    const first = fetch(application.url);
    await isRunning(application, 1);
    application.running[0].end();
    await first;
    const denied = await fetch(application.url);
    expect(denied.headers.get('RateLimit-Policy')).toMatch(/^"one";q=1;w=/);
    expect(await denied.json()).toMatchObject({ 'violated-policies': ['one'] });
  });
});

describe('a lease', () => {
  let recorded: RecordedWeir;
  beforeAll(async () => {
    recorded = await startRecordedWeir();
  });
  afterAll(() => recorded.stop());
  afterEach(() => {
    recorded.calls.length = 0;
    warnings.length = 0;
  });
  const LEASE = { limit: 2, ttl: 1_000 };
  const limiterWith = (more: Partial<LimiterOptions> = {}) => {
    const options = { ...COMMON, url: recorded.url, namespace: 'n', concurrency: LEASE };
    return createLimiter({ ...options, ...more });
  };

  test('is renewed until its release, which is sent once', async () => {
    const lease = await limiterWith().acquire('client');
    expect(lease).toMatchObject({ allowed: true, headers: {}, leaseId: 'rlls_1' });
    await waitUntil('it is renewed twice', () => recorded.count('renew') >= 2);
    await Promise.all([lease.release(), lease.release()]);
    await lease.release();
    const count = recorded.count('renew');
    const other = { success: true, leaseId: 'rlls_2', inUse: 1, limit: 2 };
    recorded.answers.acquire = [other];
    const second = await limiterWith().acquire('client');
    await waitUntil('the next is renewed twice', () => recorded.count('renew') >= count + 2);
    await second.release();
    const ids = recorded.calls.slice(1).map(({ operation, body }) => [operation, body.leaseId]);
    expect(ids.filter(([, id]) => id === 'rlls_1').slice(count)).toEqual([['release', 'rlls_1']]);
    expect(recorded.calls[0]).toEqual({
      operation: 'acquire',
      body: { namespace: 'n', identifier: 'client', ...LEASE },
    });
  });

  test('is renewed after a failed renewal, but not after its end', async () => {
    recorded.answers.renew = [undefined, USUAL_RENEWAL, { success: false }];
    const lease = await limiterWith().acquire('client');
    await waitUntil('it has ended', () =>
      warnings.includes('a lease of weir has ended before its request'),
    );
    expect(recorded.count('renew')).toBe(3);
    await lease.release();
    expect(recorded.count('release')).toBe(1);
  });

  test('is released again if the response is lost', async () => {
    recorded.answers.release = [undefined, undefined];
    const lease = await limiterWith().acquire('client');
    await lease.release();
    expect(recorded.count('release')).toBe(3);
  });

  test('that weir grants without a record is not renewed', async () => {
    recorded.answers.acquire = [{ success: true, leaseId: null, inUse: 0, limit: 2 }];
    const lease = await limiterWith().acquire('client');
    await lease.release();
    expect([lease.allowed, recorded.count('release')]).toEqual([true, 0]);
  });

  test('follows the check of a limiter with a window, and its headers are those of the check', async () => {
    const limiter = limiterWith({ limit: 9, duration: 60_000 });
    const lease = await limiter.acquire('client', 2);
    expect(lease.headers.RateLimit).toMatch(/^"n";r=8;t=/);
    expect(recorded.calls.map(({ operation }) => operation)).toEqual(['limit', 'acquire']);
    await lease.release();
    const denied = { data: { success: false, limit: 9, remaining: 0, reset: 9e12 } };
    recorded.answers.limit = [denied];
    expect(await limiter.acquire('client')).toMatchObject({ allowed: false, deniedBy: 'limit' });
    expect(recorded.count('acquire')).toBe(1);
  });

  describe('of a wrapped handler', () => {
    const wrap = (handler: (request: Request) => Response | Promise<Response>) => {
      return rateLimit(limiterWith(), () => 'client', handler);
    };
    const isReleased = () => waitUntil('it is released', () => recorded.count('release') === 1);
    const request = () => new Request('http://a/');

    test('ends when the body has been read', async () => {
      const response = await wrap(() => new Response('text', { status: 201 }))(request());
      expect([response.status, recorded.count('release')]).toEqual([201, 0]);
      expect(await response.text()).toBe('text');
      await isReleased();
    });

    test('ends when the body is cancelled, and so does the body of the handler', async () => {
      const cancel = vi.fn();
      const body = new ReadableStream({ pull: (to) => to.enqueue(new Uint8Array(9)), cancel });
      const response = await wrap(() => new Response(body))(request());
      const reader = response.body!.getReader();
      expect((await reader.read()).value).toHaveLength(9);
      await reader.cancel('gone');
      expect(cancel).toHaveBeenCalledWith('gone');
      await isReleased();
    });

    test('ends when the body fails', async () => {
      const body = new ReadableStream({ pull: (to) => to.error(new Error('broken')) });
      const response = await wrap(() => new Response(body))(request());
      await expect(response.text()).rejects.toThrow('broken');
      await isReleased();
    });

    test('ends with a response without a body, and with an error of the handler', async () => {
      expect((await wrap(() => new Response(null, { status: 204 }))(request())).status).toBe(204);
      await isReleased();
      recorded.calls.length = 0;
      const failed = wrap(() => {
        throw new Error('handler');
      })(request());
      await expect(failed).rejects.toThrow('handler');
      await isReleased();
    });

    test('ends some time after the body is lost', async () => {
      setFlagsFromString('--expose-gc');
      const collectGarbage = runInNewContext('gc') as () => void;
      await wrap(() => new Response('of a HEAD request'))(request());
      await waitUntil('it is released', () => {
        collectGarbage();
        return recorded.count('release') === 1;
      });
    });

    test('ends when the request is aborted, before or during the handler', async () => {
      const abort = new AbortController();
      const handler = wrap(() => new Response('text'));
      await handler(new Request('http://a/', { signal: abort.signal }));
      expect(recorded.count('release')).toBe(0);
      abort.abort();
      await isReleased();
      recorded.calls.length = 0;
      await handler(new Request('http://a/', { signal: AbortSignal.abort() }));
      await isReleased();
    });

    test('is denied with a 429 that says why', async () => {
      // An override has replaced the limit of the options.
      recorded.answers.acquire = [{ success: false, leaseId: null, inUse: 3, limit: 3 }];
      const handler = vi.fn();
      const response = await wrap(handler)(request());
      expect([response.status, await response.text()]).toEqual([
        429,
        'Too many requests at once\n',
      ]);
      expect(Object.fromEntries(response.headers)).toMatchObject({
        'ratelimit-policy': '"n";q=3;qu="concurrent-requests"',
        ratelimit: '"n";r=0',
        'retry-after': '1',
        'cache-control': 'no-store',
      });
      expect(handler).not.toHaveBeenCalled();
    });
  });

  describe('of a client', () => {
    const CLOSED = { destroyed: true, once: () => {} };
    async function identifierOf(more: object, request: Partial<CheckedRequest>): Promise<unknown> {
      const options = { ...COMMON, url: recorded.url, namespace: 'n', checks: false };
      const limit = gatewayLimit('express', { ...options, concurrency: LEASE, ...more });
      await limit({ headers: {}, socket: {}, ...request }, CLOSED);
      await waitUntil('a closed response has released it', () => recorded.count('release') === 1);
      return recorded.calls[0].body.identifier;
    }

    test.each([
      ['an IPv4 address', {}, { ip: '192.0.2.1' }, '192.0.2.1'],
      ['an IPv4 address in IPv6', {}, { ip: '::ffff:192.0.2.1' }, '192.0.2.1'],
      ['the network of an IPv6 address', {}, { ip: '2001:DB8::1:2' }, '2001:db8:0:0::/64'],
      ['a whole IPv6 address', {}, { ip: '1:2:3:4:5:6:7:8' }, '1:2:3:4::/64'],
      ['an IPv6 address with a zone', {}, { ip: 'fe80::1%eth0' }, 'fe80:0:0:0::/64'],
      [
        'the address that the trusted proxies have seen',
        { trustedHops: 2 },
        {
          socket: { remoteAddress: '192.0.2.9' },
          headers: { 'x-forwarded-for': '192.0.2.7, 192.0.2.8' },
        },
        '192.0.2.8',
      ],
      [
        'what the application says',
        { identify: 'header:a', concurrency: { ...LEASE, identify: () => 'user' } },
        {},
        'user',
      ],
    ])('has %s for its identifier', async (_name, more, request, identifier) => {
      expect(await identifierOf(more, request)).toBe(identifier);
    });

    test('that goes away while weir decides is released', async () => {
      const options = { ...COMMON, url: recorded.url, namespace: 'n', checks: false };
      const limit = gatewayLimit('express', { ...options, concurrency: LEASE });
      const response = new EventEmitter();
      const decided = limit(
        { headers: {}, socket: {} },
        Object.assign(response, { destroyed: false }),
      );
      response.emit('close');
      expect((await decided).status).toBe(200);
      await waitUntil('it is released', () => recorded.count('release') === 1);
    });

    test('without an identifier of the application is an error', async () => {
      const concurrency = { ...LEASE, identify: () => '' };
      await expect(identifierOf({ concurrency }, {})).rejects.toThrow(
        '"identifier" must be a text that is not empty; got ""',
      );
    });
  });
});

describe('is not accepted', () => {
  const LEASE = { limit: 1, ttl: 1_000 };
  test.each([
    [undefined, '"concurrency" must be an object with limit, ttl, identify; got nothing'],
    [{ ttl: 1_000 }, '"concurrency.limit" must be a positive integer; got nothing'],
    [
      { limit: 1, ttl: 999 },
      '"concurrency.ttl" must be an integer number of milliseconds from 1000',
    ],
    [{ limit: 1, ttl: 86_400_001 }, 'to 86400000; got 86400001'],
    [{ ...LEASE, cost: 1 }, '"cost" is none of limit, ttl, identify'],
    [{ ...LEASE, identify: 'ip' }, '"concurrency.identify" must be a function'],
  ])('%j', (concurrency, message) => {
    const options = { ...COMMON, url: weir.url, namespace: 'n', concurrency };
    expect(() => gatewayLimit('express', options as RateLimitOptions)).toThrow(message);
  });

  test.each([
    [{ key: undefined }, '"key" must be an API key'],
    [{ url: 'unix:/run/weir.sock' }, '"url" must be a URL such as http://127.0.0.1:7070'],
    [{ identify: 'path' }, '"concurrency.identify" must be a function, required if'],
    [{ checks: 0 }, '"checks" must be true, or false with "concurrency"; got 0'],
    [{ limit: 1 }, '"limit" is none of url, namespace'],
  ])('with %j', (more, message) => {
    const options = { ...COMMON, url: weir.url, namespace: 'n', concurrency: LEASE, ...more };
    expect(() => gatewayLimit('express', options as RateLimitOptions)).toThrow(message);
  });

  test('an application without any limit', () => {
    const options = { url: weir.url, namespace: 'n', checks: false };
    expect(() => gatewayLimit('express', options)).toThrow('"checks" must be true');
    const limiter = { ...COMMON, namespace: 'n', concurrency: undefined };
    expect(() => createLimiter(limiter as unknown as LimiterOptions)).toThrow('"concurrency" must');
  });

  test('a half of a window beside it, and a check without a window', async () => {
    const options = { ...COMMON, url: weir.url, namespace: 'n', concurrency: LEASE };
    expect(() => createLimiter({ ...options, limit: 1 })).toThrow('"duration" must be');
    const limiter = createLimiter(options);
    const message = 'needs the options "limit" and "duration"';
    await expect(limiter.check('client')).rejects.toThrow(message);
    await expect(limiter.reserve({ identifier: 'a', cost: 1, ttl: 1_000 })).rejects.toThrow(
      message,
    );
  });
});
