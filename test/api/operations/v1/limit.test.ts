/** The check of v1: its results, the bodies that it accepts, and its errors. */

import { expect, test } from 'vitest';
import { AMOUNT_MAX, BODY_MAX_BYTES, DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import { describeEngines, describeOnce } from '../../../support/engine-modes.ts';
import { errorIn, LONGEST_WINDOW_MS, type ParsedResponse } from '../../../support/http.ts';
import { addKey, addRecords } from '../../../support/store.ts';
import { useServer } from '../../../support/test-server.ts';

describeEngines('decided %s:', (mode) => {
  const keys = { expired: '', nothing: '', limitOnly: '', oneNamespace: '', creator: '' };
  const server = useServer({
    mode,
    prepare: (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
      const anywhere = 'ratelimit.*.limit';
      keys.expired = addKey(store, { expiresMs: 1_600_000_000_000 });
      keys.nothing = addKey(store, { permissions: [] });
      keys.limitOnly = addKey(store, { permissions: [anywhere] });
      keys.oneNamespace = addKey(store, { permissions: ['ratelimit.rlns_1.limit'] });
      keys.creator = addKey(store, {
        permissions: [anywhere, 'ratelimit.*.create_namespace'],
        expiresMs: 9_000_000_000_000,
      });
    },
  });

  const valid = { identifier: 'user', limit: 10, duration: LONGEST_WINDOW_MS };
  /** A valid body with changes; `undefined` removes a field. */
  const bodyWith = (changes: object) => JSON.stringify({ ...valid, ...changes });
  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const send = (body: string | Uint8Array) => server.send({ body });

  test('a check counts down, is denied with a 200, and a denied one consumes nothing', async () => {
    const body = { ...valid, identifier: fresh(), limit: 3 };
    const now = Date.now();
    const response = await send(JSON.stringify({ ...body, cost: 2 }));
    expect([response.status, response.headers['content-type']]).toEqual([200, 'application/json']);
    const first = JSON.parse(response.body);
    expect(first).toEqual({ success: true, limit: 3, remaining: 1, reset: expect.any(Number) });
    expect(first.reset % LONGEST_WINDOW_MS).toBe(0);
    expect(first.reset - now).toBeGreaterThan(0);
    expect(first.reset - now).toBeLessThanOrEqual(LONGEST_WINDOW_MS);
    for (const [cost, success, remaining] of [
      [2, false, 1],
      [undefined, true, 0],
      [1, false, 0],
      [0, true, 0],
    ]) {
      expect(await server.check({ ...body, cost })).toMatchObject({ success, remaining });
    }
  });

  test('a check has the namespace "default" and a cost of 1 by default', async () => {
    const identifier = fresh();
    for (const changes of [{}, { namespace: 'default', cost: 0 }, { namespace: 'other' }]) {
      const check = await server.check({ ...valid, identifier, ...changes });
      expect(check.remaining).toBe(9);
    }
  });

  describeOnce(mode, 'a body is accepted with', () => {
    const brackets = '['.repeat(30_000) + ']'.repeat(30_000);
    const largest = { limit: AMOUNT_MAX, cost: AMOUNT_MAX, identifier: 'largest' };
    test.each([
      ['the largest values', bodyWith(largest)],
      ['the empty identifier', bodyWith({ identifier: '' })],
      ['512 characters outside the BMP', bodyWith({ identifier: '😀'.repeat(512) })],
      ['a namespace of 512 characters', bodyWith({ namespace: 'n'.repeat(512) })],
      ['unknown fields', bodyWith({ unknown: null, constructor: 1, toString: 2 })],
      ['__proto__, without effect', bodyWith({}).replace('{', '{"__proto__":{"limit":"x"},')],
      ['any object for meta', bodyWith({ meta: { a: [null, { b: 1.5 }], '': '😀' } })],
      ['32 resources', bodyWith({ resources: [{}, ...Array(31).fill({ type: 't', other: 1 })] })],
      ['no resource', bodyWith({ resources: [] })],
      ['escapes of surrogate pairs', bodyWith({}).replace('user', '\\ud83d\\ude00')],
      ['60 000 brackets', bodyWith({ meta: 0 }).replace(':0', `:{"a":["\\u0041",${brackets}]}`)],
    ])('%s', async (_what, body) => {
      expect(await send(body)).toMatchObject({ status: 200 });
    });

    test('exactly 64 KiB, and not with a byte more', async () => {
      const sized = (bytes: number) => {
        const body = bodyWith({ identifier: 'sized', meta: { pad: '' } });
        return body.replace('""', `"${'x'.repeat(bytes - body.length)}"`);
      };
      expect(BODY_MAX_BYTES).toBe(65_536);
      expect((await send(sized(BODY_MAX_BYTES))).status).toBe(200);
      const large = await send(sized(BODY_MAX_BYTES + 1));
      expectError(large, 413, 'PAYLOAD_TOO_LARGE', '65536 bytes');
      const headers = {
        Authorization: `Bearer ${keys.creator}`,
        'Content-Type': 'application/json',
      };
      const init = { method: 'POST', headers, body: sized(1_000_000) };
      expect((await fetch(`${server.url}/v1/ratelimits.limit`, init)).status).toBe(413);
      const left = await server.check({ ...valid, identifier: 'sized', cost: 0 });
      expect(left.remaining).toBe(9);
    });
  });

  // test/core/schema.test.ts has the other errors of a schema, and docs/openapi.json the bounds.
  describeOnce(mode, 'an error names the invalid field, the values accepted and received', () => {
    const amounts = (min: number) => `an integer from ${min} to ${AMOUNT_MAX}`;
    const ms = `an integer number of milliseconds from 1000 to ${DURATION_MAX_MS}`;
    const text = (max: number, min = 0) => `a text of ${min} to ${max} characters`;
    test.each<[object, string]>([
      [{ limit: 0 }, `"limit" must be ${amounts(1)}; got 0`],
      [{ limit: 1.5 }, '; got 1.5'],
      [{ limit: '5' }, '; got "5"'],
      [{ limit: true }, '; got true'],
      [{ limit: 2 ** 53 }, '; got 9007199254740992'],
      [{ cost: -1 }, `"cost" must be ${amounts(0)}; got -1`],
      // Seconds, a common mistake.
      [{ duration: 60 }, `"duration" must be ${ms}; got 60`],
      [{ duration: 999 }, '; got 999'],
      [{ duration: DURATION_MAX_MS + 1 }, `got ${DURATION_MAX_MS + 1}`],
      [{ identifier: undefined }, `"identifier" is required: ${text(512)}`],
      [{ limit: undefined }, `"limit" is required: ${amounts(1)}`],
      [{ duration: undefined }, `"duration" is required: ${ms}`],
      // The first invalid field in the order of the schema.
      [{ meta: 5, limit: 'x' }, '"limit" must be'],
      [{ identifier: null }, `"identifier" must be ${text(512)}; got null`],
      [{ identifier: '😀'.repeat(513) }, 'got a text of 513 characters'],
      [{ namespace: '' }, `"namespace" must be ${text(512, 1)}; got ""`],
      [{ namespace: 'n'.repeat(513) }, 'got a text of 513 characters'],
      [{ namespace: 'rlns_x' }, '"namespace" must be a name'],
      [{ async: 'true' }, '"async" must be true or false; got "true"'],
      [{ meta: [] }, '"meta" must be an object; got an array of 0'],
      [{ resources: {} }, '"resources" must be an array of at most 32 objects; got an object'],
      [{ resources: Array(33).fill({}) }, 'got an array of 33'],
      [{ resources: [null] }, '"resources[0]" must be an object'],
      [{ resources: [{}, { name: '' }] }, `"resources[1].name" must be ${text(512, 1)}; got ""`],
      [{ resources: [{ id: null }] }, '"resources[0].id" must be'],
    ])('%j', async (changes, message) => {
      expectError(await send(bodyWith(changes)), 400, 'BAD_REQUEST', message);
    });

    test.each([
      [`{"limit":1e400,"identifier":"a","duration":1000}`, 'got a number beyond all bounds'],
      ['{"__proto__":{"identifier":"a"},"limit":5,"duration":1000}', '"identifier" is required'],
      ['[]', 'the body must be a JSON object; got an array of 0'],
      ['', 'the body is not JSON: it is empty'],
      [`\ufeff${bodyWith({})}`, 'the body is not JSON: line 1, column 1: a value or a name'],
    ])('%s', async (body, message) => {
      expectError(await send(body), 400, 'BAD_REQUEST', message);
    });

    test('an invalid body counts nothing', async () => {
      const identifier = fresh();
      await send(bodyWith({ identifier, meta: 5 }));
      await send(`${bodyWith({ identifier })},`);
      expect((await server.check({ ...valid, identifier, cost: 0 })).remaining).toBe(10);
    });
  });

  describeOnce(mode, 'the response', () => {
    const sendAs = (key: string, changes: object, headers: Record<string, string> = {}) => {
      const all = { Authorization: `Bearer ${key}`, ...headers };
      return server.send({ headers: all, body: bodyWith(changes) });
    };

    test('404: names an unknown method and path, and links to a page without a key', async () => {
      const paths = ['/', '/v1/', '/v1/ratelimits.limits', '/v1/ratelimits.limit/'];
      for (const path of [...paths, '/V1/ratelimits.limit']) {
        const response = await server.send({ path, headers: { Authorization: '' } });
        expectError(response, 404, 'NOT_FOUND', `POST ${path}`);
      }
      const long = errorIn(await server.send({ path: `/${'x'.repeat(3_000)}` }));
      expect(long.message.length).toBeLessThan(300);
      expect(long.docs).toBe(`${server.url}/docs/errors/NOT_FOUND`);
      const page = await fetch(long.docs);
      expect(page.headers.get('content-type')).toContain('text/html');
      expect(await page.text()).toContain('NOT_FOUND');
    });

    test('405: names the method that the path accepts', async () => {
      const response = await server.send({ method: 'ODD', headers: { Authorization: '' } });
      expectError(response, 405, 'METHOD_NOT_ALLOWED', 'accepts the method POST');
      expect(response.headers.allow).toBe('POST');
      const docs = await server.send({ path: '/docs/errors/NOT_FOUND' });
      expectError(docs, 405, 'METHOD_NOT_ALLOWED', 'accepts the method GET');
      expect(docs.headers.allow).toBe('GET, HEAD');
    });

    test('401: no key, no Bearer, an unknown or expired key, and never shows the key', async () => {
      for (const [Authorization, message] of [
        ['', 'is missing'],
        ['root-key-of-the-tests', 'not of the form'],
        ['Basic root-key-of-the-tests', 'not of the form'],
        ['Bearer', 'not of the form'],
        ['Bearer root-key of-the-tests', 'not of the form'],
        [`Bearer ${'x'.repeat(600)}`, 'not of the form'],
        ['Bearer root-key-of-the-test', 'not known'],
        [`Bearer ${keys.expired}`, 'has expired'],
      ]) {
        const response = await sendAs('', {}, { Authorization });
        expectError(response, 401, 'UNAUTHORIZED', message);
        expect(response.body).not.toMatch(/root-key|weir_/);
      }
      for (const scheme of ['bearer', 'BEARER', 'Bearer ']) {
        const Authorization = `${scheme} ${keys.creator}`;
        expect((await sendAs('', {}, { Authorization })).status).toBe(200);
      }
    });

    test('415: a content type other than JSON; none is accepted', async () => {
      for (const type of ['text/plain', 'application/jsonp', 'application/x-www-form-urlencoded']) {
        const response = await sendAs(keys.creator, {}, { 'Content-Type': type });
        expectError(response, 415, 'UNSUPPORTED_MEDIA_TYPE', 'application/json');
      }
      for (const type of ['', 'application/json;charset=utf-8', 'Application/JSON\t; a=b']) {
        expect((await sendAs(keys.creator, {}, { 'Content-Type': type })).status).toBe(200);
      }
    });

    test('403: a key without the permission, with the permissions that allow it', async () => {
      const inAll = '"ratelimit.*.limit"';
      const stored = { namespace: 'stored' };
      expectError(await sendAs(keys.nothing, {}), 403, 'FORBIDDEN', inAll);
      const either = `${inAll} or "ratelimit.<namespaceId>.limit"`;
      expectError(await sendAs(keys.nothing, stored), 403, 'FORBIDDEN', either);
      expectError(await sendAs(keys.oneNamespace, {}), 403, 'FORBIDDEN', inAll);
      expect((await sendAs(keys.oneNamespace, stored)).status).toBe(200);
    });

    test('404: an unknown namespace that the key may not create', async () => {
      const namespace = 'nobody"s';
      const response = await sendAs(keys.limitOnly, { namespace });
      expectError(response, 404, 'NOT_FOUND', '"nobody\\"s"', '"ratelimit.*.create_namespace"');
      expectError(await sendAs(keys.limitOnly, { namespace, cost: 0 }), 404, 'NOT_FOUND');
      expect((await sendAs(keys.creator, { namespace })).status).toBe(200);
    });

    test('is for the first of: path, method, key, type, size, body, permission, namespace', async () => {
      const large = 'x'.repeat(BODY_MAX_BYTES + 1);
      const wrong = { Authorization: 'Bearer wrong', 'Content-Type': 'text/plain' };
      const nothing = { Authorization: `Bearer ${keys.nothing}` };
      const limitOnly = { Authorization: `Bearer ${keys.limitOnly}` };
      const nowhere = bodyWith({ namespace: 'nowhere' });
      const ids = new Set<string>();
      for (const [status, parts] of [
        [404, { path: '/nowhere', method: 'PUT', headers: wrong, body: large }],
        [405, { method: 'PUT', headers: wrong, body: large }],
        [401, { headers: wrong, body: large }],
        [415, { headers: { ...wrong, ...nothing }, body: large }],
        [413, { headers: nothing, body: large }],
        [400, { headers: nothing, body: bodyWith({ limit: 0 }) }],
        [403, { headers: nothing, body: nowhere }],
        [404, { headers: limitOnly, body: nowhere }],
      ] as const) {
        const response = await server.send(parts);
        expect(response.status).toBe(status);
        ids.add(errorIn(response).requestId);
      }
      // Each has an id of its own.
      expect(ids.size).toBe(8);
    });
  });
});

function expectError(
  response: ParsedResponse,
  status: number,
  code: string,
  ...parts: string[]
): void {
  expect([response.status, response.headers['content-type']]).toEqual([status, 'application/json']);
  const error = errorIn(response);
  expect(Object.keys(error)).toEqual(['code', 'docs', 'message', 'requestId']);
  expect(error.code).toBe(code);
  expect(error.requestId).toMatch(/^req_[0-9a-f]{24}_\d+$/);
  expect(response.headers['x-request-id']).toBe(error.requestId);
  expect(error.docs.endsWith(`/docs/errors/${code}`)).toBe(true);
  for (const part of parts) expect(error.message).toContain(part);
}
