import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AMOUNT_MAX, BODY_MAX_BYTES, DURATION_MAX_MS } from '../../src/core/constants.ts';
import { describeEngines, type EngineServer, startEngineServer } from '../support/engine-modes.ts';
import {
  errorIn,
  LONGEST_WINDOW_MS,
  type ParsedResponse,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';
import { addKey, addRecords, withStore } from '../support/store.ts';

describeEngines('decided %s:', (mode) => {
  let server: EngineServer;
  const dataDir = temporaryDirectory();
  const keys = {
    expired: '',
    expiring: '',
    nothing: '',
    limitOnly: '',
    oneNamespace: '',
    creator: '',
  };

  beforeAll(async () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
      keys.expired = addKey(store, { expiresMs: 1_600_000_000_000 });
      keys.expiring = addKey(store, { expiresMs: 9_000_000_000_000 });
      keys.nothing = addKey(store, { permissions: [] });
      keys.limitOnly = addKey(store, { permissions: ['ratelimit.*.limit'] });
      keys.oneNamespace = addKey(store, { permissions: ['ratelimit.rlns_1.limit'] });
      keys.creator = addKey(store, {
        permissions: ['ratelimit.*.limit', 'ratelimit.*.create_namespace'],
      });
    });
    server = await startEngineServer(mode, dataDir, {
      args: ['--acceptors', '2', '--counters', '65536'],
    });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    await server.closeEngine();
    removeDirectory(dataDir);
  });

  /** A valid body with changes; `undefined` removes a field. */
  const valid = { identifier: 'user', limit: 10, duration: LONGEST_WINDOW_MS };
  const bodyWith = (changes: object) => JSON.stringify({ ...valid, ...changes });
  let serial = 0;
  const fresh = () => `user_${serial++}`;
  const send = (body: string | Uint8Array) => sendRequest(server.port, { body });
  const sendAs = (key: string, body: object) => {
    return sendRequest(server.port, {
      headers: { Authorization: `Bearer ${key}` },
      body: JSON.stringify({ ...valid, ...body }),
    });
  };

  describe('a check', () => {
    test('counts down, is denied with a 200, and a denied check consumes nothing', async () => {
      const identifier = fresh();
      const now = Date.now();
      const first = await sendCheck(server.port, {
        identifier,
        limit: 3,
        duration: LONGEST_WINDOW_MS,
        cost: 2,
      });
      expect(first).toMatchObject({ success: true, limit: 3, remaining: 1 });
      expect(first.reset % LONGEST_WINDOW_MS).toBe(0);
      expect(first.reset - now).toBeGreaterThan(0);
      expect(first.reset - now).toBeLessThanOrEqual(LONGEST_WINDOW_MS);
      const body = { identifier, limit: 3, duration: LONGEST_WINDOW_MS };
      expect(await sendCheck(server.port, { ...body, cost: 2 })).toMatchObject({
        success: false,
        remaining: 1,
      });
      expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining: 0 });
      expect(await sendCheck(server.port, body)).toMatchObject({ success: false, remaining: 0 });
      expect(await sendCheck(server.port, { ...body, cost: 0 })).toMatchObject({
        success: true,
        remaining: 0,
      });
    });

    test('gets JSON with exactly the four fields', async () => {
      const response = await send(bodyWith({ identifier: fresh() }));
      expect(response.status).toBe(200);
      expect(response.headers['content-type']).toBe('application/json');
      expect(Object.keys(JSON.parse(response.body))).toEqual([
        'success',
        'limit',
        'remaining',
        'reset',
      ]);
    });

    test('uses the namespace "default" and a cost of 1 by default', async () => {
      const identifier = fresh();
      await send(bodyWith({ identifier }));
      const response = await sendCheck(server.port, {
        ...valid,
        identifier,
        namespace: 'default',
        cost: 0,
      });
      expect(response.remaining).toBe(9);
      const other = await sendCheck(server.port, { ...valid, identifier, namespace: 'other' });
      expect(other.remaining).toBe(9);
    });

    test('with async: true is decided by the deductions so far', async () => {
      const body = { ...valid, identifier: fresh(), async: true };
      expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining: 9 });
      await waitUntil('it is deducted', async () => {
        return (await sendCheck(server.port, { ...body, cost: 0 })).remaining === 9;
      });
      expect(await sendCheck(server.port, body)).toMatchObject({ success: true, remaining: 8 });
    });
  });

  describe('a field is accepted', () => {
    const accepted: [string, string][] = [
      ['limit 1.0, 1e3', `{"identifier":"a","limit":1.0,"duration":1e3}`],
      [
        'the largest values',
        bodyWith({
          limit: AMOUNT_MAX,
          cost: AMOUNT_MAX,
          duration: DURATION_MAX_MS,
          identifier: 'largest',
        }),
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
    ];
    test.each(accepted)('%s', async (_what, body) => {
      expect(await send(body)).toMatchObject({ status: 200 });
    });

    test('and the last of duplicate fields counts', async () => {
      const response = await send('{"identifier":"d","limit":0,"duration":1000,"limit":7}');
      expect(JSON.parse(response.body)).toMatchObject({ success: true, limit: 7 });
    });

    test('and an identifier is the same with any escapes, and never normalized or trimmed', async () => {
      const texts = ['É1', 'é1', 'E\u03011', ' é1', 'é1 '];
      for (const identifier of texts) {
        expect((await sendCheck(server.port, { ...valid, identifier })).remaining).toBe(9);
      }
      const escaped = await send(
        `{"identifier":"\\u00e91","limit":10,"duration":${LONGEST_WINDOW_MS}}`,
      );
      expect(JSON.parse(escaped.body).remaining).toBe(8);
    });
  });

  describe('an error names the invalid field, the values accepted and the value received', () => {
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
      return invalid.map(([value, shown]): [string, string] => {
        return [bodyWith({ [name]: value }), `"${name}" must be ${kind} ${bounds}; got ${shown}`];
      });
    };
    const text = (max: number, min = 0) => `a text of ${min} to ${max} characters`;
    const invalid: [string, string][] = [
      ...integers('limit', `from 1 to ${AMOUNT_MAX}`),
      ...integers(
        'duration',
        `from 1000 to ${DURATION_MAX_MS}`,
        'an integer number of milliseconds',
      ),
      ...integers('cost', `from 0 to ${AMOUNT_MAX}`),
      [bodyWith({ limit: 0 }), `"limit" must be an integer from 1 to ${AMOUNT_MAX}; got 0`],
      // Seconds, a common mistake.
      [
        bodyWith({ duration: 60 }),
        `"duration" must be an integer number of milliseconds from 1000 to ${DURATION_MAX_MS}; got 60`,
      ],
      [bodyWith({ duration: 999 }), 'from 1000 to 3155760000000; got 999'],
      [bodyWith({ duration: DURATION_MAX_MS + 1 }), `got ${DURATION_MAX_MS + 1}`],
      ['{"identifier":"a","limit":-0,"duration":1000}', '"limit" must be an integer from 1'],
      [
        '{"identifier":"a","limit":5,"duration":1000,"cost":-0}',
        '"cost" must be an integer from 0 to 9007199254740991; got -0',
      ],
      ['{"identifier":"a","limit":5,"duration":1000,"cost":-0.0}', 'got -0'],
      ['{"identifier":"a","limit":1e400,"duration":1000}', 'got a number beyond all bounds'],
      ['{"limit":5,"duration":1000}', `"identifier" is required: ${text(512)}`],
      [
        '{"identifier":"a","duration":1000}',
        `"limit" is required: an integer from 1 to ${AMOUNT_MAX}`,
      ],
      [
        '{"identifier":"a","limit":5}',
        `"duration" is required: an integer number of milliseconds from 1000 to ${DURATION_MAX_MS}`,
      ],
      ['{"identifier":5,"limit":0}', '"identifier" must be'],
      ['{"meta":5,"limit":"x","identifier":"a"}', '"limit" must be'],
      ['{"__proto__":{"identifier":"a"},"limit":5,"duration":1000}', '"identifier" is required: '],
      [bodyWith({ identifier: null }), `"identifier" must be ${text(512)}; got null`],
      [bodyWith({ identifier: 5 }), 'got 5'],
      [bodyWith({ identifier: 'a'.repeat(513) }), 'got a text of 513 characters'],
      [bodyWith({ identifier: '😀'.repeat(513) }), 'got a text of 513 characters'],
      [bodyWith({ namespace: '' }), `"namespace" must be ${text(512, 1)}; got ""`],
      [bodyWith({ namespace: null }), '"namespace" must be'],
      [bodyWith({ namespace: 'n'.repeat(513) }), 'got a text of 513 characters'],
      [bodyWith({ namespace: 'rlns_x' }), '"namespace" must be a name'],
      [bodyWith({ async: 'true' }), '"async" must be true or false; got "true"'],
      [bodyWith({ async: null }), '"async" must be true or false; got null'],
      [bodyWith({ meta: [] }), '"meta" must be an object; got an array of 0'],
      [bodyWith({ meta: null }), '"meta" must be an object; got null'],
      [
        bodyWith({ resources: {} }),
        '"resources" must be an array of at most 32 objects; got an object',
      ],
      [bodyWith({ resources: Array.from({ length: 33 }, () => ({})) }), 'got an array of 33'],
      [bodyWith({ resources: [null] }), '"resources[0]" must be an object'],
      [
        bodyWith({ resources: [{}, { name: '' }] }),
        `"resources[1].name" must be ${text(512, 1)}; got ""`,
      ],
      [bodyWith({ resources: [{ id: 5 }] }), '"resources[0].id" must be'],
      [bodyWith({ resources: [{ id: null }] }), 'got null'],
      ['[]', 'the body must be a JSON object; got an array of 0'],
      ['null', 'the body must be a JSON object; got null'],
      ['5', 'the body must be a JSON object; got 5'],
      ['"text"', 'the body must be a JSON object; got "text"'],
      ['', 'the body is not JSON: it is empty'],
      [
        '{"identifier":"a",}',
        'the body is not JSON: line 1, column 19: a name in double quotes is expected',
      ],
      [
        `\ufeff${bodyWith({})}`,
        'the body is not JSON: line 1, column 1: a value or a name in double quotes is expected',
      ],
      [`\n${bodyWith({})}{}`, 'the body is not JSON: line 2, column '],
      ['{"identifier": secret}', 'column 16: a value or a name in double quotes is expected'],
      [
        '{"identifier":"\\ud83d","limit":5,"duration":1000}',
        '"identifier" must be well-formed Unicode',
      ],
      ['{"identifier":"\\ude00\\ud83d","limit":5,"duration":1000}', 'must be well-formed Unicode'],
      [
        '{"identifier":"a","limit":5,"duration":1000,"resources":[{"id":"\\ud800"}]}',
        '"resources[0].id" must be well-formed Unicode',
      ],
    ];
    test.each(invalid)('%s', async (body, message) => {
      const response = await send(body);
      expect(response.status).toBe(400);
      expect(errorIn(response)).toMatchObject({ code: 'BAD_REQUEST' });
      expect(errorIn(response).message).toContain(message);
    });

    test('invalid UTF-8 of every kind is rejected, not read as other text', async () => {
      const kinds = [
        [0x80],
        [0xff],
        [0xc3],
        [0xc0, 0xaf],
        [0xed, 0xa0, 0x80],
        [0xf5, 0x80, 0x80, 0x80],
      ];
      for (const bytes of kinds) {
        const body = Buffer.concat([
          Buffer.from('{"identifier":"'),
          Buffer.from(bytes),
          Buffer.from('","limit":5,"duration":1000}'),
        ]);
        const response = await send(body);
        expect(response.status).toBe(400);
        expect(errorIn(response).message).toBe('the body is not valid UTF-8');
      }
    });

    test('60 000 nested arrays, also with an escape, are rejected', async () => {
      const nested = '['.repeat(30_000) + ']'.repeat(30_000);
      expect(
        (
          await send(
            bodyWith({ identifier: fresh(), meta: { a: 0 } }).replace(':0}', `:${nested}}`),
          )
        ).status,
      ).toBe(200);
      const escaped = `["\\u0041",${nested}]`;
      expect(
        (
          await send(
            bodyWith({ identifier: fresh(), meta: { a: 0 } }).replace(':0}', `:${escaped}}`),
          )
        ).status,
      ).toBe(200);
      expect((await send('['.repeat(60_000))).status).toBe(400);
    });

    test('20 000 invalid items in an array of at most 32 are one error, found at low cost', async () => {
      const resources = Array.from({ length: 20_000 }, () => 1);
      const responses = await Promise.all(
        Array.from({ length: 50 }, () => send(bodyWith({ resources }))),
      );
      for (const response of responses) {
        expect(response.status).toBe(400);
        expect(errorIn(response).message).toContain('"resources');
      }
      const many = await send(bodyWith({ resources: Array.from({ length: 20_000 }, () => ({})) }));
      expect(errorIn(many).message).toContain('got an array of 20000');
    });

    test('an invalid body counts nothing', async () => {
      const identifier = fresh();
      await send(bodyWith({ identifier, meta: 5 }));
      await send(`${bodyWith({ identifier })},`);
      expect((await sendCheck(server.port, { ...valid, identifier, cost: 0 })).remaining).toBe(10);
    });
  });

  describe('the errors', () => {
    function expectError(
      response: ParsedResponse,
      status: number,
      code: string,
      ...parts: string[]
    ): void {
      expect(response.status).toBe(status);
      expect(response.headers['content-type']).toBe('application/json');
      const error = errorIn(response);
      expect(Object.keys(error)).toEqual(['code', 'docs', 'message', 'requestId']);
      expect(error.code).toBe(code);
      expect(error.requestId).toMatch(/^req_[0-9a-f]{24}_\d+$/);
      expect(response.headers['x-request-id']).toBe(error.requestId);
      expect(error.docs).toBe(`${server.url}/docs/errors/${code}`);
      for (const part of parts) expect(error.message).toContain(part);
    }

    test('link to a page that is served without a key', async () => {
      const response = await sendRequest(server.port, { path: '/nowhere' });
      const page = await fetch(errorIn(response).docs);
      expect(page.status).toBe(200);
      expect(page.headers.get('content-type')).toContain('text/html');
      expect(await page.text()).toContain('NOT_FOUND');
    });

    test('404: an unknown path, with method and path, with and without a key', async () => {
      for (const path of [
        '/',
        '/v1/',
        '/v1/ratelimits.limits',
        '/v1/ratelimits.limit/',
        '/V1/ratelimits.limit',
      ]) {
        const headers = { Authorization: '' };
        expectError(
          await sendRequest(server.port, { path, headers }),
          404,
          'NOT_FOUND',
          `POST ${path}`,
        );
      }
      const long = await sendRequest(server.port, { path: `/${'x'.repeat(3_000)}` });
      expect(errorIn(long).message.length).toBeLessThan(300);
    });

    test('405: a known path with another method, with Allow', async () => {
      for (const method of ['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'ODD']) {
        const response = await sendRequest(server.port, { method, headers: { Authorization: '' } });
        expectError(response, 405, 'METHOD_NOT_ALLOWED', 'accepts the method POST');
        expect(response.headers.allow).toBe('POST');
      }
      const head = await fetch(`${server.url}/v1/ratelimits.limit`, { method: 'HEAD' });
      expect([head.status, head.headers.get('allow'), await head.text()]).toEqual([
        405,
        'POST',
        '',
      ]);
      const docs = await sendRequest(server.port, { path: '/docs/errors/NOT_FOUND' });
      expectError(docs, 405, 'METHOD_NOT_ALLOWED', 'accepts the method GET');
      expect(docs.headers.allow).toBe('GET, HEAD');
      const page = await fetch(`${server.url}/docs/errors/NOT_FOUND`, { method: 'HEAD' });
      expect([page.status, await page.text()]).toEqual([200, '']);
    });

    test('401: no key, no Bearer, an unknown key, an expired key; never the key itself', async () => {
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
      for (const [authorization, message] of cases) {
        const headers = { Authorization: authorization };
        const response = await sendRequest(server.port, { headers, body: bodyWith({}) });
        expectError(response, 401, 'UNAUTHORIZED', message);
        expect(response.body).not.toContain('root-key');
        expect(response.body).not.toContain('weir_');
      }
    });

    test('the scheme is case-insensitive, and a key that expires later is valid', async () => {
      for (const scheme of ['bearer', 'BEARER', 'Bearer ']) {
        const headers = { Authorization: `${scheme} ${keys.expiring}` };
        expect((await sendRequest(server.port, { headers, body: bodyWith({}) })).status).toBe(200);
      }
    });

    test('415: a content type other than JSON; none is accepted', async () => {
      for (const type of ['text/plain', 'application/jsonp', 'application/x-www-form-urlencoded']) {
        const headers = { 'Content-Type': type };
        const response = await sendRequest(server.port, { headers, body: bodyWith({}) });
        expectError(response, 415, 'UNSUPPORTED_MEDIA_TYPE', 'application/json');
      }
      for (const type of ['', 'application/json;charset=utf-8', 'Application/JSON\t; a=b']) {
        const headers = { 'Content-Type': type };
        expect((await sendRequest(server.port, { headers, body: bodyWith({}) })).status).toBe(200);
      }
    });

    test('413: a body over 64 KiB; one of exactly 64 KiB is accepted', async () => {
      const sized = (bytes: number) => {
        const body = bodyWith({ identifier: 'sized', meta: { pad: '' } });
        return body.replace('""', `"${'x'.repeat(bytes - body.length)}"`);
      };
      expect(sized(BODY_MAX_BYTES).length).toBe(65_536);
      expect((await send(sized(BODY_MAX_BYTES - 1))).status).toBe(200);
      expect((await send(sized(BODY_MAX_BYTES))).status).toBe(200);
      const response = await send(sized(BODY_MAX_BYTES + 1));
      expectError(response, 413, 'PAYLOAD_TOO_LARGE', '65536 bytes');
      const fetched = await fetch(`${server.url}/v1/ratelimits.limit`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${keys.creator}`, 'Content-Type': 'application/json' },
        body: sized(1_000_000),
      });
      expect(fetched.status).toBe(413);
      expect(
        (await sendCheck(server.port, { ...valid, identifier: 'sized', cost: 0 })).remaining,
      ).toBe(8);
    });

    test('403: a key without the permission, with the permissions that allow the request', async () => {
      const nothing = await sendAs(keys.nothing, {});
      expectError(nothing, 403, 'FORBIDDEN', '"ratelimit.*.limit"');
      const stored = await sendAs(keys.nothing, { namespace: 'stored' });
      expectError(
        stored,
        403,
        'FORBIDDEN',
        '"ratelimit.*.limit" or "ratelimit.<namespaceId>.limit"',
      );
      expectError(await sendAs(keys.oneNamespace, {}), 403, 'FORBIDDEN', '"ratelimit.*.limit"');
      expectError(await sendAs(keys.oneNamespace, { namespace: 'nowhere' }), 403, 'FORBIDDEN');
      expect((await sendAs(keys.oneNamespace, { namespace: 'stored' })).status).toBe(200);
      expect((await sendAs(keys.limitOnly, { namespace: 'stored' })).status).toBe(200);
    });

    test('404: an unknown namespace that the key may not create', async () => {
      const response = await sendAs(keys.limitOnly, { namespace: 'nobody"s' });
      expectError(response, 404, 'NOT_FOUND', '"nobody\\"s"', '"ratelimit.*.create_namespace"');
      expectError(
        await sendAs(keys.limitOnly, { namespace: 'nobody"s', cost: 0 }),
        404,
        'NOT_FOUND',
      );
      expect((await sendAs(keys.creator, { namespace: 'nobody"s' })).status).toBe(200);
    });

    test('have an order: path, method, key, type, size, body, permission, existence', async () => {
      const large = 'x'.repeat(BODY_MAX_BYTES + 1);
      const wrong = { Authorization: 'Bearer wrong', 'Content-Type': 'text/plain' };
      const steps: [Parameters<typeof sendRequest>[1], number][] = [
        [{ path: '/nowhere', method: 'PUT', headers: wrong, body: large }, 404],
        [{ method: 'PUT', headers: wrong, body: large }, 405],
        [{ headers: wrong, body: large }, 401],
        [
          {
            headers: { Authorization: `Bearer ${keys.nothing}`, 'Content-Type': 'text/plain' },
            body: large,
          },
          415,
        ],
        [{ headers: { Authorization: `Bearer ${keys.nothing}` }, body: large }, 413],
        [
          { headers: { Authorization: `Bearer ${keys.nothing}` }, body: bodyWith({ limit: 0 }) },
          400,
        ],
        [
          {
            headers: { Authorization: `Bearer ${keys.nothing}` },
            body: bodyWith({ namespace: 'nowhere' }),
          },
          403,
        ],
        [
          {
            headers: { Authorization: `Bearer ${keys.limitOnly}` },
            body: bodyWith({ namespace: 'nowhere' }),
          },
          404,
        ],
      ];
      for (const [parts, status] of steps) {
        expect((await sendRequest(server.port, parts)).status).toBe(status);
      }
    });
  });
});
