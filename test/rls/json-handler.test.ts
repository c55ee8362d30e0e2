/** `/json` and `/healthcheck` on a port of their own. */

import { describe, expect, test } from 'vitest';
import { RLS_DESCRIPTORS_MAX, RLS_MESSAGE_MAX_BYTES } from '../../src/core/constants.ts';
import { readMetrics } from '../support/http.ts';
import { useRlsServer } from '../support/rls/rls-server.ts';
import { freePort } from '../support/server.ts';

const port = await freePort();
const url = `http://127.0.0.1:${port}`;
const server = useRlsServer({
  env: { WEIR_RLS_JSON_PORT: String(port), WEIR_RLS_DYNAMIC_METADATA: 'true' },
  files: {
    'd.yaml': `
domain: d
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: 2, name: n } }
  - { key: z, rate_limit: { unit: year, requests_per_unit: 0, raw_body: "é" } }
  - { key: u, rate_limit: { unlimited: true } }
allow_negative_hits: true
`,
  },
});

const send = async (body: unknown, method = 'POST', path = '/json') => {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(`${url}${path}`, {
    method,
    ...(method !== 'GET' && { body: text }),
  });
  const { status, headers } = response;
  return { status, type: headers.get('content-type'), text: await response.text(), headers };
};
const ask = async (body: unknown) => {
  const { status, text, type } = await send(body);
  expect(type).toBe(status === 400 ? 'text/plain; charset=utf-8' : 'application/json');
  return [status, status === 400 ? text : JSON.parse(text)];
};
const request = (value: string, more: object = {}) => {
  return { domain: 'd', descriptors: [{ entries: [{ key: 'k', value }], ...more }] };
};
const seconds = expect.stringMatching(/^\d+s$/);

