/** v2 as bytes: its envelope, its errors, its strictness, and that it shares its state with v1. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  AMOUNT_MAX,
  BODY_MAX_BYTES,
  MULTI_LIMIT_MAX_BYTES,
  NAMESPACES_MAX,
} from '../../src/core/constants.ts';
import {
  describeEngines,
  describeOnce,
  startEngineServer,
  testInMemory,
} from '../support/engine-modes.ts';
import {
  type ParsedResponse,
  readMetric,
  readMetrics,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import {
  callOperation,
  callOperationOk,
  type Fields,
  type Operation,
  pathAndMethodOf,
} from '../support/operations.ts';
import {
  ROOT_KEY,
  removeDirectory,
  type SteppedServer,
  startServer,
  temporaryDirectory,
} from '../support/server.ts';
import { addKey, addRecords, withStore } from '../support/store.ts';

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
  const dataDir = temporaryDirectory();
  let server: SteppedServer;
  const keys = { limitOnly: '', oneNamespace: '', expired: '' };
  beforeAll(async () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
      keys.limitOnly = addKey(store, { permissions: ['ratelimit.*.limit'] });
      keys.oneNamespace = addKey(store, { permissions: ['ratelimit.rlns_1.limit'] });
      keys.expired = addKey(store, { expiresMs: 1_600_000_000_000 });
    });
    const args = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];
    server = await startEngineServer(mode, dataDir, { args });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const item = (changes: Fields = {}): Fields => {
    return { namespace: 'v2', identifier: fresh(), limit: 10, duration: MONTH_MS, ...changes };
  };
  const limit = async (fields: Fields) => {
    return (await callOperationOk(server.port, 'ratelimit.limit', fields)).data as Fields;
  };
  const many = async (items: Fields[]) => {
    const { data } = await callOperationOk(server.port, 'ratelimit.multiLimit', items);
    return data as { passed: boolean; limits: Fields[] };
  };
  const names = async () => {
    const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
    return (namespaces as Fields[]).map(({ name }) => name);
  };
  const left = async (fields: Fields) => (await limit({ ...fields, cost: 0 })).remaining;
  const send = (path: string, body: string | Uint8Array, headers: Record<string, string> = {}) => {
    return sendRequest(server.port, { path, body, headers });
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
      const response = await callOperation(server.port, 'ratelimit.limit', fields);
      expect([response.status, response.headers['content-type']]).toEqual([
        200,
        'application/json',
      ]);
      const { meta, data } = JSON.parse(response.body);
      expect(Object.keys(JSON.parse(response.body))).toEqual(['meta', 'data']);
      expect(meta).toEqual({ requestId: expect.stringMatching(/^req_/) });
      expect(data).toEqual({ limit: 2, remaining: 0, reset: expect.any(Number), success: true });
      expect(data.reset % MONTH_MS).toBe(0);
      expect(await limit(fields)).toEqual({ ...data, success: false });
      expect(await limit({ ...fields, cost: 0 })).toEqual(data);
    });

    test('costs 1 by default, and a denied one has 0 remaining', async () => {
      const fields = item();
      expect(await limit(fields)).toMatchObject({ remaining: 9 });
      expect(await limit({ ...fields, cost: 10 })).toMatchObject({ success: false, remaining: 0 });
      expect(await left(fields)).toBe(9);
    });

    testInMemory('shares its counter with v1, and has a window rule of its own', async () => {
      const fields = item();
      // The whole limit in one window, and a check of cost 0 in the next.
      const { reset } = await sendCheck(server.port, { ...fields, cost: 10 });
      expect(await left(fields)).toBe(0);
      // An hour behind the middle of the next window, so that less than 5 tokens count.
      await server.stepClock(reset - server.nowMs() + MONTH_MS / 2 + 3_600_000);
      expect(await limit({ ...fields, cost: 0 })).toMatchObject({
        ...{ remaining: 6, reset: reset + MONTH_MS },
      });
      expect(await sendCheck(server.port, { ...fields, cost: 0 })).toMatchObject({
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
        const { data } = await callOperationOk(server.port, 'ratelimit.setOverride', fields);
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
      expect(await sendCheck(server.port, v1)).toMatchObject({ success: false, limit: 0 });
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

    test('with one denied check consumes nothing, and has the remaining tokens before, or 0 if denied', async () => {
      const [a, b, c] = [item({ cost: 4 }), item({ limit: 1 }), item({ cost: 3 })];
      await limit(b);
      await limit(c);
      const { passed, limits } = await many([a, b, c, a, { ...a, cost: 3 }]);
      expect(passed).toBe(false);
      const verdicts = limits.map(({ passed, remaining }) => [passed, remaining]);
      expect(verdicts).toEqual([
        [true, 10],
        [false, 0],
        [true, 7],
        [true, 10],
        [false, 0],
      ]);
      expect([await left(a), await left(b), await left(c)]).toEqual([10, 0, 7]);
    });

    test('is one decision per check in the metrics, allowed only if all are', async () => {
      const namespace = `counted ${mode}`;
      const figure = (name: string, outcome: string) => {
        return `${name}{namespace="${namespace}",outcome="${outcome}"}`;
      };
      const [a, b] = [item({ namespace, cost: 3 }), item({ namespace, limit: 1 })];
      expect((await many([a, b])).passed).toBe(true);
      expect((await many([a, b])).passed).toBe(false);
      const counted = async () => {
        const all = await readMetrics(server.adminUrl);
        return ['allowed', 'denied'].flatMap((outcome) => [
          all.get(figure('weir_decisions_total', outcome)),
          all.get(figure('weir_tokens_total', outcome)),
        ]);
      };
      await expect.poll(counted).toEqual([2, 4, 2, 4]);
    });
  });

  describeOnce(mode, 'a list of checks', () => {
    test('returns its texts unchanged', async () => {
      const texts = ['"quoted"', 'back\\slash', 'tab\t\u0000', 'é😀', "' or 1", '\u2028', 'a b'];
      const items = texts.map((text) => item({ namespace: `ns ${text}`, identifier: text }));
      items.push(item({ namespace: 'rlns_1', identifier: 'by id' }));
      const { limits } = await many(items);
      for (const [i, { namespace, identifier }] of items.entries()) {
        expect(limits[i]).toMatchObject({ namespace, identifier, passed: true });
      }
    });

    test('has 1 to 100 checks, in up to 1 MiB', async () => {
      const path = '/v2/ratelimit.multiLimit';
      const items = Array.from({ length: 101 }, () => item());
      const accepted = 'the body must be an array of 1 to 100 checks';
      for (const body of [items, [], {}, 5, null, 'text', items[0]]) {
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
        [item({ cost: undefined, identifier: 5 }), '[1]: "identifier"', 'body[1].identifier'],
        ['text', '[1]: a check must be a JSON object', 'body[1]'],
        [null, '[1]: a check must be a JSON object', 'body[1]'],
        [[good], '[1]: a check must be a JSON object', 'body[1]'],
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
        const response = await callOperation(server.port, 'ratelimit.multiLimit', checks, key);
        expectError(response, status, detail);
      }
      expect(await left(stored)).toBe(10);
      expect(await names()).not.toContain(namespace);
    });
  });

  describeOnce(mode, 'overrides', () => {
    const namespace = `overrides ${mode}`;
    const values = { limit: 3, duration: 60_000 };
    const call = (operation: Operation, fields: Fields) => {
      return callOperationOk(server.port, operation, { namespace, ...fields });
    };

    test('are set, read, listed and deleted, and are those of v1', async () => {
      const { data } = await call('ratelimit.setOverride', { identifier: 'a', ...values });
      const { overrideId } = data as { overrideId: string };
      const shown = { overrideId, identifier: 'a', ...values };
      expect((await call('ratelimit.getOverride', { identifier: 'a' })).data).toEqual(shown);
      const v1 = { namespaceName: namespace, identifier: 'a' };
      expect(await callOperationOk(server.port, 'ratelimits.getOverride', v1)).toEqual({
        ...{ id: overrideId, identifier: 'a', ...values },
        async: false,
      });
      const again = await call('ratelimit.setOverride', { identifier: 'a', ...values, limit: 4 });
      expect(again.data).toEqual({ overrideId });
      const { data: listed, pagination } = await call('ratelimit.listOverrides', {});
      expect([listed, pagination]).toEqual([[{ ...shown, limit: 4 }], { hasMore: false }]);
      expect((await call('ratelimit.deleteOverride', { identifier: 'a' })).data).toEqual({});
      const gone = await callOperation(server.port, 'ratelimit.getOverride', {
        namespace,
        identifier: 'a',
      });
      expectError(gone, 404, 'there is no override of "a"');
    });

    test('are listed in pages of 50 by default, each once', async () => {
      const list = `pages ${mode}`;
      const overrides = Array.from({ length: 103 }, (_, i) => {
        return { namespaceName: list, identifier: `u${i}`, limit: 1, duration: 1_000 };
      });
      await callOperationOk(server.port, 'ratelimits.importOverrides', { overrides });
      for (const [size, pages] of [
        [undefined, [50, 50, 3]],
        [52, [52, 51]],
      ]) {
        const seen: Fields[][] = [];
        let cursor: unknown;
        do {
          const fields = { namespace: list, limit: size, cursor };
          const page = await callOperationOk(server.port, 'ratelimit.listOverrides', fields);
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

    test('accept patterns of namespaces, short identifiers and a limit of 0, and export all', async () => {
      const pattern = `over*${mode} x`;
      const fields = { namespace: pattern, identifier: '*', limit: 0, duration: 60_000 };
      const { data } = await callOperationOk(server.port, 'ratelimit.setOverride', fields);
      const one = item({ namespace: `overdone ${mode} x`, identifier: 'b' });
      expect(await limit(one)).toMatchObject({ ...(data as Fields), success: false });
      const { overrides } = await callOperationOk(server.port, 'ratelimits.exportOverrides');
      const { namespace: namespaceName, ...rest } = fields;
      expect(overrides).toContainEqual({ namespaceName, ...rest, async: false });
      const imported = await callOperationOk(server.port, 'ratelimits.importOverrides', {
        overrides,
      });
      expect(imported).toMatchObject({ created: 0, updated: 0 });
      const its = { namespace: pattern, identifier: '*' };
      await callOperationOk(server.port, 'ratelimit.deleteOverride', its);
      expect(await limit(one)).toMatchObject({ success: true });
    });

    test('that v2 sets are synchronous, also if they were not before', async () => {
      const v1 = { namespaceName: namespace, identifier: 'was async', ...values };
      await callOperationOk(server.port, 'ratelimits.setOverride', { ...v1, async: true });
      await call('ratelimit.setOverride', { identifier: 'was async', ...values });
      const shown = await callOperationOk(server.port, 'ratelimits.getOverride', {
        namespaceName: namespace,
        identifier: 'was async',
      });
      expect(shown.async).toBe(false);
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
    const long = 'x'.repeat(513);
    const invalid: [Operation, string, unknown[]][] = [
      ['ratelimit.limit', 'namespace', [undefined, '', long, 5, null]],
      ['ratelimit.limit', 'identifier', [undefined, '', long, {}, null]],
      ['ratelimit.limit', 'limit', [undefined, 0, -1, 1.5, '1', null, 2 ** 53]],
      ['ratelimit.limit', 'duration', [undefined, 999, MONTH_MS + 1, 1_000.5, '1s', null]],
      ['ratelimit.limit', 'cost', [-1, 0.5, '1', null, 2 ** 53]],
      ['ratelimit.setOverride', 'namespace', [undefined, '', long, 5, '*'.repeat(17)]],
      ['ratelimit.setOverride', 'identifier', [undefined, '', long, '*'.repeat(17)]],
      ['ratelimit.setOverride', 'limit', [undefined, -1, 1.5, null]],
      ['ratelimit.setOverride', 'duration', [undefined, 999, 4e12]],
      ['ratelimit.getOverride', 'identifier', [undefined, '', long]],
      ['ratelimit.deleteOverride', 'namespace', [undefined, '', long]],
      ['ratelimit.listOverrides', 'limit', [0, 101, '5', 1.5]],
      ['ratelimit.listOverrides', 'cursor', ['', 'x', 5]],
    ];
    test.each(invalid)('%s: %s', async (operation, field, values) => {
      for (const value of values) {
        const fields = { ...good[operation], [field]: value };
        const response = await callOperation(server.port, operation, fields);
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
        const response = await callOperation(server.port, 'ratelimit.limit', body);
        const { detail, errors } = JSON.parse(response.body).error;
        expect(detail).toBe(message);
        expect(errors).toEqual([{ location, message, fix: `give ${fix}` }]);
        const many = await callOperation(server.port, 'ratelimit.multiLimit', [item(), body]);
        const inItem = { location: location.replace('body', 'body[1]'), fix: `give ${fix}` };
        expect(JSON.parse(many.body).error.errors).toEqual([
          { ...inItem, message: `[1]: ${message}` },
        ]);
      }
    });

    test.each(Object.keys(good))('%s: an unknown field', async (name) => {
      const operation = name as Operation;
      for (const field of ['async', 'Limit', '', 'é', 'namespaceId', 'toString']) {
        const response = await callOperation(server.port, operation, { ...good[name], [field]: 1 });
        expectError(response, 400, `${JSON.stringify(field)} is not a field`, `body.${field}`);
      }
      const long = { ...good[name], ['x'.repeat(10_000)]: 1 };
      const cut = await callOperation(server.port, operation, long);
      expectError(cut, 400, 'a text of 10000 characters is not a field');
      expect(cut.body.length).toBeLessThan(1_000);
      const { path } = pathAndMethodOf(operation);
      const body = JSON.stringify(good[name]).replace('{', '{"__proto__":{"limit":5},');
      expectError(await send(path, body), 400, '"__proto__" is not a field', 'body.__proto__');
    });

    test('negative zero, and a body that is not an object or not JSON, or is empty', async () => {
      const path = '/v2/ratelimit.limit';
      const text = JSON.stringify(item({ cost: 7 }));
      const negative = await send(path, text.replace('7', '-0'));
      expectError(negative, 400, '"cost" must be an integer from 0', 'body.cost');
      for (const body of ['[]', '5', 'null', '"x"']) {
        expectError(await send(path, body), 400, 'the body must be a JSON object', 'body');
      }
      expectError(await send(path, ''), 400, 'the body is not JSON: it is empty', 'body');
      expectError(await send(path, `${text},`), 400, 'the body is not JSON', 'body');
      const zero = `{"namespace":"n","identifier":"i","limit":-0,"duration":1000}`;
      const set = await send('/v2/ratelimit.setOverride', zero);
      expectError(set, 400, '"limit" must be an integer from 0', 'body.limit');
    });

    test('the largest values are accepted', async () => {
      const most = { limit: AMOUNT_MAX, cost: AMOUNT_MAX, namespace: '😀'.repeat(512) };
      expect(await limit(item(most))).toMatchObject({ success: true, remaining: 0 });
    });
  });

  describeOnce(mode, 'the errors', () => {
    const path = '/v2/ratelimit.limit';

    test('of a path or a method have the format of v2, with and without a key', async () => {
      const headers = { Authorization: '' };
      for (const unknown of ['/v2/', '/v2/ratelimits.limit', '/v2/ratelimit.limits', '//v2/x']) {
        expectError(
          await sendRequest(server.port, { path: unknown, headers }),
          404,
          'there is no POST',
        );
      }
      const get = await sendRequest(server.port, { method: 'GET', path, headers });
      expectError(get, 405, 'accepts the method POST');
      expect(get.headers.allow).toBe('POST');
      // A path with a doubled slash is the same operation.
      const doubled = await send(`/${path}`, JSON.stringify(item()));
      expect([doubled.status, JSON.parse(doubled.body).data.remaining]).toEqual([200, 9]);
      expectError(await send(`/${path}`, '{'), 400, 'the body is not JSON', 'body');
    });

    test('of the header are 400, and of the key 401', async () => {
      const body = JSON.stringify(item());
      for (const [authorization, detail] of [
        ['', 'is missing'],
        [ROOT_KEY, 'not of the form'],
        [`Basic ${ROOT_KEY}`, 'not of the form'],
        ['Bearer', 'not of the form'],
      ]) {
        const response = await send(path, body, { Authorization: authorization });
        expectError(response, 400, detail, 'header.authorization');
        expect(response.body).not.toContain(ROOT_KEY);
      }
      for (const [key, detail] of [
        ['wrong', 'is not known here'],
        [keys.expired, 'has expired'],
      ]) {
        expectError(await send(path, body, { Authorization: `Bearer ${key}` }), 401, detail);
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

    test('link to a page that is served without a key, and are counted by their codes', async () => {
      const name = 'weir_errors_total{status="404",code="NOT_FOUND"}';
      const before = await readMetric(server.adminUrl, name);
      const response = await sendRequest(server.port, { path: '/v2/nowhere' });
      const { type }: V2Error['error'] = JSON.parse(response.body).error;
      expect((await fetch(type)).status).toBe(200);
      expect(await readMetric(server.adminUrl, name)).toBe(before + 1);
    });

    test('of paths of v1 have the format of v1', async () => {
      const response = await sendRequest(server.port, { path: '/v1/nowhere' });
      expect(Object.keys(JSON.parse(response.body).error)).toEqual([
        ...['code', 'docs', 'message', 'requestId'],
      ]);
    });
  });

  describeOnce(mode, 'the ids of requests', () => {
    test('differ', async () => {
      const responses = await Promise.all(
        Array.from({ length: 60 }, (_, i) => {
          return callOperation(server.port, 'ratelimit.limit', i % 2 === 0 ? item() : {});
        }),
      );
      const ids = responses.map(({ body }) => JSON.parse(body).meta.requestId);
      expect(new Set(ids).size).toBe(60);
    });
  });
});

testInMemory('a batch with more new namespaces than are allowed creates none', async () => {
  const dataDir = temporaryDirectory();
  withStore(dataDir, (store) => {
    const records = Array.from({ length: NAMESPACES_MAX - 3 }, (_, i) => {
      return { id: `rlns_${i}`, name: `n${i}`, createdMs: 1 };
    });
    addRecords(store, 'namespaces', records);
  });
  const server = await startServer(dataDir, { args: ['--acceptors', '1', '--counters', '1024'] });
  const of = (names: string[], cost = 1) => {
    return names.map((namespace) => {
      return { namespace, identifier: 'a', limit: 5, duration: MONTH_MS, cost };
    });
  };
  const count = async () => (await callOperationOk(server.port, 'ratelimits.listNamespaces')).total;
  const items = of(['new 1', 'new 2', 'n1', 'new 1', 'new 3', 'new 4']);
  const response = await callOperation(server.port, 'ratelimit.multiLimit', items);
  expect(response.status).toBe(400);
  expect(JSON.parse(response.body).error.detail).toContain(
    '[5]: the maximum of 10000 namespaces is reached',
  );
  expect(await count()).toBe(NAMESPACES_MAX - 3);
  const queries = [...items.slice(0, 5), ...of(['new 4', 'new 5'], 0)];
  const { data } = await callOperationOk(server.port, 'ratelimit.multiLimit', queries);
  expect((data as Fields).passed).toBe(true);
  await expect.poll(count).toBe(NAMESPACES_MAX);
  server.child.kill('SIGKILL');
  await server.exited;
  removeDirectory(dataDir);
});
