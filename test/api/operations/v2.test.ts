/** v2: its envelope, its errors, its strictness, and that it shares its state with v1. */

import { describe, expect, test } from 'vitest';
import {
  AMOUNT_MAX,
  BODY_MAX_BYTES,
  MULTI_LIMIT_MAX_BYTES,
  NAMESPACES_MAX,
} from '../../../src/core/constants.ts';
import { describeEngines, describeOnce, testInMemory } from '../../support/engine-modes.ts';
import type { ParsedResponse } from '../../support/http.ts';
import { type Fields, type Operation, pathAndMethodOf } from '../../support/operations.ts';
import { ROOT_KEY } from '../../support/server.ts';
import { addKey, addRecords } from '../../support/store.ts';
import { useServer } from '../../support/test-server.ts';

/** The longest window of v2; it ends every 30 days. */
const MONTH_MS = 2_592_000_000;

interface V2Error {
  meta: { requestId: string };
  error: {
    title: string;
    detail: string;
    status: number;
    type: string;
    errors?: { location: string; message: string; fix?: string }[];
  };
}

describeEngines('decided %s:', (mode) => {
  const keys = { limitOnly: '', oneNamespace: '', expired: '' };
  const server = useServer({
    mode,
    prepare: (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
      keys.limitOnly = addKey(store, { permissions: ['ratelimit.*.limit'] });
      keys.oneNamespace = addKey(store, { permissions: ['ratelimit.rlns_1.limit'] });
      keys.expired = addKey(store, { expiresMs: 1_600_000_000_000 });
    },
  });

  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const item = (changes: Fields = {}): Fields => {
    return { namespace: 'v2', identifier: fresh(), limit: 10, duration: MONTH_MS, ...changes };
  };
  const limit = async (fields: Fields) => {
    return (await server.ok<{ data: Fields }>('ratelimit.limit', fields)).data;
  };
  const many = async (items: Fields[]) => {
    const { data } = await server.ok('ratelimit.multiLimit', items);
    return data as { passed: boolean; limits: Fields[] };
  };
  const names = async () => (await server.namespaces()).map(({ name }) => name);
  const left = async (fields: Fields) => (await limit({ ...fields, cost: 0 })).remaining;
  const send = (path: string, body: string, headers: Record<string, string> = {}) => {
    return server.send({ path, body, headers });
  };

  function expectError(
    response: ParsedResponse,
    status: number,
    detail: string,
    location?: string,
  ): void {
    const body: V2Error = JSON.parse(response.body);
    expect([response.status, body.error.detail]).toEqual([status, expect.stringContaining(detail)]);
    expect(response.headers['content-type']).toBe('application/json');
    expect(Object.keys(body)).toEqual(['meta', 'error']);
    expect(body.meta.requestId).toMatch(/^req_/);
    expect(response.headers['x-request-id']).toBe(body.meta.requestId);
    const { title, status: bodyStatus, type, errors } = body.error;
    expect([typeof title, bodyStatus]).toEqual(['string', status]);
    expect(type.startsWith(`${server.url}/docs/errors/`)).toBe(true);
    if (status !== 400) expect(errors).toBeUndefined();
    else expect(errors).toEqual([expect.objectContaining({ message: body.error.detail })]);
    if (location !== undefined) expect(errors?.[0].location).toBe(location);
  }

  describe('a check', () => {
    test('counts down to a denial, which is a 200, with exactly these fields', async () => {
      const fields = item({ limit: 2, cost: 2 });
      const response = await server.call('ratelimit.limit', fields);
      expect([response.status, response.headers['content-type']]).toEqual([
        200,
        'application/json',
      ]);
      const { meta, data } = JSON.parse(response.body);
      expect(Object.keys(JSON.parse(response.body))).toEqual(['meta', 'data']);
      expect(meta).toEqual({ requestId: expect.stringMatching(/^req_/) });
      expect(data).toEqual({ limit: 2, remaining: 0, reset: expect.any(Number), success: true });
      expect(data.reset % MONTH_MS).toBe(0);
      // From then on less than two tokens are carried over.
      const passesAt = data.reset + 1;
      expect(await limit({ ...fields, cost: 1 })).toEqual({ ...data, success: false, passesAt });
      expect(await limit({ ...fields, cost: 0 })).toEqual(data);
    });

    testInMemory('that is denied passes at the time that the response says', async () => {
      const fields = item({ limit: 10, cost: 5, duration: 10_000 });
      const untilNext = () => 10_000 - (server.nowMs() % 10_000);
      await server.stepClock(untilNext());
      await limit({ ...fields, cost: 10 });
      await server.stepClock(untilNext() + 3_000);
      const denied = await limit(fields);
      const [passesAt, reset] = [Number(denied.passesAt), Number(denied.reset)];
      // Five of ten tokens are still carried over until 4 s of the window have passed.
      expect([denied.success, reset - passesAt]).toEqual([false, 5_999]);
      const { limits } = await many([fields, { ...fields, cost: 11 }]);
      expect(limits.map((one: object) => 'passesAt' in one)).toEqual([true, false]);
      await server.stepClock(passesAt - server.nowMs());
      expect((await limit(fields)).success).toBe(true);
    });

    testInMemory('shares its counter with v1, and has a window rule of its own', async () => {
      const fields = item();
      // The whole limit in one window, and a check of cost 0 in the next.
      const { reset } = await server.check({ ...fields, cost: 10 });
      expect(await left(fields)).toBe(0);
      // An hour behind the middle of the next window, so that less than 5 tokens count.
      await server.stepClock(reset - server.nowMs() + MONTH_MS / 2 + 3_600_000);
      expect(await limit({ ...fields, cost: 0 })).toMatchObject({
        ...{ remaining: 6, reset: reset + MONTH_MS },
      });
      expect(await server.check({ ...fields, cost: 0 })).toMatchObject({
        ...{ remaining: 10, reset: reset + MONTH_MS },
      });
    });

    test('names its namespace by name or by id, and creates a new one', async () => {
      const fields = item({ namespace: 'stored' });
      expect(await left(fields)).toBe(10);
      await limit({ ...fields, namespace: 'rlns_1', cost: 3 });
      expect(await left(fields)).toBe(7);
      const namespace = `made ${mode}`;
      await limit(item({ namespace, cost: 0 }));
      expect(await names()).not.toContain(namespace);
      await limit(item({ namespace }));
      await expect.poll(names).toContain(namespace);
    });

    test('has the id of its override, exact or with a wildcard, and is denied by a limit of 0', async () => {
      const namespace = `governed ${mode}`;
      const set = async (identifier: string, max: number) => {
        const fields = { namespace, identifier, limit: max, duration: MONTH_MS };
        const { data } = await server.ok('ratelimit.setOverride', fields);
        return (data as Fields).overrideId;
      };
      const wildcard = await set('u*', 5);
      const exact = await set('u', 7);
      const zero = await set('none*', 0);
      const call = (identifier: string) => limit(item({ namespace, identifier }));
      expect(await call('u')).toMatchObject({ limit: 7, remaining: 6, overrideId: exact });
      expect(await call('u1')).toMatchObject({ limit: 5, remaining: 4, overrideId: wildcard });
      expect(await call('other')).not.toHaveProperty('overrideId');
      const denial = { success: false, limit: 0, remaining: 0, overrideId: zero };
      expect(await call('none_1')).toMatchObject(denial);
      const { limits, passed } = await many([
        item({ namespace, identifier: 'u' }),
        item({ namespace, identifier: 'free' }),
        item({ namespace, identifier: 'none_1' }),
      ]);
      expect(passed).toBe(false);
      expect(limits.map(({ overrideId }) => overrideId)).toEqual([exact, undefined, zero]);
      expect(limits.map((one) => one.passed)).toEqual([true, true, false]);
      // v1 cannot set a limit of 0, but such an override applies to its checks.
      const v1 = { namespace, identifier: 'none_1', limit: 9, duration: MONTH_MS };
      expect(await server.check(v1)).toMatchObject({ success: false, limit: 0 });
    });
  });

  describe('a batch of checks', () => {
    test('is counted if all pass, in order for checks of one counter', async () => {
      const [a, b] = [item({ limit: 6, cost: 2 }), item({ cost: 0 })];
      const { passed, limits } = await many([a, b, a, { ...a, limit: 9 }]);
      expect(passed).toBe(true);
      const values = { namespace: 'v2', reset: expect.any(Number), passed: true };
      expect(limits).toEqual([
        { ...values, identifier: a.identifier, limit: 6, remaining: 4 },
        { ...values, identifier: b.identifier, limit: 10, remaining: 10 },
        { ...values, identifier: a.identifier, limit: 6, remaining: 2 },
        { ...values, identifier: a.identifier, limit: 9, remaining: 3 },
      ]);
      expect([await left(a), await left(b)]).toEqual([0, 10]);
    });

    test('with one denied check consumes nothing, and has what was left, or 0 if denied', async () => {
      const [a, b] = [item({ cost: 4 }), item({ limit: 1 })];
      await limit(b);
      const { passed, limits } = await many([a, b, a, { ...a, cost: 3 }]);
      expect(passed).toBe(false);
      expect(limits.map(({ passed, remaining }) => [passed, remaining])).toEqual([
        ...[
          [true, 10],
          [false, 0],
        ],
        ...[
          [true, 10],
          [false, 0],
        ],
      ]);
      expect([await left(a), await left(b)]).toEqual([10, 0]);
    });
  });

  describeOnce(mode, 'a list of checks', () => {
    test('returns its texts unchanged', async () => {
      const texts = ['"quoted"', 'back\\slash', 'tab\t\u0000', 'é😀', '\u2028', 'a b'];
      const items = texts.map((text) => item({ namespace: `ns ${text}`, identifier: text }));
      items.push(item({ namespace: 'rlns_1', identifier: 'by id' }));
      const { limits } = await many(items);
      const echoed = items.map(({ namespace, identifier }) => ({ namespace, identifier }));
      expect(limits).toMatchObject(echoed);
    });

    test('has 1 to 100 checks, in up to 1 MiB', async () => {
      const path = '/v2/ratelimit.multiLimit';
      const items = Array.from({ length: 101 }, () => item());
      const accepted = 'the body must be an array of 1 to 100 checks';
      for (const body of [items, [], {}, null, items[0]]) {
        expectError(await send(path, JSON.stringify(body)), 400, accepted, 'body');
      }
      expect((await many(items.slice(1))).limits).toHaveLength(100);
      expect(await left(items[0])).toBe(10);
      const long = items.slice(1).map((one) => ({ ...one, identifier: '😀'.repeat(512) }));
      const text = JSON.stringify(long);
      const padded = text + ' '.repeat(MULTI_LIMIT_MAX_BYTES - Buffer.byteLength(text));
      expect((await send(path, padded)).status).toBe(200);
      expectError(await send(path, `${padded} `), 413, `at most ${MULTI_LIMIT_MAX_BYTES} bytes`);
    });

    test('with one invalid check is not counted, and creates no namespace', async () => {
      const namespace = `not made ${mode}`;
      const good = item({ namespace });
      const invalid: [unknown, string, string][] = [
        [item({ limit: 0 }), '[1]: "limit" must be an integer from 1', 'body[1].limit'],
        [null, '[1]: a check must be a JSON object', 'body[1]'],
        [item({ more: 1 }), '[1]: "more" is not a field', 'body[1].more'],
      ];
      for (const [check, detail, location] of invalid) {
        const path = '/v2/ratelimit.multiLimit';
        const response = await send(path, JSON.stringify([good, check, good]));
        expectError(response, 400, detail, location);
      }
      const stored = item({ namespace: 'stored' });
      const missing = { ...stored, namespace: 'rlns_none' };
      const cases: [Fields[], string | undefined, number, string][] = [
        [[good, missing], undefined, 404, '[1]: there is no namespace with the id "rlns_none"'],
        [[stored, good], keys.oneNamespace, 403, '[1]: the API key lacks the permission "rate'],
        // The first invalid check, also if a later one lacks a permission.
        [[missing, good], undefined, 404, '[0]: there is no namespace'],
        [[good, missing], keys.limitOnly, 404, '[0]: there is no namespace'],
        [[good, missing], keys.oneNamespace, 403, '[0]: the API key lacks'],
      ];
      for (const [checks, key, status, detail] of cases) {
        const response = await server.call('ratelimit.multiLimit', checks, key);
        expectError(response, status, detail);
      }
      expect(await left(stored)).toBe(10);
      expect(await names()).not.toContain(namespace);
      const permitted = await server.call(
        'ratelimit.multiLimit',
        [stored, stored],
        keys.oneNamespace,
      );
      expect(permitted.status).toBe(200);
      expect(await left(stored)).toBe(8);
    });
  });

  describeOnce(mode, 'overrides', () => {
    const namespace = 'overrides';
    const values = { limit: 3, duration: 60_000 };
    const call = (operation: Operation, fields: Fields) => {
      return server.ok(operation, { namespace, ...fields });
    };

    test('are set, read, listed and deleted, and are those of v1', async () => {
      // v2 has no asynchronous overrides: the next one replaces that of v1 under its id.
      const v1 = { namespaceName: namespace, identifier: 'abc' };
      await server.ok('ratelimits.setOverride', { ...v1, ...values, async: true });
      const { data } = await call('ratelimit.setOverride', { identifier: 'abc', ...values });
      const { overrideId } = data as { overrideId: string };
      const shown = { overrideId, identifier: 'abc', ...values };
      expect((await call('ratelimit.getOverride', { identifier: 'abc' })).data).toEqual(shown);
      expect(await server.ok('ratelimits.getOverride', v1)).toEqual({
        ...{ id: overrideId, identifier: 'abc', ...values },
        async: false,
      });
      const again = await call('ratelimit.setOverride', { identifier: 'abc', ...values, limit: 4 });
      expect(again.data).toEqual({ overrideId });
      const { data: listed, pagination } = await call('ratelimit.listOverrides', {});
      expect([listed, pagination]).toEqual([[{ ...shown, limit: 4 }], { hasMore: false }]);
      expect((await call('ratelimit.deleteOverride', { identifier: 'abc' })).data).toEqual({});
      const gone = await server.call('ratelimit.getOverride', { namespace, identifier: 'abc' });
      expectError(gone, 404, 'there is no override of "abc"');
    });

    test('are listed in pages of 50 by default, each once', async () => {
      const list = 'pages';
      const overrides = Array.from({ length: 103 }, (_, i) => {
        return { namespaceName: list, identifier: `u${i}`, limit: 1, duration: 1_000 };
      });
      await server.ok('ratelimits.importOverrides', { overrides });
      for (const [size, pages] of [
        [undefined, [50, 50, 3]],
        [52, [52, 51]],
      ]) {
        const seen: Fields[][] = [];
        let cursor: unknown;
        do {
          const fields = { namespace: list, limit: size, cursor };
          const page = await server.ok('ratelimit.listOverrides', fields);
          const { hasMore, cursor: next } = page.pagination as Fields;
          expect(hasMore).toBe(next !== undefined);
          seen.push(page.data as Fields[]);
          cursor = next;
        } while (cursor !== undefined);
        expect(seen.map(({ length }) => length)).toEqual(pages);
        const identifiers = seen.flat().map(({ identifier }) => identifier);
        expect(identifiers).toEqual(overrides.map(({ identifier }) => identifier));
      }
    });

    test('accept patterns of namespaces, short identifiers and a limit of 0, also in an import', async () => {
      const fields = { namespace: 'over* x', identifier: '*', limit: 0, duration: 60_000 };
      const { data } = await server.ok('ratelimit.setOverride', fields);
      const one = item({ namespace: 'overdone x', identifier: 'b' });
      expect(await limit(one)).toMatchObject({ ...(data as Fields), success: false });
      const { overrides } = await server.ok('ratelimits.exportOverrides');
      const { namespace: namespaceName, ...rest } = fields;
      expect(overrides).toContainEqual({ namespaceName, ...rest, async: false });
      const imported = await server.ok('ratelimits.importOverrides', { overrides });
      expect(imported).toMatchObject({ created: 0, updated: 0 });
    });
  });

  describeOnce(mode, 'an error names the invalid field and the values accepted', () => {
    const good: Record<string, Fields> = {
      'ratelimit.limit': item(),
      'ratelimit.setOverride': { namespace: 'n', identifier: 'i', limit: 1, duration: 1_000 },
      'ratelimit.getOverride': { namespace: 'n', identifier: 'i' },
      'ratelimit.deleteOverride': { namespace: 'n', identifier: 'i' },
      'ratelimit.listOverrides': { namespace: 'n' },
    };
    // The bounds of all fields are in docs/openapi.json.
    const long = 'x'.repeat(513);
    test.each<[Operation, string, unknown[]]>([
      ['ratelimit.limit', 'namespace', [undefined, '', long, null]],
      ['ratelimit.limit', 'identifier', [undefined, '', long, {}]],
      ['ratelimit.limit', 'limit', [undefined, 0, 1.5, '1', 2 ** 53]],
      ['ratelimit.limit', 'duration', [undefined, 999, MONTH_MS + 1]],
      ['ratelimit.limit', 'cost', [-1, null, 2 ** 53]],
      ['ratelimit.setOverride', 'namespace', [undefined, '', long, '*'.repeat(17)]],
      ['ratelimit.setOverride', 'identifier', [undefined, '', long, '*'.repeat(17)]],
      ['ratelimit.setOverride', 'limit', [undefined, -1]],
      ['ratelimit.setOverride', 'duration', [undefined, 999, 4e12]],
      ['ratelimit.getOverride', 'identifier', [undefined, '']],
      ['ratelimit.deleteOverride', 'namespace', [undefined, long]],
      ['ratelimit.listOverrides', 'limit', [0, 101]],
      ['ratelimit.listOverrides', 'cursor', ['', 'x', 5]],
    ])('%s: %s', async (operation, field, values) => {
      for (const value of values) {
        const fields = { ...good[operation], [field]: value };
        const response = await server.call(operation, fields);
        const message = value === undefined ? 'is required: ' : 'must ';
        expectError(response, 400, `"${field}" ${message}`, `body.${field}`);
      }
    });

    test('a missing field and a duration in seconds, with location and fix', async () => {
      const { limit: _, ...without } = item();
      const accepted = `an integer from 1 to ${AMOUNT_MAX}`;
      const ms = `an integer number of milliseconds from 1000 to ${MONTH_MS}`;
      for (const [body, message, location, fix] of [
        [without, `"limit" is required: ${accepted}`, 'body.limit', accepted],
        [item({ duration: 60 }), `"duration" must be ${ms}; got 60`, 'body.duration', ms],
      ] as const) {
        const response = await server.call('ratelimit.limit', body);
        const { detail, errors } = JSON.parse(response.body).error;
        expect(detail).toBe(message);
        expect(errors).toEqual([{ location, message, fix: `give ${fix}` }]);
        const many = await server.call('ratelimit.multiLimit', [item(), body]);
        const inItem = { location: location.replace('body', 'body[1]'), fix: `give ${fix}` };
        expect(JSON.parse(many.body).error.errors).toEqual([
          { ...inItem, message: `[1]: ${message}` },
        ]);
      }
    });

    test.each(Object.keys(good))('%s: an unknown field', async (name) => {
      const operation = name as Operation;
      for (const field of ['async', 'Limit', '', 'toString', 'x'.repeat(10_000)]) {
        const response = await server.call(operation, { ...good[name], [field]: 1 });
        const isLong = field.length > 100;
        const shown = isLong ? 'a text of 10000 characters' : JSON.stringify(field);
        const location = isLong ? undefined : `body.${field}`;
        expectError(response, 400, `${shown} is not a field`, location);
        expect(response.body.length).toBeLessThan(1_000);
      }
      const { path } = pathAndMethodOf(operation);
      const body = JSON.stringify(good[name]).replace('{', '{"__proto__":{"limit":5},');
      expectError(await send(path, body), 400, '"__proto__" is not a field', 'body.__proto__');
    });

    test('a body that is not an object or empty; the largest values are accepted', async () => {
      const path = '/v2/ratelimit.limit';
      expectError(await send(path, '[]'), 400, 'the body must be a JSON object', 'body');
      expectError(await send(path, ''), 400, 'the body is not JSON: it is empty', 'body');
      const most = { limit: AMOUNT_MAX, cost: AMOUNT_MAX, namespace: '😀'.repeat(512) };
      expect(await limit(item(most))).toMatchObject({ success: true, remaining: 0 });
    });
  });

  describeOnce(mode, 'the errors', () => {
    const path = '/v2/ratelimit.limit';

    test('of a path or a method have the format of v2, with and without a key', async () => {
      const headers = { Authorization: '' };
      for (const unknown of ['/v2/', '/v2/ratelimits.limit', '//v2/x']) {
        const response = await server.send({ path: unknown, headers });
        expectError(response, 404, 'there is no POST');
        const { type }: V2Error['error'] = JSON.parse(response.body).error;
        expect((await fetch(type)).status).toBe(200);
      }
      const get = await server.send({ method: 'GET', path, headers });
      expectError(get, 405, 'accepts the method POST');
      expect(get.headers.allow).toBe('POST');
      // A path with a doubled slash is the same operation.
      const doubled = await send(`/${path}`, JSON.stringify(item()));
      expect([doubled.status, JSON.parse(doubled.body).data.remaining]).toEqual([200, 9]);
      expectError(await send(`/${path}`, '{'), 400, 'the body is not JSON', 'body');
    });

    test('of the header are 400, and of the key 401', async () => {
      const body = JSON.stringify(item());
      for (const [Authorization, status, detail] of [
        ['', 400, 'is missing'],
        [`Basic ${ROOT_KEY}`, 400, 'not of the form'],
        ['Bearer', 400, 'not of the form'],
        ['Bearer wrong', 401, 'is not known here'],
        [`Bearer ${keys.expired}`, 401, 'has expired'],
      ] as const) {
        const response = await send(path, body, { Authorization });
        const location = status === 400 ? 'header.authorization' : undefined;
        expectError(response, status, detail, location);
        expect(response.body).not.toContain(ROOT_KEY);
      }
    });

    test('have an order: key, content type, size, body, permission, existence', async () => {
      const huge = ' '.repeat(BODY_MAX_BYTES + 1);
      const text = { 'Content-Type': 'text/plain' };
      const limited = { Authorization: `Bearer ${keys.limitOnly}` };
      expectError(await send(path, huge, { Authorization: '', ...text }), 400, 'is missing');
      expectError(await send(path, huge, text), 415, 'application/json');
      expectError(await send(path, huge), 413, `at most ${BODY_MAX_BYTES} bytes`);
      const bad = JSON.stringify(item({ namespace: 'rlns_none', limit: 0 }));
      const one = { Authorization: `Bearer ${keys.oneNamespace}` };
      expectError(await send(path, bad, one), 400, '"limit" must be');
      const other = JSON.stringify(item({ namespace: 'rlns_none' }));
      expectError(await send(path, other, one), 403, '"ratelimit.rlns_none.limit"');
      expectError(await send(path, other), 404, 'no namespace with the id "rlns_none"');
      const created = JSON.stringify(item({ namespace: 'unknown' }));
      expectError(await send(path, created, limited), 404, 'ratelimit.*.create_namespace');
    });
  });
});