describe('/json', () => {
  test('answers with 200 and 429, and omits zeros', async () => {
    const currentLimit = { requestsPerUnit: 2, unit: 'YEAR', name: 'n' };
    const status = { code: 'OK', currentLimit, durationUntilReset: seconds };
    const answer = (limitRemaining: number, code = 'OK') => ({
      overallCode: code,
      statuses: [{ ...status, code, ...(limitRemaining > 0 && { limitRemaining }) }],
      dynamicMetadata: { domain: 'd', descriptors: [{ entries: ['k=a'] }] },
    });
    expect(await ask(request('a'))).toEqual([200, answer(1)]);
    expect(await ask(request('a'))).toEqual([200, answer(0)]);
    expect(await ask(request('a'))).toEqual([429, answer(0, 'OVER_LIMIT')]);
  });

  test('has the body of a denied request in base64, and no name or limit that is empty', async () => {
    const descriptors = [{ entries: [{ key: 'z', value: '' }] }, { entries: [{ key: 'u' }] }];
    expect(await ask({ domain: 'd', descriptors })).toEqual([
      429,
      expect.objectContaining({
        rawBody: Buffer.from('é').toString('base64'),
        statuses: [
          { code: 'OVER_LIMIT', currentLimit: { unit: 'YEAR' }, durationUntilReset: seconds },
          { code: 'OK', limitRemaining: 4_294_967_295 },
        ],
      }),
    ]);
  });

  test('reads camelCase, snake_case, texts of numbers, enums by name and number, and null', async () => {
    const remaining = async (body: object) => {
      const [status, answer] = await ask(body);
      expect(status).toBe(200);
      return (answer as { statuses: { limitRemaining?: number }[] }).statuses[0].limitRemaining;
    };
    expect(await remaining({ ...request('b'), hitsAddend: 2 })).toBeUndefined();
    expect(await remaining({ ...request('c'), hits_addend: '1' })).toBe(1);
    expect(await remaining(request('d', { hitsAddend: '0', limit: null }))).toBe(2);
    expect(await remaining(request('d', { hits_addend: 1, is_negative_hits: false }))).toBe(1);
    expect(await remaining(request('d', { hits_addend: 1, isNegativeHits: true }))).toBe(2);
    const limit = { requestsPerUnit: 9, unit: 'DAY' };
    expect(await remaining(request('e', { limit }))).toBe(8);
    expect(await remaining(request('e', { limit: { requests_per_unit: 9, unit: 4 } }))).toBe(7);
    expect(await remaining(request('e', { limit: { ...limit, unit_multiplier: 1 } }))).toBe(6);
  });

  test('answers a fault of a request with 400 and a sentence, and counts nothing', async () => {
    const accepted = `at most ${RLS_DESCRIPTORS_MAX} elements; got ${RLS_DESCRIPTORS_MAX + 1}`;
    const many = Array.from({ length: RLS_DESCRIPTORS_MAX + 1 }, () => ({}));
    const limit = { unit: 'DAYS' };
    for (const [body, sentence] of [
      ['}', /^the body must be JSON in UTF-8: .*\n$/],
      ['', /^the body must be JSON in UTF-8: .*\n$/],
      ['[]', 'the body must be an object; got an array of 0\n'],
      [
        { x: 1 },
        /^the body has the unknown field "x"; known are domain, descriptors, hitsAddend\n$/,
      ],
      [{ domain: 1 }, 'domain must be a text in valid Unicode; got 1\n'],
      [{}, 'rate limit domain must not be empty\n'],
      [{ domain: 'd' }, 'rate limit descriptor list must not be empty\n'],
      [{ domain: 'd', descriptors: many }, `descriptors must have ${accepted}\n`],
      [
        { ...request('f'), hits_addend: 1, hitsAddend: 1 },
        'the body has the field hitsAddend twice\n',
      ],
      [
        { ...request('f'), hitsAddend: -1 },
        'hitsAddend must be an integer from 0 to 4294967295; got -1\n',
      ],
      [
        request('f', { isNegativeHits: 1 }),
        'descriptors[0].isNegativeHits must be true or false; got 1\n',
      ],
      [
        request('f', { limit }),
        /^descriptors\[0\].limit.unit must be one of SECOND, .*; got "DAYS"\n$/,
      ],
      [
        request('f', { limit: {} }),
        'the limit of a descriptor is invalid: unit must be from 1 (SECOND) to 7 (WEEK); got 0\n',
      ],
    ] as const) {
      const [status, text] = await ask(body);
      expect(status).toBe(400);
      if (typeof sentence === 'string') expect(text).toBe(sentence);
      else expect(text).toMatch(sentence);
    }
    const [, answer] = await ask(request('f'));
    expect(answer).toMatchObject({ statuses: [{ limitRemaining: 1 }] });
  });

  test('counts a fault of a request as a fault', async () => {
    const faults = async () => {
      return (await readMetrics(server.adminUrl)).get('weir_rls_calls_total{result="fault"}')!;
    };
    const before = await faults();
    await ask('}');
    await ask({});
    expect(await faults()).toBe(before + 2);
  });

  test('rejects a body over the bound with 413', async () => {
    const { status, text } = await send(' '.repeat(RLS_MESSAGE_MAX_BYTES + 1));
    expect([status, text]).toEqual([
      413,
      `the body must have at most ${RLS_MESSAGE_MAX_BYTES} bytes\n`,
    ]);
    expect((await ask(`${' '.repeat(RLS_MESSAGE_MAX_BYTES - 2)}{}`))[0]).toBe(400);
  });

  test('takes any method, and ignores a query', async () => {
    expect((await send(request('m'), 'PUT')).status).toBe(200);
    expect((await send(request('m'), 'POST', '/json?x=1')).status).toBe(200);
    expect((await send('', 'GET')).status).toBe(400);
  });
});

test('/healthcheck is OK, and any other path is not found', async () => {
  expect(await send('', 'GET', '/healthcheck')).toMatchObject({ status: 200, text: 'OK' });
  expect(await send('', 'GET', '/x')).toMatchObject({
    status: 404,
    text: 'there is no /x here: the paths are /json, /healthcheck\n',
  });
});
