/** The unmodified public clients of v2 against a running server, and v2 over plain HTTP. */

import { Unkey } from 'unkey-api-v2';
import type { V2RatelimitLimitRequestBody } from 'unkey-api-v2/models/components';
import {
  BadRequestErrorResponse,
  ForbiddenErrorResponse,
  NotFoundErrorResponse,
  UnauthorizedErrorResponse,
} from 'unkey-api-v2/models/errors';
import { Overrides, Ratelimit } from 'unkey-ratelimit-v2';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import {
  BODY_MAX_BYTES,
  MULTI_LIMIT_MAX,
  V2_DURATION_MAX_MS,
} from '../../../src/core/constants.ts';
import { type RequestParts, readMetric, sendRequest } from '../../support/http.ts';
import {
  DECIDE_MODES,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
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

describe.each(DECIDE_MODES)('with decisions %s:', (mode) => {
  const dataDir = temporaryDirectory();
  const keys = { reader: '', ofStored: '' };
  let server: ServerProcess;
  beforeAll(async () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ ...STORED, createdMs: 1 }]);
      keys.reader = addKey(store, { permissions: ['ratelimit.*.read_override'] });
      keys.ofStored = addKey(store, { permissions: [`ratelimit.${STORED.id}.limit`] });
    });
    server = await startServer(dataDir, {
      args: ['--acceptors', '2', '--counters', '1024', '--decide', mode],
    });
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
    /** The remaining tokens of an identifier, by a check without a cost. */
    const remainingOf = async (...[identifier, changes]: Parameters<typeof checkOf>) => {
      return (await limit(identifier, { ...changes, cost: 0 })).remaining;
    };

    describe('limit', () => {
      test('allows checks up to the limit, and then denies', async () => {
        for (let remaining = 4; remaining >= 0; remaining--) {
          const data = await limit('user');
          expect(data).toEqual({ success: true, limit: 5, remaining, reset: data.reset });
          expect(data.reset % LONGEST_V2_MS).toBe(0);
        }
        for (let i = 0; i < 2; i++) {
          expect(await limit('user')).toMatchObject({ success: false, limit: 5, remaining: 0 });
        }
      });

      test('charges the cost if allowed and nothing if denied; cost 0 is always allowed', async () => {
        expect(await limit('cost', { cost: 3 })).toMatchObject({ success: true, remaining: 2 });
        expect(await limit('cost', { cost: 3 })).toMatchObject({ success: false, remaining: 0 });
        expect(await limit('cost', { cost: 0 })).toMatchObject({ success: true, remaining: 2 });
        expect(await limit('cost', { cost: 2 })).toMatchObject({ success: true, remaining: 0 });
        expect(await limit('cost', { cost: 0 })).toMatchObject({ success: true, remaining: 0 });
      });

      test('uses one counter for the name and the id of a namespace', async () => {
        const results = [
          await limit('named', { namespace: STORED.name }),
          await limit('named', { namespace: STORED.id }),
          await limit('named', { namespace: STORED.name }),
          await limit('named'),
        ];
        expect(results.map(({ remaining }) => remaining)).toEqual([4, 3, 2, 4]);
      });

      test('distinguishes namespaces and identifiers exactly', async () => {
        for (const text of SPECIAL_TEXTS) {
          expect(await limit(text, { namespace: text })).toMatchObject({ remaining: 4 });
          expect(await limit(text, { namespace: text })).toMatchObject({ remaining: 3 });
        }
      });
    });

    describe('multiLimit', () => {
      const summary = ({ limits }: Awaited<ReturnType<typeof multiLimit>>) => {
        return limits.map(({ passed, remaining }) => [passed, remaining]);
      };

      test('charges all checks if all pass, and returns each in order', async () => {
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
        expect(await remainingOf('all')).toBe(3);
        expect(await remainingOf('all', { namespace: 'other', limit: 9 })).toBe(8);
      });

      test('charges no check if one fails, and returns the unchanged state', async () => {
        await limit('full', { cost: 5 });
        await limit('one', { cost: 2 });
        const checks = [checkOf('one'), checkOf('full'), checkOf('new')];
        const denied = await multiLimit(checks);
        expect(denied.passed).toBe(false);
        expect(denied.limits.map(({ identifier }) => identifier)).toEqual(['one', 'full', 'new']);
        expect(summary(denied)).toEqual([
          [true, 3],
          [false, 0],
          [true, 5],
        ]);
        const remaining = [await remainingOf('one'), await remainingOf('full')];
        expect([...remaining, await remainingOf('new')]).toEqual([3, 0, 5]);
      });

      test('decides checks of the same counter in sequence', async () => {
        const checks = [
          checkOf('same', { namespace: STORED.name, cost: 2 }),
          checkOf('same', { namespace: STORED.id, cost: 3 }),
        ];
        const passed = await multiLimit(checks);
        expect(summary(passed)).toEqual([
          [true, 3],
          [true, 0],
        ]);
        expect(passed.limits.map(({ namespace }) => namespace)).toEqual([STORED.name, STORED.id]);
        const tooMuch = [checkOf('twice', { cost: 3 }), checkOf('twice', { cost: 3 })];
        const denied = await multiLimit(tooMuch);
        expect(denied.passed).toBe(false);
        expect(summary(denied)).toEqual([
          [true, 5],
          [false, 0],
        ]);
        expect(await remainingOf('twice')).toBe(5);
      });

      test('accepts 1 to 100 checks', async () => {
        const checks = Array.from({ length: MULTI_LIMIT_MAX }, (_, i) => {
          return checkOf(`many_${i % 99}`, { cost: (i % 3) + 1 });
        });
        const { passed, limits } = await multiLimit(checks);
        expect(passed).toBe(true);
        // The last check has the same identifier as the first, and both cost 1.
        expect(limits.map(({ identifier, remaining }) => ({ identifier, remaining }))).toEqual(
          checks.map(({ identifier, cost }, i) => {
            return { identifier, remaining: i === MULTI_LIMIT_MAX - 1 ? 3 : 5 - cost! };
          }),
        );
        for (const count of [0, MULTI_LIMIT_MAX + 1]) {
          const wrong = Array.from({ length: count }, () => checkOf('many_0'));
          const { error } = await rejectionOf(BadRequestErrorResponse, client().multiLimit(wrong));
          expect(error.errors).toMatchObject([{ location: 'body' }]);
          expect(error.detail).toContain(`an array of 1 to ${MULTI_LIMIT_MAX} checks`);
        }
        expect(await remainingOf('many_0')).toBe(3);
      });

      test('accepts 100 checks with the longest texts', async () => {
        const namespace = '\u0000'.repeat(512);
        const checks = Array.from({ length: MULTI_LIMIT_MAX }, (_, i) => {
          return checkOf(String.fromCodePoint(0x20000 + i) + '\u0001'.repeat(511), { namespace });
        });
        const { passed, limits } = await multiLimit(checks);
        expect(passed).toBe(true);
        expect(limits.map(identityFields)).toEqual(checks.map(identityFields));
      });

      test('returns namespaces and identifiers unchanged', async () => {
        const checks = SPECIAL_TEXTS.flatMap((namespace) => {
          return SPECIAL_TEXTS.map((identifier) => checkOf(identifier, { namespace }));
        });
        const { limits } = await multiLimit(checks);
        expect(limits.map(identityFields)).toEqual(checks.map(identityFields));
      });
    });

    describe('overrides', () => {
      const limits = { limit: 3, duration: 60_000 };
      const setOverride = async (changes: { namespace: string; identifier: string }, limit = 3) => {
        return (await client().setOverride({ ...limits, limit, ...changes })).data.overrideId;
      };

      test('apply by identifier and by pattern, and responses contain their ids', async () => {
        const exact = await setOverride({ namespace: 'tiers', identifier: 'user_1' }, 7);
        const pattern = await setOverride({ namespace: 'tiers', identifier: 'user_*' });
        expect(new Set([exact, pattern]).size).toBe(2);
        for (const id of [exact, pattern]) expect(id).toMatch(/^rlor_/);
        const namespace = 'tiers';
        const ofExact = { success: true, limit: 7, remaining: 6, overrideId: exact };
        expect(await limit('user_1', { namespace })).toMatchObject(ofExact);
        const ofPattern = { limit: 3, remaining: 2, overrideId: pattern };
        expect(await limit('user_\u00e9 2', { namespace })).toMatchObject(ofPattern);
        expect((await limit('other', { namespace })).overrideId).toBeUndefined();
        const { limits: results } = await multiLimit([
          checkOf('user_1', { namespace }),
          checkOf('user_3', { namespace }),
          checkOf('other', { namespace }),
        ]);
        expect(results).toMatchObject([
          { limit: 7, remaining: 5, overrideId: exact },
          { limit: 3, remaining: 2, overrideId: pattern },
          { limit: 5, remaining: 3 },
        ]);
        expect(results[2].overrideId).toBeUndefined();
      });

      test('apply in all namespaces that match a pattern, including later ones', async () => {
        const texts = { namespace: 'tenant_*', identifier: 'burst' };
        const overrideId = await setOverride(texts);
        expect(await limit('burst', { namespace: 'tenant_1' })).toMatchObject({
          ...{ limit: 3, remaining: 2, overrideId },
        });
        expect((await client().getOverride(texts)).data).toMatchObject({ overrideId });
      });

      test('with limit 0 deny, which is no error', async () => {
        const overrideId = await setOverride({ namespace: 'blocked', identifier: 'spammer' }, 0);
        const blocked = { limit: 0, remaining: 0, overrideId };
        const check = checkOf('spammer', { namespace: 'blocked' });
        const { data } = await client().limit(check);
        expect(data).toMatchObject({ ...blocked, success: false });
        const { passed, limits: results } = await multiLimit([checkOf('other'), check]);
        expect(passed).toBe(false);
        expect(results[1]).toMatchObject({ ...blocked, passed: false });
        expect(await remainingOf('other')).toBe(5);
      });

      test('keep their id when set again, and do not apply after deletion', async () => {
        const texts = { namespace: 'sdk', identifier: 'user_*' };
        const { namespace, identifier } = texts;
        const overrideId = await setOverride(texts);
        const got = await client().getOverride(texts);
        expect(got.data).toEqual({ overrideId, identifier, ...limits });
        expect(await setOverride(texts, 4)).toBe(overrideId);
        expect((await client().getOverride(texts)).data).toMatchObject({ overrideId, limit: 4 });
        expect(await limit('user_1', { namespace })).toMatchObject({ limit: 4, overrideId });
        expect((await client().deleteOverride(texts)).data).toEqual({});
        for (let i = 0; i < 5; i++) {
          const data = await limit(`user_${i}`, { namespace });
          expect([data.limit, data.overrideId]).toEqual([5, undefined]);
        }
        for (const operation of ['getOverride', 'deleteOverride'] as const) {
          const { error } = await rejectionOf(NotFoundErrorResponse, client()[operation](texts));
          expect(error.detail).toContain('"user_*"');
        }
        expect(await setOverride(texts)).not.toBe(overrideId);
      });

      test('are listed in pages, and the last page has no next one', async () => {
        const namespace = 'listed';
        const identifiers = ['user_1', 'a*', '*', 'quoted " \\', '\u00e9 \n'];
        const overrides = [];
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
        const pages = await pagesOf();
        const [first, second, third] = pages;
        expect(pages.map(({ data }) => data)).toEqual([
          overrides.slice(0, 2),
          overrides.slice(2, 4),
          overrides.slice(4),
        ]);
        const cursor = expect.stringMatching(/./);
        expect(first.pagination).toEqual({ hasMore: true, cursor });
        expect(second.pagination).toEqual({ hasMore: true, cursor });
        expect(third.pagination).toEqual({ hasMore: false });
        const from = { namespace, limit: 2, cursor: first.pagination.cursor! };
        const again = await client().listOverrides(from);
        expect(again.result.data).toEqual(second.data);
        expect((await again.next())?.result.data).toEqual(third.data);
        // A full last page has no next one either.
        await client().deleteOverride({ namespace, identifier: '*' });
        expect((await pagesOf()).map(({ data, pagination }) => [data.length, pagination])).toEqual([
          [2, { hasMore: true, cursor }],
          [2, { hasMore: false }],
        ]);
        const { result } = await client().listOverrides({ namespace });
        expect(result.data.map(({ identifier }) => identifier)).toEqual(
          identifiers.filter((identifier) => identifier !== '*'),
        );
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
        ...(await Promise.all(Array.from({ length: 50 }, () => unkey.limit(checkOf('ids'))))),
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

    describe('errors', () => {
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

      test.each([
        { what: 'no', field: 'limit', changes: { limit: 0 } },
        { what: 'too short a', field: 'duration', changes: { duration: 999 } },
        { what: 'too long a', field: 'duration', changes: { duration: LONGEST_V2_MS + 1 } },
        { what: 'a negative', field: 'cost', changes: { cost: -1 } },
        { what: 'an empty', field: 'identifier', changes: { identifier: '' } },
        { what: 'too long an', field: 'identifier', changes: { identifier: 'i'.repeat(513) } },
        { what: 'an empty', field: 'namespace', changes: { namespace: '' } },
      ])(
        'a check with $what $field is a bad request that names the field',
        async ({ field, changes }) => {
          const wrong = checkOf('bad', changes);
          const one = await rejectionOf(BadRequestErrorResponse, client().limit(wrong));
          await expectError(one, 400, 'Bad Request');
          const message = expect.stringContaining(`"${field}" must be `);
          expect(one.error.errors).toEqual([
            { location: `body.${field}`, message, fix: expect.stringMatching(/^give /) },
          ]);
          expect(one.error.detail).toEqual(message);
          const many = client().multiLimit([checkOf('bad'), wrong]);
          const second = await rejectionOf(BadRequestErrorResponse, many);
          expect(second.error.errors).toMatchObject([{ location: `body[1].${field}`, message }]);
          expect(await remainingOf('bad')).toBe(5);
        },
      );

      test('an invalid override is a bad request that names the field', async () => {
        const override = { namespace: 'bad', identifier: 'user', limit: 1, duration: 1_000 };
        for (const [changes, location] of [
          [{ limit: -1 }, 'body.limit'],
          [{ duration: 999 }, 'body.duration'],
          [{ identifier: '' }, 'body.identifier'],
          [{ identifier: '*-'.repeat(17) }, 'body.identifier'],
          [{ namespace: '*-'.repeat(17) }, 'body.namespace'],
        ] as const) {
          const setting = client().setOverride({ ...override, ...changes });
          const { error } = await rejectionOf(BadRequestErrorResponse, setting);
          expect(error.errors).toMatchObject([{ location }]);
        }
        const listing = client().listOverrides({ namespace: STORED.id, limit: 101 });
        const { error } = await rejectionOf(BadRequestErrorResponse, listing);
        expect(error.errors).toMatchObject([{ location: 'body.limit' }]);
      });

      test('an unknown key is unauthorized, a missing one a bad request', async () => {
        const wrong = await rejectionOf(
          UnauthorizedErrorResponse,
          client('wrong').limit(checkOf('k')),
        );
        await expectError(wrong, 401, 'Unauthorized');
        const none = new Unkey({ serverURL: server.url }).ratelimit.limit(checkOf('k'));
        const missing = await rejectionOf(BadRequestErrorResponse, none);
        await expectError(missing, 400, 'Bad Request');
        expect(missing.error.errors).toMatchObject([{ location: 'header.authorization' }]);
      });

      test('a key without the permission is forbidden, and the error names the permission', async () => {
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
          for (const where of ['*', STORED.id]) {
            expect(forbidden.error.detail).toContain(`"ratelimit.${where}.${action}"`);
          }
        }
      });

      test('a multiLimit with a forbidden check charges nothing', async () => {
        const checks = [checkOf('part', { namespace: STORED.id }), checkOf('part')];
        const unkey = client(keys.ofStored);
        const { error } = await rejectionOf(ForbiddenErrorResponse, unkey.multiLimit(checks));
        expect(error.detail).toContain('"ratelimit.*.limit"');
        const { data } = await unkey.multiLimit(checks.slice(0, 1));
        expect(data.limits).toMatchObject([{ namespace: STORED.id, passed: true, remaining: 4 }]);
        expect(await remainingOf('part')).toBe(5);
      });

      test('an unknown namespace or override is not found', async () => {
        const namespace = 'rlns_unknown';
        const texts = { namespace: STORED.name, identifier: 'unknown' };
        const unkey = client();
        for (const [name, send] of [
          ['unknown', () => unkey.getOverride(texts)],
          ['unknown', () => unkey.deleteOverride(texts)],
          [namespace, () => unkey.limit(checkOf('lost', { namespace }))],
          [namespace, () => unkey.multiLimit([checkOf('lost'), checkOf('lost', { namespace })])],
          [namespace, () => unkey.setOverride({ ...texts, namespace, limit: 1, duration: 1_000 })],
          [namespace, () => unkey.getOverride({ ...texts, namespace })],
          [namespace, () => unkey.listOverrides({ namespace })],
          ['no such name', () => unkey.listOverrides({ namespace: 'no such name' })],
        ] as const) {
          const missing = await rejectionOf(NotFoundErrorResponse, send());
          await expectError(missing, 404, 'Not Found');
          expect(missing.error.detail).toContain(`"${name}"`);
        }
        expect(await remainingOf('lost')).toBe(5);
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
          ms: '5s',
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

    test('remembers a denial, and sends no further check', async () => {
      const ratelimit = limiter({ namespace: STORED.name });
      await ratelimit.limit('naughty', { cost: 3 });
      const denial = await ratelimit.limit('naughty');
      expect(denial.success).toBe(false);
      const before = await decidedInStored();
      for (let i = 0; i < 5; i++) expect(await ratelimit.limit('naughty')).toEqual(denial);
      expect(await decidedInStored()).toBe(before);
      expect(await ratelimit.limit('nice')).toMatchObject({ success: true });
      expect(await decidedInStored()).toBe(before + 1);
    });

    test('gets a reset after which a denied identifier is allowed', async () => {
      const ratelimit = limiter({ namespace: STORED.name, limit: 10, duration: '1s' });
      expect(await ratelimit.limit('short', { cost: 10 })).toMatchObject({ success: true });
      // The whole limit again, which is too much in the next window as well.
      const denial = await ratelimit.limit('short', { cost: 10 });
      expect(denial).toMatchObject({ success: false, remaining: 0 });
      await waitUntil('the denial is over', () => Date.now() > denial.reset + 20);
      const before = await decidedInStored();
      // The usage of the previous window has a smaller weight by then.
      const decision = await ratelimit.limit('short');
      expect(decision.success).toBe(true);
      expect(decision.reset).toBeGreaterThan(denial.reset);
      expect(await decidedInStored()).toBe(before + 1);
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
      expect(errors).toEqual([
        ['user', expect.stringContaining('the API key is not known here')],
        [
          'user',
          expect.stringMatching(
            /\\"duration\\" must be an integer number of milliseconds from 1000/,
          ),
        ],
      ]);
      await expect(limiter(wrong).limit('user')).rejects.toThrow('the API key is not known here');
    });

    test('Overrides sets, gets, lists and deletes', async () => {
      const overrides = new Overrides({ rootKey: ROOT_KEY, baseUrl: server.url });
      const namespace = 'client-overrides';
      const texts = { namespace, identifier: 'vip_*' };
      const limits = { limit: 8, duration: LONGEST_V2_MS };
      const set = await overrides.setOverride({ ...texts, ...limits });
      const { overrideId } = set.data;
      const decision = { success: true, limit: 8, remaining: 7, overrideId };
      expect(await limiter({ namespace }).limit('vip_1')).toMatchObject(decision);
      const override = { overrideId, identifier: texts.identifier, ...limits };
      expect((await overrides.getOverride(texts)).data).toEqual(override);
      const listed = await overrides.listOverrides({ namespace });
      expect(listed).toMatchObject({ data: [override], pagination: { hasMore: false } });
      expect((await overrides.deleteOverride(texts)).data).toEqual({});
      expect((await overrides.listOverrides({ namespace })).data).toEqual([]);
      await expect(overrides.getOverride(texts)).rejects.toThrow('there is no override');
      const without = await limiter({ namespace }).limit('vip_1');
      expect([without.limit, without.overrideId]).toEqual([3, undefined]);
    });
  });

  describe('over plain HTTP,', () => {
    const path = '/v2/ratelimit.limit';
    const send = async (parts: RequestParts) => {
      const { status, headers, body } = await sendRequest(server.port, { path, ...parts });
      return { status, headers, json: JSON.parse(body) as Record<string, unknown> };
    };
    const meta = { requestId: expect.stringMatching(/^req_/) };

    test('responses contain meta and data, and nothing else', async () => {
      const override = { namespace: 'http', identifier: 'user', limit: 5, duration: LONGEST_V2_MS };
      const { namespace, identifier } = override;
      const texts = { namespace, identifier };
      const overrideId = expect.stringMatching(/^rlor_/);
      const reset = expect.any(Number);
      const decision = { limit: 5, remaining: 4, reset, overrideId };
      const listed = [{ overrideId, identifier, limit: 5, duration: LONGEST_V2_MS }];
      const many = [{ ...texts, ...decision, remaining: 3, passed: true }];
      for (const [operation, body, expected] of [
        ['setOverride', override, { data: { overrideId } }],
        ['getOverride', texts, { data: listed[0] }],
        ['listOverrides', { namespace }, { data: listed, pagination: { hasMore: false } }],
        ['limit', override, { data: { ...decision, success: true } }],
        ['multiLimit', [override], { data: { passed: true, limits: many } }],
        ['deleteOverride', texts, { data: {} }],
      ] as const) {
        const parts = { path: `/v2/ratelimit.${operation}`, body: JSON.stringify(body) };
        const { status, headers, json } = await send(parts);
        expect([operation, status, json]).toEqual([operation, 200, { meta, ...expected }]);
        expect(headers['content-type']).toBe('application/json');
      }
    });

    test('an unknown field of a body is rejected, and the error names it', async () => {
      const unknown = { colour: 'red' };
      const check = checkOf('unknown');
      for (const [operation, body, location] of [
        ['limit', { ...check, ...unknown }, 'body.colour'],
        ['multiLimit', [check, { ...check, ...unknown }], 'body[1].colour'],
        ['setOverride', { ...check, ...unknown }, 'body.colour'],
        ['getOverride', { ...identityFields(check), ...unknown }, 'body.colour'],
        ['listOverrides', { namespace: 'api', ...unknown }, 'body.colour'],
        ['deleteOverride', { ...identityFields(check), ...unknown }, 'body.colour'],
      ] as const) {
        const parts = { path: `/v2/ratelimit.${operation}`, body: JSON.stringify(body) };
        const { status, json } = await send(parts);
        expect([operation, status]).toEqual([operation, 400]);
        const message = expect.stringContaining('"colour"');
        const fault = { location, message };
        expect(json).toMatchObject({ meta, error: { detail: message, errors: [fault] } });
      }
      // Property names of every JavaScript object are unknown fields as well.
      for (const name of ['__proto__', 'constructor']) {
        const body = JSON.stringify(check).replace('{', `{"${name}":1,`);
        const { status, json } = await send({ body });
        expect([name, status]).toEqual([name, 400]);
        expect(json).toMatchObject({ error: { errors: [{ location: `body.${name}` }] } });
      }
    });

    const valid = JSON.stringify(checkOf('http'));
    const withKey = (Authorization: string) => ({ headers: { Authorization }, body: valid });
    const asText = { headers: { 'Content-Type': 'text/plain' }, body: valid };
    test.each<[string, number, string, RequestParts]>([
      ['no JSON', 400, 'Bad Request', { body: '{' }],
      ['no object', 400, 'Bad Request', { body: '[]' }],
      ['no key', 400, 'Bad Request', withKey('')],
      ['a key without its scheme', 400, 'Bad Request', withKey(ROOT_KEY)],
      ['an unknown key', 401, 'Unauthorized', withKey('Bearer wrong')],
      ['an unknown path', 404, 'Not Found', { path: '/v2/ratelimit.nothing', body: valid }],
      ['another method', 405, 'Method Not Allowed', { method: 'GET' }],
      ['a large body', 413, 'Payload Too Large', { body: ' '.repeat(BODY_MAX_BYTES + 1) }],
      ['another type', 415, 'Unsupported Media Type', asText],
    ])(
      '%s gets %i in JSON, with the request id in a header too',
      async (_, status, title, parts) => {
        const { headers, json, ...rest } = await send(parts);
        expect(rest.status).toBe(status);
        expect(headers['content-type']).toBe('application/json');
        const error = { status, title, detail: expect.any(String), type: expect.any(String) };
        const errors = [{ location: expect.any(String), message: expect.any(String) }];
        const { error: received } = json;
        expect(json).toEqual({ meta: { requestId: headers['x-request-id'] }, error: received });
        expect(headers['x-request-id']).toMatch(/^req_/);
        expect(received).toMatchObject(status === 400 ? { ...error, errors } : error);
      },
    );
  });
});

/** The fields of a check that an item of a multiLimit response repeats. */
function identityFields({ namespace, identifier }: { namespace: string; identifier: string }) {
  return { namespace, identifier };
}
