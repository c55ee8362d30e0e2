/** The limiter of the package's `/fetch`, with a real server. */

import { createServer, type ServerResponse } from 'node:http';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { DURATION_MIN_MS, V2_DURATION_MAX_MS } from '../../src/core/constants.ts';
import { createLimiter, type LimiterOptions, rateLimit } from '../../src/middleware/fetch.ts';
import { listen } from '../support/http.ts';
import { freePort, ROOT_KEY, waitUntil } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';

const weir = useServer();

const warnings: string[] = [];
const emitWarning = vi.spyOn(process, 'emitWarning').mockImplementation((warning) => {
  warnings.push(String(warning));
});
afterAll(() => emitWarning.mockRestore());

const VALID = {
  ...{ key: ROOT_KEY, namespace: 'fetch', limit: 3, duration: V2_DURATION_MAX_MS },
  // A slow machine must not make a check undecided.
  timeoutMs: 60_000,
};
const limiterWith = (more: object = {}) => {
  return createLimiter({ url: weir.url, ...VALID, ...more } as LimiterOptions);
};
let lastClient = 0;
const newClient = () => `client-${++lastClient}`;

describe('a limiter', () => {
  test('allows as many tokens as the limit, and then denies', async () => {
    const limiter = limiterWith();
    const client = newClient();
    const first = await limiter.check(client, 2);
    expect(first).toEqual({
      allowed: true,
      headers: { RateLimit: expect.stringMatching(/^"fetch";r=1;t=\d+$/) },
      quota: { limit: 3, remaining: 1, reset: expect.any(Number) },
    });
    expect((await limiter.check(client)).allowed).toBe(true);
    const denied = await limiter.check(client);
    expect([denied.allowed, denied.quota?.remaining]).toEqual([false, 0]);
    expect(Number(denied.headers['Retry-After'])).toBeGreaterThan(0);
    expect((await limiter.check(newClient())).allowed).toBe(true);
  });

  test('decides by GCRA with a burst', async () => {
    const limiter = limiterWith({ algorithm: 'gcra', burst: 2 });
    const client = newClient();
    const all = [];
    for (let i = 0; i < 3; i++) all.push((await limiter.check(client)).allowed);
    expect(all).toEqual([true, true, false]);
  });

  test('gives a namespace a name in ASCII in its header', async () => {
    const { headers } = await limiterWith({ namespace: '"é"' }).check(newClient());
    expect(headers.RateLimit).toMatch(/^"%22%C3%A9%22";r=2;t=/);
  });

  test('takes the reset for the time to retry where an older server has no other', async () => {
    const data = { success: false, limit: 3, remaining: 0, reset: Date.now() + 40_000 };
    const older = createServer((_, response) => response.end(JSON.stringify({ data })));
    const limiter = limiterWith({ url: `http://127.0.0.1:${await listen(older)}` });
    const { headers } = await limiter.check(newClient());
    expect(Number(headers['Retry-After'])).toBeGreaterThan(30);
    expect((await limiter.check(newClient(), 4)).headers).toEqual({ RateLimit: '"fetch";r=0' });
    older.close();
  });

  test('counts a long identifier, and one that is not well-formed, like any other', async () => {
    const limiter = limiterWith();
    const odd = ['x'.repeat(513), '😀'.repeat(513), 'x'.repeat(100_000), 'a\ud800', 'a\udbff'];
    for (const identifier of [...odd, '😀'.repeat(512)]) {
      expect((await limiter.check(identifier, 3)).allowed).toBe(true);
      expect((await limiter.check(identifier)).allowed).toBe(false);
    }
  });

  test.each([
    [['', 1], '"identifier" must be a text that is not empty; got ""'],
    [[undefined, 1], '"identifier" must be a text that is not empty; got nothing'],
    [['a', -1], '"cost" must be an integer from 0; got -1'],
    [['a', 0.5], '"cost" must be an integer from 0; got 0.5'],
  ])('rejects %j, also if failures are allowed', async ([identifier, cost], message) => {
    const check = limiterWith().check(identifier as string, cost as number);
    await expect(check).rejects.toThrow(message);
  });

  test.each([
    [{ url: 'weir' }, '"url" must be a URL such as http://127.0.0.1:7070; got "weir"'],
    [{ url: 'http://user:secret@127.0.0.1:7070' }, 'got "a URL with a user"'],
    [{ url: 7070 }, '"url" must be a URL such as http://127.0.0.1:7070; got 7070'],
    [{ algorithm: 'leaky' }, "\"algorithm\" must be 'fixed', 'sliding' or 'gcra'; got \"leaky\""],
    [{ burst: 2 }, '"burst" must be an integer from 1 to the limit, with \'gcra\' only; got 2'],
    [{ algorithm: 'gcra', burst: 4 }, '"burst" must be'],
    [{ key: undefined }, '"key" must be an API key of weir'],
    [{ namespace: '' }, '"namespace" must be'],
    [{ limit: 0 }, '"limit" must be a positive integer; got 0'],
    [{ duration: '60s' }, '"duration" must be an integer number of milliseconds'],
    [{ duration: DURATION_MIN_MS - 1 }, 'from 1000 to 2592000000; got 999'],
    [{ duration: V2_DURATION_MAX_MS + 1 }, 'got 2592000001'],
    [{ onError: true }, '"onError" must be'],
    [{ timeout: 1 }, '"timeout" is none of url, key'],
  ])('is not created with %j', (more, message) => {
    expect(() => limiterWith(more)).toThrow(message);
  });
});

