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

describe('@unkey/api 0.38.0', () => {
  const client = (changes: object = {}) =>
    new Unkey({ rootKey: ROOT_KEY, baseUrl: server.url, ...changes });
  const body = (identifier: string) => ({ identifier, limit: 5, duration: LONGEST_WINDOW_MS });

  test('is allowed up to the limit, and then denied', async () => {
    const unkey = client();
    for (let remaining = 4; remaining >= 0; remaining--) {
      const { result, error } = await unkey.ratelimits.limit(body('api'));
      expect(error).toBeUndefined();
      expect(result).toMatchObject({ success: true, limit: 5, remaining });
      expect(result!.reset % LONGEST_WINDOW_MS).toBe(0);
    }
    const { result } = await unkey.ratelimits.limit(body('api'));
    expect(result).toMatchObject({ success: false, limit: 5, remaining: 0 });
  });

  test('cost, cost 0, async, a namespace, meta and resources are supported', async () => {
    const unkey = client();
    const request = { ...body('api-cost'), namespace: 'email.send' };
    const send = async (changes: object) => {
      return (await unkey.ratelimits.limit({ ...request, ...changes })).result;
    };
    expect(await send({ cost: 3 })).toMatchObject({ success: true, remaining: 2 });
    expect(await send({ cost: 3 })).toMatchObject({ success: false, remaining: 2 });
    expect(await send({ cost: 0 })).toMatchObject({ success: true, remaining: 2 });
    const resources = [{ type: 'project', id: 'p_123', name: 'dub' }];
    expect(await send({ async: true, meta: { a: 'b' }, resources })).toMatchObject({
      success: true,
      remaining: 1,
    });
  });

  test('setOverride, getOverride, listOverrides and deleteOverride work', async () => {
    const { ratelimits } = client();
    const texts = { namespaceName: 'sdk', identifier: 'user_*' };
    const limits = { limit: 3, duration: LONGEST_WINDOW_MS };
    const set = await ratelimits.setOverride({ ...texts, ...limits });
    expect(set.error).toBeUndefined();
    const { overrideId } = set.result!;
    expect(overrideId).toMatch(/^rlor_/);
    const check = { ...body('user_é 1'), namespace: 'sdk' };
    expect((await ratelimits.limit(check)).result).toMatchObject({ limit: 3, remaining: 2 });
    const override = { id: overrideId, identifier: 'user_*', ...limits, async: false };
    expect((await ratelimits.getOverride(texts)).result).toEqual(override);
    const exact = { namespaceName: 'sdk', identifier: 'user_é 1', ...limits, async: true };
    const second = await ratelimits.setOverride(exact);
    const pages: unknown[] = [];
    let cursor: string | undefined;
    do {
      const query = {
        namespaceName: 'sdk',
        limit: 1,
        ...(cursor === undefined ? {} : { cursor }),
      };
      const { result, error } = await ratelimits.listOverrides(query);
      expect(error).toBeUndefined();
      expect(result!.total).toBe(2);
      pages.push(...result!.overrides);
      cursor = result!.cursor;
    } while (cursor !== undefined);
    const { namespaceName: _, ...listed } = exact;
    expect(pages).toEqual([override, { id: second.result!.overrideId, ...listed }]);
    expect((await ratelimits.setOverride({ ...exact, limit: 4 })).result).toEqual(second.result);
    for (const identifier of [texts.identifier, exact.identifier]) {
      const deleted = await ratelimits.deleteOverride({ namespaceName: 'sdk', identifier });
      expect([deleted.error, deleted.result]).toEqual([undefined, {}]);
    }
    const missing = await ratelimits.getOverride(texts);
    expect(missing.error).toMatchObject({ code: 'NOT_FOUND' });
    expect((await ratelimits.limit(check)).result).toMatchObject({ limit: 5 });
    const bad = await ratelimits.setOverride({ identifier: 'user_*', ...limits });
    expect(bad.error?.message).toContain('"namespaceId" or "namespaceName"');
  });

  test('a base URL may end with a slash', async () => {
    const { result } = await client({ baseUrl: `${server.url}/` }).ratelimits.limit(body('slash'));
    expect(result).toMatchObject({ success: true, remaining: 4 });
  });

  test('an unknown key returns an error with its code, without a retry', async () => {
    const { result, error } = await client({ rootKey: 'wrong' }).ratelimits.limit(body('key'));
    expect(result).toBeUndefined();
    expect(error).toMatchObject({ code: 'UNAUTHORIZED' });
    expect(error?.requestId).toMatch(/^req_/);
  });

  test('an invalid body returns an error that names the field', async () => {
    const { error } = await client().ratelimits.limit({ ...body('bad'), duration: 5 });
    expect(error).toMatchObject({ code: 'BAD_REQUEST' });
    expect(error?.message).toContain(
      '"duration" must be an integer number of milliseconds from 1000',
    );
    expect(error?.docs).toBe(`${server.url}/docs/errors/BAD_REQUEST`);
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
    const ratelimit = limiter();
    for (let remaining = 2; remaining >= 0; remaining--) {
      expect(await ratelimit.limit('user')).toMatchObject({ success: true, limit: 3, remaining });
    }
    expect(await ratelimit.limit('user')).toMatchObject({
      success: false,
      limit: 3,
      remaining: 0,
    });
  });

  test('cost, cost 0, async, meta and resources are supported', async () => {
    const ratelimit = limiter();
    expect(await ratelimit.limit('cost', { cost: 2 })).toMatchObject({
      success: true,
      remaining: 1,
    });
    expect(await ratelimit.limit('cost', { cost: 2 })).toMatchObject({
      success: false,
      remaining: 1,
    });
    expect(await ratelimit.limit('cost', { cost: 0 })).toMatchObject({
      success: true,
      remaining: 1,
    });
    const options = { meta: { a: 1, b: null }, resources: [{ type: 't', id: 'i' }] };
    expect(await limiter({ async: true }).limit('cost', options)).toMatchObject({
      success: true,
      remaining: 0,
    });
  });

  test('an unknown key and an invalid body throw errors with the reason', async () => {
    await expect(limiter({ rootKey: 'wrong' }).limit('user')).rejects.toThrow(
      /UNAUTHORIZED - req_.*the API key is not known here/,
    );
    await expect(limiter({ duration: 5 }).limit('user')).rejects.toThrow(
      /BAD_REQUEST - req_.*"duration" must be an integer number of milliseconds from 1000/,
    );
  });
});
