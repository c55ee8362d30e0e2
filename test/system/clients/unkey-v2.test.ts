/**
 * The unmodified public clients of v2 against a running server: each operation, and each class of
 * errors. test/api/operations/v2.test.ts has the rules of v2.
 */

import { Unkey } from 'unkey-api-v2';
import {
  BadRequestErrorResponse,
  ForbiddenErrorResponse,
  NotFoundErrorResponse,
  UnauthorizedErrorResponse,
} from 'unkey-api-v2/models/errors';
import { Overrides, Ratelimit, type RatelimitConfig } from 'unkey-ratelimit-v2';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { V2_DURATION_MAX_MS } from '../../../src/core/constants.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { addKey, withStore } from '../../support/store.ts';

const dataDir = temporaryDirectory();
let readerKey = '';
let server: ServerProcess;
beforeAll(async () => {
  withStore(dataDir, (store) => {
    readerKey = addKey(store, { permissions: ['ratelimit.*.read_override'] });
  });
  server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

const checkOf = (identifier: string, changes: object = {}) => ({
  ...{ namespace: 'api', identifier, limit: 5, duration: V2_DURATION_MAX_MS },
  ...changes,
});

describe('@unkey/api 2.5.1', () => {
  const client = (rootKey: string | undefined = ROOT_KEY, serverURL = server.url) => {
    return new Unkey({ serverURL, ...(rootKey === '' ? {} : { rootKey }) }).ratelimit;
  };

  test('limit allows checks up to the limit, and then denies', async () => {
    // The address may end with a slash.
    const unkey = client(ROOT_KEY, `${server.url}/`);
    for (let remaining = 4; remaining >= 0; remaining--) {
      const { data, meta } = await unkey.limit(checkOf('user'));
      expect(data).toEqual({ success: true, limit: 5, remaining, reset: data.reset });
      expect([data.reset % V2_DURATION_MAX_MS, meta.requestId]).toEqual([
        0,
        expect.stringMatching(/^req_/),
      ]);
    }
    const { data } = await unkey.limit(checkOf('user', { cost: 2 }));
    expect(data).toMatchObject({ success: false, limit: 5, remaining: 0 });
  });

  test('multiLimit charges all checks or none, and returns each in order', async () => {
    const checks = [checkOf('all', { cost: 2 }), checkOf('other', { limit: 3, cost: 2 })];
    const results = async () => (await client().multiLimit(checks)).data;
    const [first, second] = checks.map(({ namespace, identifier, limit }) => {
      return { namespace, identifier, limit, reset: expect.any(Number) };
    });
    expect(await results()).toEqual({
      passed: true,
      limits: [
        { ...first, remaining: 3, passed: true },
        { ...second, remaining: 1, passed: true },
      ],
    });
    expect(await results()).toEqual({
      passed: false,
      limits: [
        { ...first, remaining: 3, passed: true },
        { ...second, remaining: 0, passed: false },
      ],
    });
  });

  test('overrides are set, read, applied, listed in pages, and deleted', async () => {
    const namespace = 'sdk';
    const limits = { limit: 3, duration: 60_000 };
    const unkey = client();
    const overrides: object[] = [];
    for (const identifier of ['user_*', 'quoted " \\', 'é \n']) {
      const { data } = await unkey.setOverride({ namespace, identifier, ...limits });
      overrides.push({ overrideId: data.overrideId, identifier, ...limits });
    }
    const texts = { namespace, identifier: 'user_*' };
    const { data } = await unkey.getOverride(texts);
    expect(data).toEqual(overrides[0]);
    const { overrideId } = data;
    const decided = await unkey.limit(checkOf('user_1', { namespace }));
    expect(decided.data).toMatchObject({ limit: 3, remaining: 2, overrideId });
    const pages = [];
    for await (const { result } of await unkey.listOverrides({ namespace, limit: 2 })) {
      pages.push(result);
    }
    expect(pages).toMatchObject([
      { data: overrides.slice(0, 2), pagination: { hasMore: true, cursor: expect.any(String) } },
      { data: overrides.slice(2), pagination: { hasMore: false } },
    ]);
    expect((await unkey.deleteOverride(texts)).data).toEqual({});
    const after = await unkey.limit(checkOf('user_1', { namespace }));
    expect([after.data.limit, after.data.overrideId]).toEqual([5, undefined]);
  });

  test.each([
    [
      'an invalid field',
      () => client().limit(checkOf('bad', { duration: 999 })),
      ...([BadRequestErrorResponse, 400, 'Bad Request', '"duration" must be '] as const),
    ],
    [
      'a missing key',
      () => client('').limit(checkOf('k')),
      ...([BadRequestErrorResponse, 400, 'Bad Request', 'is missing'] as const),
    ],
    [
      'an unknown key',
      () => client('wrong').limit(checkOf('k')),
      ...([UnauthorizedErrorResponse, 401, 'Unauthorized', 'is not known here'] as const),
    ],
    [
      'a key without the permission',
      () => client(readerKey).multiLimit([checkOf('forbidden')]),
      ...([ForbiddenErrorResponse, 403, 'Forbidden', '"ratelimit.*.limit"'] as const),
    ],
    [
      'an unknown namespace',
      () => client().limit(checkOf('lost', { namespace: 'rlns_unknown' })),
      ...([NotFoundErrorResponse, 404, 'Not Found', '"rlns_unknown"'] as const),
    ],
    [
      'an override that does not exist',
      () => client().getOverride({ namespace: 'api', identifier: 'none' }),
      ...([NotFoundErrorResponse, 404, 'Not Found', '"none"'] as const),
    ],
  ])('%s is an error of its class', async (_, send, kind, status, title, detail) => {
    const failure = await send().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(failure).toBeInstanceOf(kind);
    const { error, meta, headers } = failure as BadRequestErrorResponse;
    expect(error).toMatchObject({ status, title, detail: expect.stringContaining(detail) });
    expect(headers.get('X-Request-Id')).toBe(meta.requestId);
    expect((await fetch(error.type)).status).toBe(200);
    if (status === 400) {
      const location = expect.stringMatching(/^(body\.duration|header\.authorization)$/);
      expect(error.errors).toEqual([expect.objectContaining({ location, message: error.detail })]);
    }
  });
});

describe('@unkey/ratelimit 2.1.4', () => {
  const limiter = (changes: Partial<RatelimitConfig> = {}) => {
    return new Ratelimit({
      ...{ rootKey: ROOT_KEY, baseUrl: server.url, namespace: 'client', limit: 3 },
      duration: `${V2_DURATION_MAX_MS / 86_400_000}d`,
      // Longer than on the busiest machine.
      timeout: { ms: '50s', fallback: { success: false, limit: -1, remaining: 0, reset: 0 } },
      ...changes,
    });
  };

  test('is allowed up to the limit, and then denied', async () => {
    const ratelimit = limiter();
    for (const [cost, remaining] of [
      [2, 1],
      [0, 1],
      [1, 0],
    ]) {
      const decision = await ratelimit.limit('user', { cost });
      expect(decision).toMatchObject({ success: true, limit: 3, remaining });
      expect(decision.reset % V2_DURATION_MAX_MS).toBe(0);
    }
    const denied = { success: false, limit: 3, remaining: 0 };
    expect(await ratelimit.limit('user')).toMatchObject(denied);
  });

  test('supports another limit and window in one call', async () => {
    const ratelimit = limiter();
    await ratelimit.limit('own', { cost: 3 });
    const more = { limit: { limit: 5, duration: V2_DURATION_MAX_MS } };
    expect(await ratelimit.limit('own', more)).toMatchObject({ limit: 5, remaining: 1 });
    // Windows of different lengths have separate counters.
    const shorter = { limit: { limit: 4, duration: '29 d' as const } };
    expect(await ratelimit.limit('own', shorter)).toMatchObject({ limit: 4, remaining: 3 });
  });

  test('passes errors with their reason to onError, and throws them without it', async () => {
    const errors: string[] = [];
    const onError = (error: Error) => {
      errors.push(error.message);
      return { success: false, limit: 99, remaining: 0, reset: 0 };
    };
    const wrong = { rootKey: 'wrong' };
    expect(await limiter({ ...wrong, onError }).limit('user')).toMatchObject({ limit: 99 });
    await limiter({ duration: 5, onError }).limit('user');
    expect(errors).toEqual([
      expect.stringContaining('the API key is not known here'),
      expect.stringMatching(/\\"duration\\" must be an integer number of milliseconds from 1000/),
    ]);
    await expect(limiter(wrong).limit('user')).rejects.toThrow('the API key is not known here');
  });

  test('Overrides sets, gets, lists and deletes', async () => {
    const overrides = new Overrides({ rootKey: ROOT_KEY, baseUrl: server.url });
    const namespace = 'client-overrides';
    const texts = { namespace, identifier: 'vip_*' };
    const limits = { limit: 8, duration: V2_DURATION_MAX_MS };
    const { overrideId } = (await overrides.setOverride({ ...texts, ...limits })).data;
    const decision = { success: true, limit: 8, remaining: 7, overrideId };
    expect(await limiter({ namespace }).limit('vip_1')).toMatchObject(decision);
    const override = { overrideId, identifier: texts.identifier, ...limits };
    expect((await overrides.getOverride(texts)).data).toEqual(override);
    const listed = await overrides.listOverrides({ namespace });
    expect(listed).toMatchObject({ data: [override], pagination: { hasMore: false } });
    expect((await overrides.deleteOverride(texts)).data).toEqual({});
    await expect(overrides.getOverride(texts)).rejects.toThrow('there is no override');
  });
});