describe.each([
  ['allow', { allowed: true, headers: {} }],
  ['deny', { allowed: false, headers: { 'Retry-After': '1' } }],
] as const)('with onError: %s', (onError, decision) => {
  test('a stopped weir, a wrong key, an invalid check and another server have it', async () => {
    const other = createServer((_, response) => response.end('{"data":{"success":1}}'));
    const port = await listen(other);
    for (const [more, message] of [
      [{ url: `http://127.0.0.1:${await freePort()}` }, 'weir has not answered: connect ECONN'],
      [{ key: 'a-wrong-key' }, 'weir answered 401: '],
      [{ namespace: 'n'.repeat(513) }, 'weir answered 400: '],
      [{ url: `http://127.0.0.1:${port}` }, 'weir answered 200: {"data":{"success":1}}'],
    ] as const) {
      warnings.length = 0;
      const { error, ...rest } = await limiterWith({ ...more, onError }).check(newClient());
      expect([rest, error?.message]).toEqual([decision, expect.stringContaining(message)]);
      expect(warnings).toEqual([expect.stringContaining(message)]);
    }
    other.close();
  });
});

describe('with a server that does not respond', () => {
  const TIMEOUT_MS = 200;
  const PROBE_INTERVAL_MS = 1_000;
  const LATE = `weir has not answered within ${TIMEOUT_MS} ms`;
  const QUOTA = { limit: 3, remaining: 2, reset: 9e12 };
  const waiting: ServerResponse[] = [];
  let isResponsive = false;
  const server = createServer((_, response) => {
    if (isResponsive) response.end(JSON.stringify({ data: { success: true, ...QUOTA } }));
    else waiting.push(response);
  });
  let url: string;
  beforeAll(async () => {
    url = `http://127.0.0.1:${await listen(server)}`;
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  });
  afterAll(() => {
    vi.useRealTimers();
    server.closeAllConnections();
    server.close();
  });

  test('a check is undecided after the timeout; then one check in each second is sent', async () => {
    const limiter = limiterWith({ url, onError: 'deny', timeoutMs: TIMEOUT_MS });
    const results: (string | undefined)[] = [];
    const check = async () => {
      const { error, allowed } = await limiter.check(newClient());
      results.push(error?.message);
      if (error !== undefined) expect(allowed).toBe(false);
    };
    const received = (count: number) => {
      return waitUntil(`${count} are received`, () => waiting.length === count);
    };
    // The 64th timeout in a row is the last that is waited for.
    const checks = Array.from({ length: 63 }, check);
    await received(63);
    await vi.advanceTimersByTimeAsync(TIMEOUT_MS - 1);
    expect(results).toEqual([]);
    await vi.advanceTimersByTimeAsync(2);
    await Promise.all(checks);
    expect(results.splice(0)).toEqual(Array(63).fill(LATE));
    const last = check();
    await received(64);
    await vi.advanceTimersByTimeAsync(TIMEOUT_MS + 1);
    await last;
    expect(results.splice(0)).toEqual([LATE]);

    const undecided = 'weir has not answered the last checks';
    const probe = check();
    await Promise.all(Array.from({ length: 9 }, check));
    expect(results.splice(0)).toEqual(Array(9).fill(undecided));
    await received(65);
    await vi.advanceTimersByTimeAsync(TIMEOUT_MS + 1);
    await probe;
    await vi.advanceTimersByTimeAsync(PROBE_INTERVAL_MS - TIMEOUT_MS - 2);
    await check();
    expect(results.splice(0)).toEqual([LATE, undecided]);
    await vi.advanceTimersByTimeAsync(1);
    isResponsive = true;
    await check();
    await Promise.all(Array.from({ length: 9 }, check));
    expect(results).toEqual(Array(10).fill(undefined));
  });
});

describe('a wrapped handler', () => {
  const handled: string[] = [];
  const handler = (request: Request, name: string) => {
    handled.push(name);
    return request.url.endsWith('/redirect')
      ? Response.redirect('http://a/b', 302)
      : new Response('done', { status: 201, headers: { 'X-Own': 'yes' } });
  };
  const identify = (_request: Request, name: string) => name;

  test('runs for allowed requests only, and its response has the quota', async () => {
    const limited = rateLimit(limiterWith({ limit: 1 }), identify, handler);
    const client = newClient();
    const request = new Request('http://a/');
    const first = await limited(request, client);
    expect([first.status, await first.text(), first.headers.get('X-Own')]).toEqual([
      201,
      'done',
      'yes',
    ]);
    expect(first.headers.get('RateLimit')).toMatch(/^"fetch";r=0;t=\d+$/);
    const second = await limited(request, client);
    expect([second.status, await second.text()]).toEqual([429, 'Too many requests\n']);
    expect(Number(second.headers.get('Retry-After'))).toBeGreaterThan(0);
    expect(second.headers.get('Cache-Control')).toBe('no-store');
    expect(handled.filter((name) => name === client)).toHaveLength(1);
  });

  test('keeps a response whose headers are immutable', async () => {
    const limited = rateLimit(limiterWith(), identify, handler);
    const response = await limited(new Request('http://a/redirect'), newClient());
    expect([response.status, response.headers.get('Location')]).toEqual([302, 'http://a/b']);
    expect(response.headers.get('RateLimit')).toMatch(/;r=2;/);
  });
});
