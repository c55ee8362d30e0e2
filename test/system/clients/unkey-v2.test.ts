/**
 * The unmodified public clients of v2 against a running server: each operation, and each class of
 * errors. test/api/v2.test.ts has the rules of v2.
 */

import { Unkey } from 'unkey-api-v2';
import type { V2RatelimitLimitRequestBody } from 'unkey-api-v2/models/components';
import {
  BadRequestErrorResponse,
  ForbiddenErrorResponse,
  NotFoundErrorResponse,
  UnauthorizedErrorResponse,
} from 'unkey-api-v2/models/errors';
import { Overrides, Ratelimit } from 'unkey-ratelimit-v2';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { MULTI_LIMIT_MAX, V2_DURATION_MAX_MS } from '../../../src/core/constants.ts';
import { readMetric } from '../../support/http.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type SteppedServer,
  startSteppedServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { addKey, addRecords, withStore } from '../../support/store.ts';

/** The longest duration of v2. */
const LONGEST_V2_MS = V2_DURATION_MAX_MS;
const STORED = { id: 'rlns_stored', name: 'stored' };
/** Texts with characters that JSON escapes, or that have a special meaning in other formats. */
const SPECIAL_TEXTS = [
  'a "quoted" \\ name',
  "'); DROP TABLE \u00e9 \u044f \u6f22",
  '\u0000\b\t\n\f\r\u001b\u001f\u007f\u2028\u2029\ufeff\uffff',
  '\u{1f5dd}'.repeat(512),
  '__proto__',
  '</script>',
];

/** The error of a failing request. Rejects if it succeeds, or fails with another class. */
async function rejectionOf<E extends Error>(
  kind: new (...args: never[]) => E,
  failing: Promise<unknown>,
): Promise<E> {
  const error = await failing.then(
    () => new Error('the request succeeded'),
    (reason: unknown) => reason,
  );
  if (error instanceof kind) return error;
  throw new Error(`not a ${kind.name}: ${error}`, { cause: error });
}

/** The fields of a check that an item of a multiLimit response repeats. */
function identityFields({ namespace, identifier }: { namespace: string; identifier: string }) {
  return { namespace, identifier };
}

