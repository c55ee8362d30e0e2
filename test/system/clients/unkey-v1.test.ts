/** The unmodified public clients of v1 against a running server. */

import { Unkey } from '@unkey/api';
import { Ratelimit } from '@unkey/ratelimit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';

const dataDir = temporaryDirectory();
let server: ServerProcess;
beforeAll(async () => {
  server = await startServer(dataDir, { args: ['--acceptors', '2', '--counters', '1024'] });
});
afterAll(async () => {
  expect(await server.stop()).toEqual({ code: 0, signal: null });
  removeDirectory(dataDir);
});

const FROM_1000 = '"duration" must be an integer number of milliseconds from 1000';
/** Fields that weir accepts and ignores. */
const IGNORED = {
  meta: { a: 1, b: null },
  resources: [{ type: 'project', id: 'p_123', name: 'dub' }],
};

describe('@unkey/api 0.38.0', () => {
  const client = (changes: object = {}) =>
    new Unkey({ rootKey: ROOT_KEY, baseUrl: server.url, ...changes });
  const body = (identifier: string) => ({ identifier, limit: 5, duration: LONGEST_WINDOW_MS });

  test('is allowed up to the limit, and then denied', async () => {
    // The address may end with a slash.
    const unkey = client({ baseUrl: `${server.url}/` });
    const check = { ...body('api'), namespace: 'email.send', ...IGNORED };
    for (const [cost, remaining, async] of [
      [3, 2, false],
      [0, 2, false],
      [2, 0, true],
    ] as const) {
      const { result, error } = await unkey.ratelimits.limit({ ...check, cost, async });
      expect(error).toBeUndefined();
      expect(result).toMatchObject({ success: true, limit: 5, remaining });
      expect(result!.reset % LONGEST_WINDOW_MS).toBe(0);
    }
    // The tokens of an asynchronous check are deducted after its response.
    const last = async () => (await unkey.ratelimits.limit(check)).result;
    await expect.poll(last).toMatchObject({ success: false, limit: 5, remaining: 0 });
  });

  test('setOverride, getOverride, listOverrides and deleteOverride work', async () => {
    const { ratelimits } = client();
    const namespaceName = 'sdk';
    const limits = { limit: 3, duration: LONGEST_WINDOW_MS };
    const overrides: { id: string; identifier: string }[] = [];
    for (const [identifier, async] of [
      ['user_*', false],
      ['user_é 1', true],
    ] as const) {
      const fields = { identifier, ...limits, async };
      const { result, error } = await ratelimits.setOverride({ namespaceName, ...fields });
      expect(error).toBeUndefined();
      overrides.push({ id: result!.overrideId, ...fields });
    }
    const check = { ...body('user_é 2'), namespace: 'sdk' };
    expect((await ratelimits.limit(check)).result).toMatchObject({ limit: 3, remaining: 2 });
    const texts = { namespaceName, identifier: 'user_*' };
    expect((await ratelimits.getOverride(texts)).result).toEqual(overrides[0]);
    const pages: unknown[] = [];
    let next: { cursor?: string } = {};
    do {
      const { result, error } = await ratelimits.listOverrides({
        ...{ namespaceName, limit: 1 },
        ...next,
      });
      expect([error, result!.total]).toEqual([undefined, 2]);
      pages.push(...result!.overrides);
      next = result!.cursor === undefined ? {} : { cursor: result!.cursor };
    } while (next.cursor !== undefined);
    expect(pages).toEqual(overrides);
    const deleted = await ratelimits.deleteOverride(texts);
    expect([deleted.error, deleted.result]).toEqual([undefined, {}]);
    expect((await ratelimits.getOverride(texts)).error).toMatchObject({ code: 'NOT_FOUND' });
    expect((await ratelimits.limit(check)).result).toMatchObject({ limit: 5 });
  });

  test('an unknown key and an invalid body are errors with a code and a reason', async () => {
    const { result, error } = await client({ rootKey: 'wrong' }).ratelimits.limit(body('key'));
    expect(result).toBeUndefined();
    expect(error).toMatchObject({
      code: 'UNAUTHORIZED',
      requestId: expect.stringMatching(/^req_/),
    });
    const invalid = await client().ratelimits.limit({ ...body('bad'), duration: 5 });
    expect(invalid.error).toMatchObject({
      code: 'BAD_REQUEST',
      message: expect.stringContaining(FROM_1000),
      docs: `${server.url}/docs/errors/BAD_REQUEST`,
    });
  });
});

describe('@unkey/ratelimit 0.5.5', () => {
  const limiter = (changes: object = {}) =>
    new Ratelimit({
      rootKey: ROOT_KEY,
      baseUrl: server.url,
      namespace: 'ratelimit-client',
      limit: 3,
      duration: `${LONGEST_WINDOW_MS / 86_400_000}d`,
      ...changes,
    });

  test('is allowed up to the limit, and then denied', async () => {
    for (const [cost, remaining, async] of [
      [2, 1, false],
      [0, 1, false],
      [1, 0, true],
    ] as const) {
      const decision = await limiter({ async }).limit('user', { ...IGNORED, cost });
      expect(decision).toMatchObject({ success: true, limit: 3, remaining });
    }
    const denied = { success: false, limit: 3, remaining: 0 };
    await expect.poll(() => limiter().limit('user')).toMatchObject(denied);
  });

  test('an unknown key and an invalid body throw errors with the reason', async () => {
    await expect(limiter({ rootKey: 'wrong' }).limit('user')).rejects.toThrow(
      /UNAUTHORIZED - req_.*the API key is not known here/,
    );
    await expect(limiter({ duration: 5 }).limit('user')).rejects.toThrow(
      new RegExp(`BAD_REQUEST - req_.*${FROM_1000}`),
    );
  });
});
