/** The check of v1: its results, the bodies that it accepts, and its errors. */

import { afterAll, beforeAll, expect, test } from 'vitest';
import { AMOUNT_MAX, BODY_MAX_BYTES, DURATION_MAX_MS } from '../../src/core/constants.ts';
import { describeEngines, describeOnce, startEngineServer } from '../support/engine-modes.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import {
  removeDirectory,
  type SteppedServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { addKey, addRecords, withStore } from '../support/store.ts';

describeEngines('decided %s:', (mode) => {
  let server: SteppedServer;
  const dataDir = temporaryDirectory();
  const keys = { expired: '', nothing: '', limitOnly: '', oneNamespace: '', creator: '' };

  beforeAll(async () => {
    withStore(dataDir, (store) => {
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
    });
    const args = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];
    server = await startEngineServer(mode, dataDir, { args });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  const valid = { identifier: 'user', limit: 10, duration: LONGEST_WINDOW_MS };
  /** A valid body with changes; `undefined` removes a field. */
  const bodyWith = (changes: object) => JSON.stringify({ ...valid, ...changes });
  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const send = (body: string | Uint8Array) => sendRequest(server.port, { body });

  test('a check counts down, is denied with a 200, and a denied one consumes nothing', async () => {
    const body = { ...valid, identifier: fresh(), limit: 3 };
    const check = (cost?: number) => sendCheck(server.port, { ...body, cost });
    const now = Date.now();
    const first = await check(2);
    expect(first).toMatchObject({ success: true, limit: 3, remaining: 1 });
    expect(first.reset % LONGEST_WINDOW_MS).toBe(0);
    expect(first.reset - now).toBeGreaterThan(0);
    expect(first.reset - now).toBeLessThanOrEqual(LONGEST_WINDOW_MS);
    expect(await check(2)).toMatchObject({ success: false, remaining: 1 });
    expect(await check()).toMatchObject({ success: true, remaining: 0 });
    expect(await check()).toMatchObject({ success: false, remaining: 0 });
    expect(await check(0)).toMatchObject({ success: true, remaining: 0 });
  });

  test('a check has the namespace "default" and a cost of 1 by default', async () => {
    const identifier = fresh();
    const remaining = async (changes: object) => {
      return (await sendCheck(server.port, { ...valid, identifier, ...changes })).remaining;
    };
    expect(await remaining({})).toBe(9);
    expect(await remaining({ namespace: 'default', cost: 0 })).toBe(9);
    expect(await remaining({ namespace: 'other' })).toBe(9);
  });

  test('a check with async: true is decided by the deductions so far', async () => {
    const body = { ...valid, identifier: fresh(), async: true };
    expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining: 9 });
    await waitUntil('it is deducted', async () => {
      return (await sendCheck(server.port, { ...body, cost: 0 })).remaining === 9;
    });
    expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining: 8 });
  });

  describeOnce(mode, 'a body is accepted with', () => {
    const accepted: [string, string][] = [
      ['limit 1.0, 1e3', `{"identifier":"a","limit":1.0,"duration":1e3}`],
      [
        'the largest values',
        bodyWith({ limit: AMOUNT_MAX, cost: AMOUNT_MAX, identifier: 'largest' }),
      ],
      ['the empty identifier', bodyWith({ identifier: '' })],
      ['512 characters outside the BMP', bodyWith({ identifier: '😀'.repeat(512) })],
      ['a namespace of 512 characters', bodyWith({ namespace: 'n'.repeat(512) })],
      ['any text', bodyWith({ identifier: '\u0000 \n"\\ \u2028 ​ é' })],
      ['unknown fields', bodyWith({ unknown: null, constructor: 1, toString: 2 })],
      [
        '__proto__ as a field, without effect',
        `{"__proto__":{"limit":1},"identifier":"p","limit":5,"duration":1000}`,
      ],
      ['any object for meta', bodyWith({ meta: { a: [null, { b: 1.5 }], '': '😀' } })],
      [
        '32 resources, with any of the three texts',
        bodyWith({ resources: Array.from({ length: 32 }, () => ({ type: 't', other: 1 })) }),
      ],
      ['an empty resource', bodyWith({ resources: [{}] })],
      ['no resource', bodyWith({ resources: [] })],
      ['white space around', ` \t\r\n${bodyWith({})} `],
      ['escapes of surrogate pairs', `{"identifier":"\\ud83d\\ude00","limit":5,"duration":1000}`],
      ['60 000 brackets', bodyWith({ meta: 0 }).replace(':0', `:{"a":${nested(30_000)}}`)],
      [
        '60 000 brackets and an escape',
        bodyWith({ meta: 0 }).replace(':0', `:{"a":["\\u0041",${nested(30_000)}]}`),
      ],
    ];
    test.each(accepted)('%s', async (_what, body) => {
      expect(await send(body)).toMatchObject({ status: 200 });
    });

    test('a field twice, of which the last counts', async () => {
      const response = await send('{"identifier":"d","limit":0,"duration":1000,"limit":7}');
      expect(JSON.parse(response.body)).toMatchObject({ success: true, limit: 7 });
    });

    test('an identifier with any escapes, which is never normalized or trimmed', async () => {
      for (const identifier of ['É1', 'é1', 'E\u03011', ' é1', 'é1 ']) {
        expect((await sendCheck(server.port, { ...valid, identifier })).remaining).toBe(9);
      }
      const escaped = `{"identifier":"\\u00e91","limit":10,"duration":${LONGEST_WINDOW_MS}}`;
      expect(JSON.parse((await send(escaped)).body).remaining).toBe(8);
    });

    test('exactly 64 KiB, and not with a byte more', async () => {
      const sized = (bytes: number) => {
        const body = bodyWith({ identifier: 'sized', meta: { pad: '' } });
        return body.replace('""', `"${'x'.repeat(bytes - body.length)}"`);
      };
      expect(sized(BODY_MAX_BYTES).length).toBe(65_536);
      expect((await send(sized(BODY_MAX_BYTES - 1))).status).toBe(200);
      expect((await send(sized(BODY_MAX_BYTES))).status).toBe(200);
      const large = await send(sized(BODY_MAX_BYTES + 1));
      expectError(large, 413, 'PAYLOAD_TOO_LARGE', '65536 bytes');
      const headers = {
        Authorization: `Bearer ${keys.creator}`,
        'Content-Type': 'application/json',
      };
      const init = { method: 'POST', headers, body: sized(1_000_000) };
      expect((await fetch(`${server.url}/v1/ratelimits.limit`, init)).status).toBe(413);
      const left = await sendCheck(server.port, { ...valid, identifier: 'sized', cost: 0 });
      expect(left.remaining).toBe(8);
    });
  });

  describeOnce(mode, 'an error names the invalid field, the values accepted and received', () => {
    const integers = (name: string, bounds: string, kind = 'an integer') => {
      const invalid: [unknown, string][] = [
        [-1, '-1'],
        [1.5, '1.5'],
        ['5', '"5"'],
        [null, 'null'],
        [true, 'true'],
        [[], 'an array of 0'],
        [{}, 'an object'],
        [2 ** 53, '9007199254740992'],
      ];
      return invalid.map(([value, shown]): [object, string] => {
        return [{ [name]: value }, `"${name}" must be ${kind} ${bounds}; got ${shown}`];
      });
    };
    const text = (max: number, min = 0) => `a text of ${min} to ${max} characters`;
    const durations = `from 1000 to ${DURATION_MAX_MS}`;
    const ms = 'an integer number of milliseconds';
    test.each<[object, string]>([
      ...integers('limit', `from 1 to ${AMOUNT_MAX}`),
      ...integers('duration', durations, ms),
      ...integers('cost', `from 0 to ${AMOUNT_MAX}`),
      [{ limit: 0 }, `"limit" must be an integer from 1 to ${AMOUNT_MAX}; got 0`],
      // Seconds, a common mistake.
      [{ duration: 60 }, `"duration" must be ${ms} ${durations}; got 60`],
      [{ duration: 999 }, `${durations}; got 999`],
      [{ duration: DURATION_MAX_MS + 1 }, `got ${DURATION_MAX_MS + 1}`],
      [{ identifier: undefined }, `"identifier" is required: ${text(512)}`],
      [{ limit: undefined }, `"limit" is required: an integer from 1 to ${AMOUNT_MAX}`],
      [{ duration: undefined }, `"duration" is required: ${ms} ${durations}`],
      // The first invalid field in the order of the schema.
      [{ identifier: 5, limit: 0 }, '"identifier" must be'],
      [{ meta: 5, limit: 'x' }, '"limit" must be'],
      [{ identifier: null }, `"identifier" must be ${text(512)}; got null`],
      [{ identifier: 'a'.repeat(513) }, 'got a text of 513 characters'],
      [{ identifier: '😀'.repeat(513) }, 'got a text of 513 characters'],
      [{ namespace: '' }, `"namespace" must be ${text(512, 1)}; got ""`],
      [{ namespace: null }, '"namespace" must be'],
      [{ namespace: 'n'.repeat(513) }, 'got a text of 513 characters'],
      [{ namespace: 'rlns_x' }, '"namespace" must be a name'],
      [{ async: 'true' }, '"async" must be true or false; got "true"'],
      [{ async: null }, '"async" must be true or false; got null'],
      [{ meta: [] }, '"meta" must be an object; got an array of 0'],
      [{ meta: null }, '"meta" must be an object; got null'],
      [{ resources: {} }, '"resources" must be an array of at most 32 objects; got an object'],
      [{ resources: Array(33).fill({}) }, 'got an array of 33'],
      [{ resources: [null] }, '"resources[0]" must be an object'],
      [{ resources: [{}, { name: '' }] }, `"resources[1].name" must be ${text(512, 1)}; got ""`],
      [{ resources: [{ id: 5 }] }, '"resources[0].id" must be'],
      [{ resources: [{ id: null }] }, 'got null'],
    ])('%j', async (changes, message) => {
      expectError(await send(bodyWith(changes)), 400, 'BAD_REQUEST', message);
    });

    const noIdentifier = '{"__proto__":{"identifier":"a"},"limit":5,"duration":1000}';
    test.each([
      ['{"identifier":"a","limit":-0,"duration":1000}', '"limit" must be an integer from 1'],
      [
        '{"identifier":"a","limit":5,"duration":1000,"cost":-0}',
        '"cost" must be an integer from 0 to 9007199254740991; got -0',
      ],
      ['{"identifier":"a","limit":5,"duration":1000,"cost":-0.0}', 'got -0'],
      ['{"identifier":"a","limit":1e400,"duration":1000}', 'got a number beyond all bounds'],
      [noIdentifier, '"identifier" is required: '],
      ['[]', 'the body must be a JSON object; got an array of 0'],
      ['null', 'the body must be a JSON object; got null'],
      ['5', 'the body must be a JSON object; got 5'],
      ['"text"', 'the body must be a JSON object; got "text"'],
      ['', 'the body is not JSON: it is empty'],
      ['['.repeat(60_000), 'the body is not JSON'],
      [`\ufeff${bodyWith({})}`, 'the body is not JSON: line 1, column 1: a value or a name'],
      [`\n${bodyWith({})}{}`, 'the body is not JSON: line 2, column '],
    ])('%s', async (body, message) => {
      expectError(await send(body), 400, 'BAD_REQUEST', message);
    });

    test('one error is shown for an array of 20 000 objects or invalid items', async () => {
      for (const [item, message] of [
        [{}, 'got an array of 20000'],
        [1, '"resources[0]" must be an object'],
      ] as const) {
        const response = await send(bodyWith({ resources: Array(20_000).fill(item) }));
        expectError(response, 400, 'BAD_REQUEST', message);
      }
    });

    test('an invalid body counts nothing', async () => {
      const identifier = fresh();
      await send(bodyWith({ identifier, meta: 5 }));
      await send(`${bodyWith({ identifier })},`);
      expect((await sendCheck(server.port, { ...valid, identifier, cost: 0 })).remaining).toBe(10);
    });
  });

  describeOnce(mode, 'the response', () => {
    const sendAs = (key: string, changes: object, headers: Record<string, string> = {}) => {
      const all = { Authorization: `Bearer ${key}`, ...headers };
      return sendRequest(server.port, { headers: all, body: bodyWith(changes) });
    };

    test('200: is JSON with exactly the four fields', async () => {
      const response = await send(bodyWith({ identifier: fresh() }));
      expect([response.status, response.headers['content-type']]).toEqual([
        200,
        'application/json',
      ]);
      const fields = ['success', 'limit', 'remaining', 'reset'];
      expect(Object.keys(JSON.parse(response.body))).toEqual(fields);
    });

    test('404: names an unknown method and path, and links to a page without a key', async () => {
      const paths = ['/', '/v1/', '/v1/ratelimits.limits', '/v1/ratelimits.limit/'];
      for (const path of [...paths, '/V1/ratelimits.limit']) {
        const response = await sendRequest(server.port, { path, headers: { Authorization: '' } });
        expectError(response, 404, 'NOT_FOUND', `POST ${path}`);
      }
      const long = await sendRequest(server.port, { path: `/${'x'.repeat(3_000)}` });
      expect(errorIn(long).message.length).toBeLessThan(300);
      const { docs } = errorIn(long);
      expect(docs).toBe(`${server.url}/docs/errors/NOT_FOUND`);
      const page = await fetch(docs);
      expect([page.status, page.headers.get('content-type')]).toEqual([
        200,
        expect.stringContaining('text/html'),
      ]);
      expect(await page.text()).toContain('NOT_FOUND');
    });

    test('405: names the method that the path accepts', async () => {
      const response = await sendRequest(server.port, {
        method: 'ODD',
        headers: { Authorization: '' },
      });
      expectError(response, 405, 'METHOD_NOT_ALLOWED', 'accepts the method POST');
      expect(response.headers.allow).toBe('POST');
      const docs = await sendRequest(server.port, { path: '/docs/errors/NOT_FOUND' });
      expectError(docs, 405, 'METHOD_NOT_ALLOWED', 'accepts the method GET');
      expect(docs.headers.allow).toBe('GET, HEAD');
      const page = await fetch(`${server.url}/docs/errors/NOT_FOUND`, { method: 'HEAD' });
      expect([page.status, await page.text()]).toEqual([200, '']);
    });

    test('401: no key, no Bearer, an unknown or expired key, and never shows the key', async () => {
      const cases: [string, string][] = [
        ['', 'is missing'],
        ['root-key-of-the-tests', 'not of the form'],
        ['Basic root-key-of-the-tests', 'not of the form'],
        ['Bearer', 'not of the form'],
        ['Bearer root-key of-the-tests', 'not of the form'],
        [`Bearer ${'x'.repeat(600)}`, 'not of the form'],
        ['Bearer root-key-of-the-test', 'not known'],
        [`Bearer ${keys.expired}`, 'has expired'],
      ];
      for (const [Authorization, message] of cases) {
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
      expect((await sendAs(keys.limitOnly, stored)).status).toBe(200);
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
      const steps: [Parameters<typeof sendRequest>[1], number][] = [
        [{ path: '/nowhere', method: 'PUT', headers: wrong, body: large }, 404],
        [{ method: 'PUT', headers: wrong, body: large }, 405],
        [{ headers: wrong, body: large }, 401],
        [{ headers: { ...wrong, ...nothing }, body: large }, 415],
        [{ headers: nothing, body: large }, 413],
        [{ headers: nothing, body: bodyWith({ limit: 0 }) }, 400],
        [{ headers: nothing, body: nowhere }, 403],
        [{ headers: limitOnly, body: nowhere }, 404],
      ];
      for (const [parts, status] of steps) {
        expect((await sendRequest(server.port, parts)).status).toBe(status);
      }
    });
  });
});

function nested(arrays: number): string {
  return '['.repeat(arrays) + ']'.repeat(arrays);
}

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