const dataDir = temporaryDirectory();
const keys = { reader: '', ofStored: '' };
let server: SteppedServer;
beforeAll(async () => {
  withStore(dataDir, (store) => {
    addRecords(store, 'namespaces', [{ ...STORED, createdMs: 1 }]);
    keys.reader = addKey(store, { permissions: ['ratelimit.*.read_override'] });
    keys.ofStored = addKey(store, { permissions: [`ratelimit.${STORED.id}.limit`] });
  });
  server = await startSteppedServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

const checkOf = (identifier: string, changes: Partial<V2RatelimitLimitRequestBody> = {}) => ({
  ...{ namespace: 'api', identifier, limit: 5, duration: LONGEST_V2_MS },
  ...changes,
});

describe('@unkey/api 2.5.1', () => {
  const client = (rootKey: string = ROOT_KEY) => {
    return new Unkey({ serverURL: server.url, rootKey }).ratelimit;
  };
  const limit = async (...[identifier, changes]: Parameters<typeof checkOf>) => {
    return (await client().limit(checkOf(identifier, changes))).data;
  };
  const multiLimit = async (checks: V2RatelimitLimitRequestBody[]) => {
    return (await client().multiLimit(checks)).data;
  };

  test('limit allows checks up to the limit, and then denies', async () => {
    for (let remaining = 4; remaining >= 0; remaining--) {
      const data = await limit('user');
      expect(data).toEqual({ success: true, limit: 5, remaining, reset: data.reset });
      expect(data.reset % LONGEST_V2_MS).toBe(0);
    }
    expect(await limit('user')).toMatchObject({ success: false, limit: 5, remaining: 0 });
  });

  test('limit charges the cost if allowed and nothing if denied', async () => {
    expect(await limit('cost', { cost: 3 })).toMatchObject({ success: true, remaining: 2 });
    expect(await limit('cost', { cost: 3 })).toMatchObject({ success: false, remaining: 0 });
    expect(await limit('cost', { cost: 0 })).toMatchObject({ success: true, remaining: 2 });
  });

  test('multiLimit charges all checks if all pass, and returns each in order', async () => {
    const checks = [
      checkOf('all', { cost: 2 }),
      checkOf('all', { namespace: 'other', limit: 9 }),
      checkOf('all', { namespace: STORED.id, cost: 0 }),
    ];
    const { passed, limits } = await multiLimit(checks);
    const { reset } = await limit('all', { cost: 0 });
    expect(passed).toBe(true);
    expect(limits).toEqual([
      { ...identityFields(checks[0]), limit: 5, remaining: 3, reset, passed: true },
      { ...identityFields(checks[1]), limit: 9, remaining: 8, reset, passed: true },
      { ...identityFields(checks[2]), limit: 5, remaining: 5, reset, passed: true },
    ]);
  });

  test('multiLimit charges no check if one fails, and returns the unchanged state', async () => {
    await limit('full', { cost: 5 });
    await limit('one', { cost: 2 });
    const { passed, limits } = await multiLimit([checkOf('one'), checkOf('full'), checkOf('new')]);
    expect(passed).toBe(false);
    expect(limits).toMatchObject([
      { identifier: 'one', passed: true, remaining: 3 },
      { identifier: 'full', passed: false, remaining: 0 },
      { identifier: 'new', passed: true, remaining: 5 },
    ]);
    expect(await limit('one', { cost: 0 })).toMatchObject({ remaining: 3 });
  });

  test('multiLimit accepts 1 to 100 checks with the longest texts', async () => {
    const namespace = '\u0000'.repeat(512);
    const checks = Array.from({ length: MULTI_LIMIT_MAX }, (_, i) => {
      return checkOf(String.fromCodePoint(0x20000 + i) + '\u0001'.repeat(511), { namespace });
    });
    const { passed, limits } = await multiLimit(checks);
    expect(passed).toBe(true);
    expect(limits.map(identityFields)).toEqual(checks.map(identityFields));
    for (const wrong of [[], [...checks, checkOf('one more')]]) {
      const { error } = await rejectionOf(BadRequestErrorResponse, client().multiLimit(wrong));
      expect(error.errors).toMatchObject([{ location: 'body' }]);
    }
  });

  test('multiLimit returns namespaces and identifiers unchanged', async () => {
    const checks = SPECIAL_TEXTS.flatMap((namespace) => {
      return SPECIAL_TEXTS.map((identifier) => checkOf(identifier, { namespace }));
    });
    const { limits } = await multiLimit(checks);
    expect(limits.map(identityFields)).toEqual(checks.map(identityFields));
  });

  describe('overrides', () => {
    const limits = { limit: 3, duration: 60_000 };
    const setOverride = async (changes: { namespace: string; identifier: string }, limit = 3) => {
      return (await client().setOverride({ ...limits, limit, ...changes })).data.overrideId;
    };

    test('apply by identifier and by pattern, and responses contain their ids', async () => {
      const namespace = 'tiers';
      const exact = await setOverride({ namespace, identifier: 'user_1' }, 7);
      const pattern = await setOverride({ namespace, identifier: 'user_*' });
      const blocked = await setOverride({ namespace, identifier: 'spammer' }, 0);
      const ofExact = { success: true, limit: 7, remaining: 6, overrideId: exact };
      expect(await limit('user_1', { namespace })).toMatchObject(ofExact);
      const ofPattern = { limit: 3, remaining: 2, overrideId: pattern };
      expect(await limit('user_\u00e9 2', { namespace })).toMatchObject(ofPattern);
      expect((await limit('other', { namespace })).overrideId).toBeUndefined();
      const { passed, limits: results } = await multiLimit([
        checkOf('user_1', { namespace }),
        checkOf('user_3', { namespace }),
        checkOf('spammer', { namespace }),
      ]);
      expect(passed).toBe(false);
      expect(results).toMatchObject([
        { limit: 7, remaining: 6, overrideId: exact },
        { limit: 3, remaining: 3, overrideId: pattern },
        { limit: 0, remaining: 0, overrideId: blocked, passed: false },
      ]);
    });

    test('are set, read, changed and deleted, and keep their id when set again', async () => {
      const texts = { namespace: 'sdk', identifier: 'user_*' };
      const { namespace, identifier } = texts;
      const overrideId = await setOverride(texts);
      const got = await client().getOverride(texts);
      expect(got.data).toEqual({ overrideId, identifier, ...limits });
      expect(await setOverride(texts, 4)).toBe(overrideId);
      expect(await limit('user_1', { namespace })).toMatchObject({ limit: 4, overrideId });
      expect((await client().deleteOverride(texts)).data).toEqual({});
      const { limit: own, overrideId: none } = await limit('user_1', { namespace });
      expect([own, none]).toEqual([5, undefined]);
      for (const operation of ['getOverride', 'deleteOverride'] as const) {
        const { error } = await rejectionOf(NotFoundErrorResponse, client()[operation](texts));
        expect(error.detail).toContain('"user_*"');
      }
    });

    test('are listed in pages, and the last page has no next one', async () => {
      const namespace = 'listed';
      const identifiers = ['user_1', 'a*', '*', 'quoted " \\', '\u00e9 \n'];
      const overrides: { overrideId: string; identifier: string }[] = [];
      for (const identifier of identifiers) {
        const overrideId = await setOverride({ namespace, identifier });
        overrides.push({ overrideId, identifier, ...limits });
      }
      const pagesOf = async () => {
        const pages = [];
        for await (const { result } of await client().listOverrides({ namespace, limit: 2 })) {
          pages.push(result);
        }
        return pages;
      };
      const more = { hasMore: true, cursor: expect.stringMatching(/./) };
      expect(await pagesOf()).toMatchObject([
        { data: overrides.slice(0, 2), pagination: more },
        { data: overrides.slice(2, 4), pagination: more },
        { data: overrides.slice(4), pagination: { hasMore: false } },
      ]);
      // A full last page has no next one either.
      await client().deleteOverride({ namespace, identifier: '*' });
      const [, { data, pagination }, ...others] = await pagesOf();
      expect([data.length, pagination, others]).toEqual([2, { hasMore: false }, []]);
    });
  });

  test('each response has its own request id', async () => {
    const of = { namespace: 'ids', identifier: 'user' };
    const unkey = client();
    const responses = [
      await unkey.setOverride({ ...of, limit: 1, duration: 1_000 }),
      await unkey.getOverride(of),
      (await unkey.listOverrides({ namespace: 'ids' })).result,
      await unkey.limit(checkOf('user')),
      await unkey.multiLimit([checkOf('user')]),
      await unkey.deleteOverride(of),
      await rejectionOf(NotFoundErrorResponse, unkey.getOverride(of)),
    ];
    const ids = responses.map(({ meta }) => meta.requestId);
    for (const id of ids) expect(id).toMatch(/^req_/);
    expect(new Set(ids).size).toBe(responses.length);
  });

  test('a server URL may end with a slash', async () => {
    const unkey = new Unkey({ serverURL: `${server.url}/`, rootKey: ROOT_KEY });
    const { data } = await unkey.ratelimit.limit(checkOf('slash'));
    expect(data).toMatchObject({ success: true, remaining: 4 });
  });

  describe('an error', () => {
    /** Checks the fields that all errors have. */
    const expectError = async (
      { error, meta, headers }: UnauthorizedErrorResponse | BadRequestErrorResponse,
      status: number,
      title: string,
    ) => {
      expect(error).toMatchObject({ status, title });
      expect(headers.get('X-Request-Id')).toBe(meta.requestId);
      expect((await fetch(error.type)).status).toBe(200);
    };

    test('of an invalid field is a bad request that names the field', async () => {
      const wrong = checkOf('bad', { duration: 999 });
      const one = await rejectionOf(BadRequestErrorResponse, client().limit(wrong));
      await expectError(one, 400, 'Bad Request');
      const message = expect.stringContaining('"duration" must be ');
      const fix = expect.stringMatching(/^give /);
      expect(one.error.errors).toEqual([{ location: 'body.duration', message, fix }]);
      expect(one.error.detail).toEqual(message);
      const many = client().multiLimit([checkOf('bad'), wrong]);
      const second = await rejectionOf(BadRequestErrorResponse, many);
      expect(second.error.errors).toMatchObject([{ location: 'body[1].duration', message }]);
      const override = { namespace: 'bad', identifier: 'user', limit: -1, duration: 1_000 };
      const third = await rejectionOf(BadRequestErrorResponse, client().setOverride(override));
      expect(third.error.errors).toMatchObject([{ location: 'body.limit' }]);
    });

    test('of an unknown key is unauthorized, of a missing one a bad request', async () => {
      const limiting = client('wrong').limit(checkOf('k'));
      const wrong = await rejectionOf(UnauthorizedErrorResponse, limiting);
      await expectError(wrong, 401, 'Unauthorized');
      const none = new Unkey({ serverURL: server.url }).ratelimit.limit(checkOf('k'));
      const missing = await rejectionOf(BadRequestErrorResponse, none);
      await expectError(missing, 400, 'Bad Request');
      expect(missing.error.errors).toMatchObject([{ location: 'header.authorization' }]);
    });

    test('of a key without the permission is forbidden, and names the permission', async () => {
      const reader = client(keys.reader);
      const texts = { namespace: STORED.id, identifier: 'user' };
      expect((await reader.listOverrides(texts)).result.data).toEqual([]);
      for (const [action, send] of [
        ['limit', () => reader.limit(checkOf('forbidden', texts))],
        ['limit', () => reader.multiLimit([checkOf('forbidden', texts)])],
        ['set_override', () => reader.setOverride({ ...texts, limit: 1, duration: 1_000 })],
        ['delete_override', () => reader.deleteOverride(texts)],
      ] as const) {
        const forbidden = await rejectionOf(ForbiddenErrorResponse, send());
        await expectError(forbidden, 403, 'Forbidden');
        expect(forbidden.error.detail).toContain(`"ratelimit.${STORED.id}.${action}"`);
      }
      const both = [checkOf('part', { namespace: STORED.id }), checkOf('part')];
      const unkey = client(keys.ofStored);
      const { error } = await rejectionOf(ForbiddenErrorResponse, unkey.multiLimit(both));
      expect(error.detail).toContain('"ratelimit.*.limit"');
      const { data } = await unkey.multiLimit(both.slice(0, 1));
      expect(data.limits).toMatchObject([{ namespace: STORED.id, passed: true, remaining: 4 }]);
    });

    test('of an unknown namespace is not found, and names it', async () => {
      const namespace = 'rlns_unknown';
      const override = { namespace, identifier: 'unknown' };
      const unkey = client();
      for (const send of [
        () => unkey.limit(checkOf('lost', { namespace })),
        () => unkey.multiLimit([checkOf('lost'), checkOf('lost', { namespace })]),
        () => unkey.setOverride({ ...override, limit: 1, duration: 1_000 }),
        () => unkey.getOverride(override),
        () => unkey.listOverrides({ namespace }),
      ]) {
        const missing = await rejectionOf(NotFoundErrorResponse, send());
        await expectError(missing, 404, 'Not Found');
        expect(missing.error.detail).toContain(`"${namespace}"`);
      }
    });
  });
});

describe('@unkey/ratelimit 2.1.4', () => {
  const timedOut: string[] = [];
  const fallback = { success: false, limit: -1, remaining: 0, reset: 0 };
  const limiter = (changes: Partial<ConstructorParameters<typeof Ratelimit>[0]> = {}) => {
    return new Ratelimit({
      ...{ rootKey: ROOT_KEY, baseUrl: server.url, namespace: 'client', limit: 3 },
      duration: `${LONGEST_V2_MS / 86_400_000}d`,
      timeout: {
        ms: '50s',
        fallback: (identifier) => {
          timedOut.push(identifier);
          return fallback;
        },
      },
      ...changes,
    });
  };
  /** Checks decided so far in a stored namespace. A new namespace would be counted later. */
  const decidedInStored = async () => {
    const [allowed, denied] = await Promise.all(
      ['allowed', 'denied'].map((outcome) => {
        const labels = `{namespace="${STORED.name}",outcome="${outcome}"}`;
        return readMetric(server.adminUrl, `weir_decisions_total${labels}`);
      }),
    );
    return allowed + denied;
  };
  afterEach(() => {
    expect(timedOut).toEqual([]);
  });

  test('is allowed up to the limit, and then denied', async () => {
    const ratelimit = limiter();
    for (let remaining = 2; remaining >= 0; remaining--) {
      const decision = await ratelimit.limit('user');
      expect(decision).toMatchObject({ success: true, limit: 3, remaining });
      expect(decision.reset % LONGEST_V2_MS).toBe(0);
    }
    const denied = { success: false, limit: 3, remaining: 0 };
    expect(await ratelimit.limit('user')).toMatchObject(denied);
  });

  test('supports a cost', async () => {
    const allowed = (remaining: number) => ({ success: true, limit: 3, remaining });
    const ratelimit = limiter();
    expect(await ratelimit.limit('cost', { cost: 2 })).toMatchObject(allowed(1));
    expect(await ratelimit.limit('cost', { cost: 2 })).toMatchObject({ success: false });
    // New clients, which remember no denial.
    expect(await limiter().limit('cost', { cost: 0 })).toMatchObject(allowed(1));
    expect(await limiter().limit('cost', { cost: 1 })).toMatchObject(allowed(0));
  });

  test('supports another limit and window in one call', async () => {
    const ratelimit = limiter();
    await ratelimit.limit('own', { cost: 3 });
    const more = { limit: { limit: 5, duration: LONGEST_V2_MS } };
    expect(await ratelimit.limit('own', more)).toMatchObject({ limit: 5, remaining: 1 });
    // Windows of different lengths have separate counters.
    const shorter = { limit: { limit: 4, duration: '29 d' as const } };
    expect(await ratelimit.limit('own', shorter)).toMatchObject({ limit: 4, remaining: 3 });
    expect(await ratelimit.limit('own')).toMatchObject({ success: false, limit: 3 });
  });

  test('remembers a denial, and sends no further check until its reset', async () => {
    const ratelimit = limiter({ namespace: STORED.name, limit: 10, duration: '1h' });
    expect(await ratelimit.limit('naughty', { cost: 10 })).toMatchObject({ success: true });
    // The whole limit again, which is too much in the next window as well.
    const denial = await ratelimit.limit('naughty', { cost: 10 });
    expect(denial).toMatchObject({ success: false, remaining: 0 });
    const before = await decidedInStored();
    for (let i = 0; i < 5; i++) {
      expect(await ratelimit.limit('naughty', { cost: 10 })).toEqual(denial);
    }
    expect(await decidedInStored()).toBe(before);
    expect(await ratelimit.limit('nice')).toMatchObject({ success: true });
    expect(await decidedInStored()).toBe(before + 1);
    // The usage of the previous window has half its weight by then.
    await server.stepClock(denial.reset - server.nowMs() + 1_800_000);
    vi.useFakeTimers({ toFake: ['Date'], now: server.nowMs() });
    try {
      const decision = await ratelimit.limit('naughty');
      expect(decision.success).toBe(true);
      expect(decision.reset).toBeGreaterThan(denial.reset);
    } finally {
      vi.useRealTimers();
    }
    expect(await decidedInStored()).toBe(before + 2);
  });

  test('passes errors with their reason to onError, and throws them without it', async () => {
    const errors: [string, string][] = [];
    const onError = (error: Error, identifier: string) => {
      errors.push([identifier, error.message]);
      return { ...fallback, limit: 99 };
    };
    const wrong = { rootKey: 'wrong' };
    const decision = await limiter({ ...wrong, onError }).limit('user');
    expect(decision).toMatchObject({ success: false, limit: 99 });
    await limiter({ duration: 5, onError }).limit('user');
    const message = /\\"duration\\" must be an integer number of milliseconds from 1000/;
    expect(errors).toEqual([
      ['user', expect.stringContaining('the API key is not known here')],
      ['user', expect.stringMatching(message)],
    ]);
    await expect(limiter(wrong).limit('user')).rejects.toThrow('the API key is not known here');
  });

  test('Overrides sets, gets, lists and deletes', async () => {
    const overrides = new Overrides({ rootKey: ROOT_KEY, baseUrl: server.url });
    const namespace = 'client-overrides';
    const texts = { namespace, identifier: 'vip_*' };
    const limits = { limit: 8, duration: LONGEST_V2_MS };
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
