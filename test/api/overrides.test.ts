import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  EXACT_OVERRIDES_MAX,
  WILDCARD_OVERRIDES_MAX,
  WILDCARDS_PER_TEXT_MAX,
} from '../../src/core/constants.ts';
import {
  errorIn,
  exchange,
  LONGEST_WINDOW_MS,
  readMetric,
  sendCheck,
  sendRequest,
} from '../support/http.ts';
import { callOperation, callOperationOk, type Fields } from '../support/operations.ts';
import { overrideId } from '../support/override-model.ts';
import {
  DECIDE_MODES,
  ROOT_KEY,
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { addKey, addRecords, withStore } from '../support/store.ts';

const DAY_MS = 86_400_000;

describe.each(DECIDE_MODES)('decided %s:', (mode) => {
  const dataDir = temporaryDirectory();
  let server: ServerProcess;
  const keys = { setter: '', ofOne: '' };
  beforeAll(async () => {
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
      keys.setter = addKey(store, { permissions: ['ratelimit.*.set_override'] });
      keys.ofOne = addKey(store, { permissions: ['ratelimit.rlns_1.set_override'] });
    });
    server = await startServer(dataDir, {
      args: ['--acceptors', '2', '--counters', '65536', '--decide', mode],
    });
  });
  afterAll(async () => {
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });

  const set = (fields: Fields, key?: string) => {
    const defaults = { identifier: 'user', limit: 5, duration: LONGEST_WINDOW_MS };
    return callOperation(server.port, 'ratelimits.setOverride', { ...defaults, ...fields }, key);
  };
  const setDone = async (fields: Fields): Promise<string> => {
    const response = await set(fields);
    if (response.status !== 200) throw new Error(response.body);
    return JSON.parse(response.body).overrideId;
  };
  const limitOf = async (namespace: string, identifier: string, fields: Fields = {}) => {
    const body = {
      namespace,
      identifier,
      limit: 1_000,
      duration: LONGEST_WINDOW_MS,
      cost: 0,
      ...fields,
    };
    return (await sendCheck(server.port, body)).limit;
  };

  describe('setOverride', () => {
    test('returns an id, and the next check has its limit and window', async () => {
      const response = await set({ namespaceName: 'a', identifier: 'user_1', duration: DAY_MS });
      expect(response.status).toBe(200);
      expect(Object.keys(JSON.parse(response.body))).toEqual(['overrideId']);
      expect(JSON.parse(response.body).overrideId).toMatch(/^rlor_[0-9a-f]{24}$/);
      const body = { namespace: 'a', identifier: 'user_1', limit: 1_000, duration: 1_000 };
      const responded = await sendCheck(server.port, { ...body, cost: 2 });
      expect(responded).toMatchObject({ success: true, limit: 5, remaining: 3 });
      expect(responded.reset % DAY_MS).toBe(0);
      expect(await sendCheck(server.port, { ...body, cost: 4 })).toMatchObject({
        success: false,
        limit: 5,
        remaining: 3,
      });
    });

    test('replaces the values under the same id; after a delete the id is new', async () => {
      const of = { namespaceName: 'a', identifier: 'again' };
      const id = await setDone({ ...of, limit: 5 });
      expect(await setDone({ ...of, limit: 6, async: true })).toBe(id);
      expect(await setDone({ ...of, limit: 6, async: true })).toBe(id);
      expect(await limitOf('a', 'again')).toBe(6);
      expect(await callOperationOk(server.port, 'ratelimits.getOverride', of)).toEqual({
        id,
        identifier: 'again',
        limit: 6,
        duration: LONGEST_WINDOW_MS,
        async: true,
      });
      expect(await callOperationOk(server.port, 'ratelimits.deleteOverride', of)).toEqual({});
      expect(await limitOf('a', 'again')).toBe(1_000);
      expect(await setDone(of)).not.toBe(id);
    });

    test('keeps the usage when the limit changes; another duration has another counter', async () => {
      const body = { namespace: 'a', identifier: 'used', limit: 10, duration: LONGEST_WINDOW_MS };
      await sendCheck(server.port, { ...body, cost: 4 });
      await setDone({ namespaceName: 'a', identifier: 'used', limit: 6 });
      expect((await sendCheck(server.port, { ...body, cost: 0 })).remaining).toBe(2);
      await setDone({ namespaceName: 'a', identifier: 'used', limit: 6, duration: DAY_MS });
      expect((await sendCheck(server.port, { ...body, cost: 0 })).remaining).toBe(6);
    });

    test('creates the namespace of a name, which then has an id; a pattern creates none', async () => {
      await setDone({ namespaceName: 'made by an override' });
      await setDone({ namespaceName: 'later.*', identifier: 'abc' });
      const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
      const made = (namespaces as { id: string; name: string }[]).filter(({ name }) => {
        return name === 'made by an override' || name.startsWith('later');
      });
      expect(made.map(({ name }) => name)).toEqual(['made by an override']);
      await setDone({ namespaceId: made[0].id, identifier: 'by id' });
      expect(await limitOf('made by an override', 'by id')).toBe(5);
      // A namespace that is created later matches.
      expect(await limitOf('later.on', 'abc', { cost: 1 })).toBe(5);
      expect(await limitOf('later.on', 'abc')).toBe(5);
      expect(await limitOf('never', 'abc')).toBe(1_000);
    });

    test('uses the id if the request has both', async () => {
      await setDone({ namespaceId: 'rlns_1', namespaceName: 'other', identifier: 'both' });
      expect(await limitOf('stored', 'both')).toBe(5);
      expect(await limitOf('other', 'both')).toBe(1_000);
    });

    test('by id applies to that namespace only, also if its name looks like a pattern', async () => {
      await sendCheck(server.port, { namespace: 'v*', identifier: 'a', limit: 1, duration: 1_000 });
      const name = 'v*';
      let id = '';
      await waitUntil('the namespace has an id', async () => {
        const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
        id = (namespaces as { id: string; name: string }[]).find((n) => n.name === name)?.id ?? '';
        return id !== '';
      });
      const permissions = [`ratelimit.${id}.set_override`];
      const { key } = await callOperationOk(server.port, 'keys.create', {
        name: 'of one',
        permissions,
      });
      const [exact, star] = ['alice', 'bob_*'];
      expect((await set({ namespaceName: name, identifier: exact }, `${key}`)).status).toBe(403);
      for (const [i, identifier] of [exact, star].entries()) {
        expect((await set({ namespaceId: id, identifier, limit: 7 + i }, `${key}`)).status).toBe(
          200,
        );
      }
      const limits = async () => [
        await limitOf('v*', 'alice'),
        await limitOf('v*', 'bob_1'),
        await limitOf('victim', 'alice'),
        await limitOf('victim', 'bob_1'),
      ];
      expect(await limits()).toEqual([7, 8, 1_000, 1_000]);
      // The pattern with the same text is another override, with less precedence than names.
      await setDone({ namespaceName: name, identifier: star, limit: 9 });
      expect(await limits()).toEqual([7, 8, 1_000, 9]);
      const exported = await callOperationOk(server.port, 'ratelimits.exportOverrides', {
        limit: 1_000,
      });
      const { overrides } = exported as { overrides: Fields[] };
      expect(overrides.filter(({ namespaceId }) => namespaceId === id)).toHaveLength(2);
      await callOperationOk(server.port, 'ratelimits.importOverrides', { overrides });
      expect(await limits()).toEqual([7, 8, 1_000, 9]);
      const of = { namespaceId: id, identifier: star };
      await callOperationOk(server.port, 'ratelimits.deleteOverride', of);
      expect(await limits()).toEqual([7, 9, 1_000, 9]);
      await callOperationOk(server.port, 'ratelimits.deleteOverride', {
        namespaceName: name,
        identifier: star,
      });
      expect(await limits()).toEqual([7, 1_000, 1_000, 1_000]);
    });

    test('has a counter for each identifier that matches a pattern', async () => {
      await setDone({ namespaceName: 'a', identifier: 'each_*', limit: 2 });
      const body = { namespace: 'a', limit: 1_000, duration: LONGEST_WINDOW_MS };
      for (const identifier of ['each_1', 'each_2']) {
        expect((await sendCheck(server.port, { ...body, identifier })).remaining).toBe(1);
      }
    });

    test('follows the order of precedence, also when overrides are deleted', async () => {
      const order: [namespaceName: string, identifier: string][] = [
        ['order', 'user_12'],
        ['order', 'user_1*'],
        ['order', 'us*2'],
        ['order', '*_12'],
        ['order', '***'],
        ['orde*', 'user_12'],
        ['o*der', '***'],
        ['*', 'user_12'],
      ];
      // From the last to the first, so that each replaces the one before.
      for (const [i, [namespaceName, identifier]] of [...order.entries()].reverse()) {
        await setDone({ namespaceName, identifier, limit: 10 + i });
        expect(await limitOf('order', 'user_12')).toBe(10 + i);
      }
      for (const [i, [namespaceName, identifier]] of order.entries()) {
        expect(await limitOf('order', 'user_12')).toBe(10 + i);
        await callOperationOk(server.port, 'ratelimits.deleteOverride', {
          namespaceName,
          identifier,
        });
      }
      expect(await limitOf('order', 'user_12')).toBe(1_000);
    });

    test('compares texts exactly', async () => {
      await setDone({ namespaceName: 'a', identifier: 'É😀x' });
      expect(await limitOf('a', 'É😀x')).toBe(5);
      for (const other of ['é😀x', 'E\u0301😀x', 'É😀x ', 'É😃x']) {
        expect(await limitOf('a', other)).toBe(1_000);
      }
    });

    test('makes the checks that it applies to asynchronous, and no others', async () => {
      const figure = () => readMetric(server.adminUrl, 'weir_queue_deductions_total');
      // A worker decides every check at once, asynchronous or not.
      const handed = mode === 'in-place' ? 1 : 0;
      const of = { namespaceName: 'async', identifier: 'later_*', limit: 100 };
      const body = { namespace: 'async', limit: 1, duration: LONGEST_WINDOW_MS };
      const deductions = async (identifier: string, fields: Fields = {}) => {
        const before = await figure();
        expect((await sendCheck(server.port, { ...body, identifier, ...fields })).success).toBe(
          true,
        );
        return (await figure()) - before;
      };
      await setDone({ ...of, async: true });
      expect(await deductions('later_1')).toBe(handed);
      expect(await deductions('now_1')).toBe(0);
      expect(await deductions('now_2', { async: true })).toBe(handed);
      await setDone({ ...of, async: false });
      expect(await deductions('later_2')).toBe(0);
      // Either the check or the override makes it asynchronous.
      expect(await deductions('later_3', { async: true })).toBe(handed);
    });

    const bounds = (most: number) => `from 1 to ${most}`;
    const invalid: [string, Fields, string][] = [
      ['no identifier', { identifier: undefined }, '"identifier" is required: a text of 3 to 512'],
      ['no limit', { limit: undefined }, '"limit" is required: an integer from 1 to'],
      ['a short one', { identifier: 'ab' }, '"identifier" must be a text of 3 to 512'],
      ['one of two code points', { identifier: '😀😀' }, '"identifier" must be a text of 3 to 512'],
      ['a long one', { identifier: 'x'.repeat(513) }, 'got a text of 513 characters'],
      ['a limit of 0', { limit: 0 }, `"limit" must be an integer ${bounds(AMOUNT_MAX)}; got 0`],
      ['a limit of -0', { limit: '-0' }, '"limit" must be'],
      ['a fraction', { limit: 1.5 }, '"limit" must be'],
      [
        'a duration below',
        { duration: 999 },
        '"duration" must be an integer number of milliseconds from 1000',
      ],
      [
        'a duration beyond',
        { duration: DURATION_MAX_MS + 1 },
        `to 3155760000000; got ${DURATION_MAX_MS + 1}`,
      ],
      [
        'seconds',
        { duration: 60 },
        '"duration" must be an integer number of milliseconds from 1000',
      ],
      ['async of another type', { async: 1 }, '"async" must be true or false; got 1'],
      ['async null', { async: null }, '"async" must be true or false; got null'],
      [
        'no namespace',
        { namespaceName: undefined },
        '"namespaceId" or "namespaceName" is required',
      ],
      ['an empty name', { namespaceName: '' }, '"namespaceName" must be a text of 1 to 512'],
      ['an id for a name', { namespaceName: 'rlns_1' }, '"namespaceName" must be a name'],
      [
        'too many wildcards',
        { identifier: 'a*'.repeat(WILDCARDS_PER_TEXT_MAX + 1) },
        `at most ${WILDCARDS_PER_TEXT_MAX} wildcards`,
      ],
      [
        'too many in a name',
        { namespaceName: '*'.repeat(17) },
        '"namespaceName" must have at most 16',
      ],
    ];
    test.each(invalid)('names the invalid field: %s', async (_what, fields, message) => {
      const response = await set({ namespaceName: 'a', ...fields });
      expect([response.status, errorIn(response).code]).toEqual([400, 'BAD_REQUEST']);
      expect(errorIn(response).message).toContain(message);
    });

    test('accepts the longest texts and the most wildcards', async () => {
      const identifier = `${'*a'.repeat(WILDCARDS_PER_TEXT_MAX)}${'😀'.repeat(512 - 2 * WILDCARDS_PER_TEXT_MAX)}`;
      const namespaceName = `${'*b'.repeat(WILDCARDS_PER_TEXT_MAX)}${'n'.repeat(512 - 2 * WILDCARDS_PER_TEXT_MAX)}`;
      await setDone({ identifier, namespaceName, limit: AMOUNT_MAX });
      expect(await limitOf(namespaceName.replaceAll('*', ''), identifier.replaceAll('*', ''))).toBe(
        AMOUNT_MAX,
      );
      await callOperationOk(server.port, 'ratelimits.deleteOverride', {
        identifier,
        namespaceName,
      });
    });

    test('responds 404 for an unknown id, and for a name that the key may not create', async () => {
      const unknown = await set({ namespaceId: 'rlns_nowhere' });
      expect([unknown.status, errorIn(unknown).message]).toEqual([
        404,
        'there is no namespace with the id "rlns_nowhere"',
      ]);
      const uncreated = await set({ namespaceName: 'uncreated' }, keys.setter);
      expect(uncreated.status).toBe(404);
      expect(errorIn(uncreated).message).toContain('"ratelimit.*.create_namespace"');
      expect((await set({ namespaceName: 'stored' }, keys.setter)).status).toBe(200);
    });

    test('responds 403 with the permissions that allow it; a pattern needs the one for all namespaces', async () => {
      expect((await set({ namespaceId: 'rlns_1' }, keys.ofOne)).status).toBe(200);
      expect((await set({ namespaceName: 'stored' }, keys.ofOne)).status).toBe(200);
      for (const namespaceName of ['sto*', 'other']) {
        const response = await set({ namespaceName }, keys.ofOne);
        expect(response.status).toBe(403);
        expect(errorIn(response).message).toContain('"ratelimit.*.set_override"');
      }
    });
  });

  describe('getOverride and deleteOverride', () => {
    test('find an override by the text of its pattern, in a namespace or a pattern of names', async () => {
      for (const namespaceName of ['found', 'fou*']) {
        const fields = { namespaceName, identifier: 'a&b=c d+%*😀' };
        const id = await setDone({ ...fields, limit: 7 });
        expect(await callOperationOk(server.port, 'ratelimits.getOverride', fields)).toEqual({
          id,
          identifier: fields.identifier,
          limit: 7,
          duration: LONGEST_WINDOW_MS,
          async: false,
        });
        await callOperationOk(server.port, 'ratelimits.deleteOverride', fields);
        for (const operation of ['getOverride', 'deleteOverride'] as const) {
          const response = await callOperation(server.port, `ratelimits.${operation}`, fields);
          expect([response.status, errorIn(response).code]).toEqual([404, 'NOT_FOUND']);
        }
      }
    });

    test('respond 404 for an unknown namespace, 400 without one or without an identifier', async () => {
      for (const operation of ['ratelimits.getOverride', 'ratelimits.deleteOverride'] as const) {
        const request = async (fields: Fields) => {
          const response = await callOperation(server.port, operation, fields);
          return [response.status, errorIn(response).message];
        };
        expect(await request({ namespaceName: 'nowhere', identifier: 'abc' })).toEqual([
          404,
          'there is no namespace "nowhere"',
        ]);
        expect(await request({ identifier: 'abc' })).toEqual([
          400,
          '"namespaceId" or "namespaceName" is required',
        ]);
        expect((await request({ namespaceName: 'a' }))[1]).toContain('"identifier" is required: ');
      }
    });

    test('validate a query strictly', async () => {
      const request = async (query: string) => {
        const path = `/v1/ratelimits.listOverrides?${query}`;
        const response = await sendRequest(server.port, { method: 'GET', path });
        return [response.status, response.status === 200 ? '' : errorIn(response).message];
      };
      expect(await request('namespaceName=%ff')).toEqual([
        400,
        'the query must be percent-encoded UTF-8',
      ]);
      expect((await request('namespaceName=a&limit=0'))[1]).toContain('from 1 to 100; got 0');
      expect((await request('namespaceName=a&limit=101'))[1]).toContain('from 1 to 100; got 101');
      expect((await request('namespaceName=a&limit=x'))[1]).toContain('from 1 to 100; got "x"');
      expect((await request('namespaceName=a&cursor=x'))[1]).toContain(
        '"cursor" must be the cursor',
      );
      expect(await request('namespaceName=b&namespaceName=a&&__proto__=1&x')).toEqual([200, '']);
      expect(await request('')).toEqual([400, '"namespaceId" or "namespaceName" is required']);
    });
  });

  describe('a query', () => {
    /** Sends the query as latin1, one byte per character. */
    const get = async (identifier: string) => {
      const path = `/v1/ratelimits.getOverride?namespaceName=utf8&identifier=${identifier}`;
      const lines = [`GET ${path} HTTP/1.1`, 'Host: h', `Authorization: Bearer ${ROOT_KEY}`];
      const bytes = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
      const [response] = await exchange(server.port, [bytes]);
      return response;
    };
    const latin1 = (text: string) => Buffer.from(text).toString('latin1');

    test('with bytes that are not UTF-8 gets a 400, and finds no override of an identifier with U+FFFD', async () => {
      for (const identifier of ['a\ufffdb', 'a\ufffd\ufffd\ufffdb']) {
        await setDone({ namespaceName: 'utf8', identifier });
      }
      const illFormed = ['\xff', '\xc0\x80', '\xe2\x82', '\xed\xa0\x80', '\xf4\x90\x80\x80'];
      for (const bytes of illFormed) {
        const encoded = [...bytes].map((byte) => `%${byte.charCodeAt(0).toString(16)}`).join('');
        for (const identifier of [`a${bytes}b`, `a${encoded}b`]) {
          const response = await get(identifier);
          expect([identifier, response.status, errorIn(response).code]).toEqual([
            identifier,
            400,
            'BAD_REQUEST',
          ]);
          expect(errorIn(response).message).toMatch(/^the query must be .*UTF-8/);
        }
      }
    });

    test('in UTF-8 is accepted, raw and percent-encoded; U+FFFD only percent-encoded', async () => {
      for (const identifier of ['a\ufffdb', 'é€😀']) {
        await setDone({ namespaceName: 'utf8', identifier });
        const response = await get(encodeURIComponent(identifier));
        expect([response.status, JSON.parse(response.body).identifier]).toEqual([200, identifier]);
      }
      expect(JSON.parse((await get(latin1('é€😀'))).body).identifier).toBe('é€😀');
      // uWebSockets.js gives the same text for it and for an ill-formed byte.
      expect((await get(latin1('a\ufffdb'))).status).toBe(400);
    });
  });

  describe('listOverrides and listNamespaces', () => {
    test('return pages in a stable order, each item once, while others are added and removed', async () => {
      const total = 25;
      const name = (i: number) => `listed_${i}`;
      for (let i = 0; i < total; i++) {
        await setDone({ namespaceName: 'listed', identifier: name(i) });
      }
      const seen: string[] = [];
      let cursor: unknown;
      let pages = 0;
      do {
        const page = await callOperationOk(server.port, 'ratelimits.listOverrides', {
          namespaceName: 'listed',
          limit: 10,
          ...(cursor === undefined ? {} : { cursor }),
        });
        const overrides = page.overrides as { id: string; identifier: string }[];
        expect(Object.keys(overrides[0])).toEqual([
          'id',
          'identifier',
          'limit',
          'duration',
          'async',
        ]);
        seen.push(...overrides.map(({ identifier }) => identifier));
        cursor = page.cursor;
        pages++;
        if (pages === 1) {
          expect([overrides.length, page.total]).toEqual([10, total]);
          // One of a returned page is removed, one changes, one is added.
          const first = { namespaceName: 'listed', identifier: name(0) };
          await callOperationOk(server.port, 'ratelimits.deleteOverride', first);
          await setDone({ namespaceName: 'listed', identifier: name(1), limit: 9 });
          await setDone({ namespaceName: 'listed', identifier: name(total) });
        } else expect(page.total).toBe(total);
      } while (cursor !== undefined);
      expect(pages).toBe(3);
      expect(seen).toEqual(Array.from({ length: total + 1 }, (_, i) => name(i)));
    });

    test('have no cursor on the last page or on an empty one', async () => {
      const { namespaces, total, cursor } = await callOperationOk(
        server.port,
        'ratelimits.listNamespaces',
      );
      expect((namespaces as object[]).length).toBe(total);
      expect(cursor).toBeUndefined();
      expect(namespaces).toContainEqual({ id: 'rlns_1', name: 'stored' });
      const one = await callOperationOk(server.port, 'ratelimits.listNamespaces', { limit: 1 });
      expect([(one.namespaces as object[]).length, one.total]).toEqual([1, total]);
      const rest = await callOperationOk(server.port, 'ratelimits.listNamespaces', {
        limit: (total as number) - 1,
        cursor: one.cursor,
      });
      expect([(rest.namespaces as object[]).length, rest.cursor]).toEqual([
        (total as number) - 1,
        undefined,
      ]);
      const empty = await callOperationOk(server.port, 'ratelimits.listOverrides', {
        namespaceName: 'zz*',
      });
      expect(empty).toEqual({ overrides: [], total: 0 });
    });
  });

  describe('importOverrides and exportOverrides', () => {
    const line = (i: number, changes: Fields = {}) => ({
      namespaceName: i % 2 === 0 ? 'imported' : 'impo*',
      identifier: `i${i}_*`,
      limit: i + 1,
      duration: DAY_MS,
      async: i % 3 === 0,
      ...changes,
    });
    const send = (overrides: unknown[], dryRun?: boolean) => {
      return callOperation(server.port, 'ratelimits.importOverrides', { overrides, dryRun });
    };

    test('set all overrides, or count them in a dry run, and export the same', async () => {
      const lines = Array.from({ length: 50 }, (_, i) => line(i));
      const dry = await send(lines, true);
      expect(JSON.parse(dry.body)).toEqual({ created: 50, updated: 0, unchanged: 0, dryRun: true });
      expect(await limitOf('imported', 'i4_x')).toBe(1_000);
      const wet = await send([...lines, line(4, { limit: 99 })]);
      expect(JSON.parse(wet.body)).toEqual({
        created: 50,
        updated: 1,
        unchanged: 0,
        dryRun: false,
      });
      expect(await limitOf('imported', 'i4_x')).toBe(99);
      const again = await send(lines);
      expect(JSON.parse(again.body)).toMatchObject({ created: 0, updated: 1, unchanged: 49 });
      const exported: unknown[] = [];
      let cursor: unknown;
      do {
        const page = await callOperationOk(server.port, 'ratelimits.exportOverrides', {
          limit: 20,
          ...(cursor === undefined ? {} : { cursor }),
        });
        exported.push(...(page.overrides as unknown[]));
        cursor = page.cursor;
      } while (cursor !== undefined);
      const ours = exported.filter((one) =>
        (one as Fields).namespaceName?.toString().startsWith('impo'),
      );
      expect(ours).toEqual(lines);
    });

    test('set nothing if one override is invalid, and name its index', async () => {
      const before = await callOperationOk(server.port, 'ratelimits.exportOverrides', { limit: 1 });
      const cases: [unknown, number, string][] = [
        [line(61, { limit: -1 }), 400, 'overrides[1]: "limit" must be'],
        ['text', 400, 'overrides[1]: an override must be a JSON object; got "text"'],
        [line(61, { namespaceName: undefined }), 400, 'overrides[1]: "namespaceId" or'],
        [line(61, { namespaceName: undefined, namespaceId: 'rlns_x' }), 404, 'overrides[1]: there'],
      ];
      for (const [fault, status, message] of cases) {
        const response = await send([line(60, { namespaceName: 'never made' }), fault]);
        expect(response.status).toBe(status);
        expect(errorIn(response).message).toContain(message);
      }
      expect(await limitOf('never made', 'i60_x')).toBe(1_000);
      const after = await callOperationOk(server.port, 'ratelimits.exportOverrides', { limit: 1 });
      expect(after.total).toBe(before.total);
      const { namespaces } = await callOperationOk(server.port, 'ratelimits.listNamespaces');
      expect((namespaces as Fields[]).some(({ name }) => name === 'never made')).toBe(false);
      expect(errorIn(await send(5 as unknown as unknown[])).message).toBe(
        '"overrides" must be an array of overrides; got 5',
      );
    });
  });
});