describe('a batch with more new namespaces than are allowed', () => {
  const server = useServer({
    prepare: (store) => {
      const records = Array.from({ length: NAMESPACES_MAX - 3 }, (_, i) => {
        return { id: `rlns_${i}`, name: `n${i}`, createdMs: 1 };
      });
      addRecords(store, 'namespaces', records);
    },
  });

  test('creates none', async () => {
    const of = (names: string[], cost = 1) => {
      return names.map((namespace) => {
        return { namespace, identifier: 'a', limit: 5, duration: MONTH_MS, cost };
      });
    };
    const count = async () => (await server.ok('ratelimits.listNamespaces')).total;
    const items = of(['new 1', 'new 2', 'n1', 'new 1', 'new 3', 'new 4']);
    const message = '[5]: the maximum of 10000 namespaces is reached';
    const error = await server.errorOf('ratelimit.multiLimit', items);
    expect(error).toEqual([400, expect.stringContaining(message)]);
    expect(await count()).toBe(NAMESPACES_MAX - 3);
    const queries = [...items.slice(0, 5), ...of(['new 4', 'new 5'], 0)];
    const { data } = await server.ok('ratelimit.multiLimit', queries);
    expect((data as Fields).passed).toBe(true);
    await expect.poll(count).toBe(NAMESPACES_MAX);
  });
});