describe('the maximum of overrides', () => {
  test('is in the error, with and without a wildcard; existing overrides can still be changed', async () => {
    const dataDir = temporaryDirectory();
    const said = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };
    withStore(dataDir, (store) => {
      addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'full', createdMs: 1 }]);
      const fill = (count: number, identifier: (i: number) => string) => {
        return Array.from({ length: count }, (_, i) => {
          const id = overrideId(i);
          return { id, scope: 'rlns_1', identifier: identifier(i), ...said };
        });
      };
      addRecords(store, 'overrides', [
        ...fill(EXACT_OVERRIDES_MAX - 1, (i) => `user_${i}`),
        ...fill(WILDCARD_OVERRIDES_MAX - 1, (i) => `user_${i}_*`),
      ]);
    });
    const server = await startServer(dataDir, { args: ['--counters', '1024'] });
    const set = (identifier: string) => {
      const fields = { namespaceName: 'full', identifier, limit: 7, duration: 1_000 };
      return callOperation(server.port, 'ratelimits.setOverride', fields);
    };
    const cases = [
      ['last', 'one more', `${EXACT_OVERRIDES_MAX} overrides without a wildcard`],
      ['last*', 'one more*', `${WILDCARD_OVERRIDES_MAX} overrides with a wildcard`],
    ];
    for (const [last, more, message] of cases) {
      expect((await set(last)).status).toBe(200);
      const response = await set(more);
      expect([response.status, errorIn(response).code]).toEqual([400, 'BAD_REQUEST']);
      expect(errorIn(response).message).toContain(message);
      expect((await set(last)).status).toBe(200);
    }
    for (const [identifier, limit] of [
      ['user_99998', 5],
      ['user_9998_x', 5],
      ['last', 7],
    ] as const) {
      const body = { namespace: 'full', identifier, limit: 9, duration: 1_000 };
      expect(await sendCheck(server.port, body)).toMatchObject({ limit });
    }
    await waitUntil('it says what it loaded', () => server.stderr().includes('"msg":"loaded"'));
    expect(server.stderr()).toContain(
      `"overrides":{"exact":${EXACT_OVERRIDES_MAX - 1},"wildcard":${WILDCARD_OVERRIDES_MAX - 1}}`,
    );
    expect(await server.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(dataDir);
  });
});
