/** The operations on overrides, and their effect on the checks of several threads. */

import { describe, expect, test } from 'vitest';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  WILDCARDS_PER_TEXT_MAX,
} from '../../../src/core/constants.ts';
import { errorIn, exchange, LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { Fields, Operation } from '../../support/operations.ts';
import { ROOT_KEY } from '../../support/server.ts';
import { addKey, addRecords } from '../../support/store.ts';
import { useServer } from '../../support/test-server.ts';

const DAY_MS = 86_400_000;
const keys = { setter: '', ofOne: '', readerOfOne: '' };
const server = useServer({
  args: ['--acceptors', '2', '--decide', 'in-place'],
  prepare: (store) => {
    addRecords(store, 'namespaces', [{ id: 'rlns_1', name: 'stored', createdMs: 1 }]);
    keys.setter = addKey(store, { permissions: ['ratelimit.*.set_override'] });
    keys.ofOne = addKey(store, { permissions: ['ratelimit.rlns_1.set_override'] });
    keys.readerOfOne = addKey(store, { permissions: ['ratelimit.rlns_1.read_override'] });
  },
});

const VALUES = { identifier: 'user', limit: 5, duration: LONGEST_WINDOW_MS };
const set = async (fields: Fields, key?: string) => {
  const all = { ...VALUES, ...fields };
  return (await server.ok<{ overrideId: string }>('ratelimits.setOverride', all, key)).overrideId;
};
const setError = (fields: Fields, key?: string) => {
  return server.errorOf('ratelimits.setOverride', { ...VALUES, ...fields }, key);
};
const call = (operation: 'get' | 'delete' | 'list' | 'import' | 'export', fields: Fields = {}) => {
  const isList = ['list', 'import', 'export'].includes(operation);
  return server.ok(`ratelimits.${operation}Override${isList ? 's' : ''}` as Operation, fields);
};
const check = (namespace: string, identifier: string, fields: Fields = {}) => {
  const body = { namespace, identifier, limit: 1_000, duration: LONGEST_WINDOW_MS };
  return server.check({ ...body, ...fields });
};
const limitOf = async (namespace: string, identifier: string) => {
  return (await check(namespace, identifier, { cost: 0 })).limit;
};

describe('setOverride', () => {
  test('returns an id, and the next check has its limit and window', async () => {
    const fields = { ...VALUES, namespaceName: 'a', identifier: 'user_1', duration: DAY_MS };
    const response = await server.ok('ratelimits.setOverride', fields);
    expect(response).toEqual({ overrideId: expect.stringMatching(/^rlor_[0-9a-f]{24}$/) });
    const terms = { duration: 1_000 };
    const { reset, ...rest } = await check('a', 'user_1', { ...terms, cost: 2 });
    expect(rest).toEqual({ success: true, limit: 5, remaining: 3 });
    expect(reset % DAY_MS).toBe(0);
    const denied = { success: false, limit: 5, remaining: 3 };
    expect(await check('a', 'user_1', { ...terms, cost: 4 })).toMatchObject(denied);
  });

  test('replaces the values under the same id; after a delete the id is new', async () => {
    const of = { namespaceName: 'a', identifier: 'again' };
    const id = await set({ ...of, limit: 5 });
    expect(await set({ ...of, limit: 6, async: true })).toBe(id);
    expect(await set({ ...of, limit: 6, async: true })).toBe(id);
    expect(await limitOf('a', 'again')).toBe(6);
    const shown = { identifier: 'again', limit: 6, duration: LONGEST_WINDOW_MS, async: true };
    expect(await call('get', of)).toEqual({ id, ...shown });
    expect(await call('delete', of)).toEqual({});
    expect(await limitOf('a', 'again')).toBe(1_000);
    expect(await set(of)).not.toBe(id);
  });

  test('keeps the usage when the limit changes; another duration has another counter', async () => {
    await check('a', 'used', { cost: 4 });
    const of = { namespaceName: 'a', identifier: 'used', limit: 6 };
    await set(of);
    expect((await check('a', 'used', { cost: 0 })).remaining).toBe(2);
    await set({ ...of, duration: DAY_MS });
    expect((await check('a', 'used', { cost: 0 })).remaining).toBe(6);
  });

  test('creates the namespace of a name, which then has an id; a pattern creates none', async () => {
    await set({ namespaceName: 'made by an override' });
    await set({ namespaceName: 'later.*', identifier: 'abc' });
    const made = (await server.namespaces()).filter(({ name }) => /^(made|later)/.test(name));
    expect(made.map(({ name }) => name)).toEqual(['made by an override']);
    await set({ namespaceId: made[0].id, identifier: 'by id' });
    expect(await limitOf('made by an override', 'by id')).toBe(5);
    // A namespace that is created later matches.
    expect((await check('later.on', 'abc')).limit).toBe(5);
    expect(await limitOf('never', 'abc')).toBe(1_000);
  });

  test('uses the id if the request has both', async () => {
    await set({ namespaceId: 'rlns_1', namespaceName: 'other', identifier: 'both' });
    expect(await limitOf('stored', 'both')).toBe(5);
    expect(await limitOf('other', 'both')).toBe(1_000);
  });

  test('by id applies to that namespace only, also if its name looks like a pattern', async () => {
    const name = 'v*';
    await check(name, 'a');
    const id = await server.namespaceId(name);
    const permissions = [`ratelimit.${id}.set_override`];
    const { key } = await server.ok('keys.create', { name: 'of one', permissions });
    const [exact, star] = ['alice', 'bob_*'];
    expect((await setError({ namespaceName: name }, `${key}`))[0]).toBe(403);
    for (const [i, identifier] of [exact, star].entries()) {
      await set({ namespaceId: id, identifier, limit: 7 + i }, `${key}`);
    }
    const limits = async () => [
      ...[await limitOf(name, 'alice'), await limitOf(name, 'bob_1')],
      ...[await limitOf('victim', 'alice'), await limitOf('victim', 'bob_1')],
    ];
    expect(await limits()).toEqual([7, 8, 1_000, 1_000]);
    // The pattern with the same text is another override, with less precedence than names.
    await set({ namespaceName: name, identifier: star, limit: 9 });
    expect(await limits()).toEqual([7, 8, 1_000, 9]);
    const { overrides } = (await call('export', { limit: 1_000 })) as { overrides: Fields[] };
    expect(overrides.filter(({ namespaceId }) => namespaceId === id)).toHaveLength(2);
    await call('import', { overrides });
    expect(await limits()).toEqual([7, 8, 1_000, 9]);
    await call('delete', { namespaceId: id, identifier: star });
    expect(await limits()).toEqual([7, 9, 1_000, 9]);
    await call('delete', { namespaceName: name, identifier: star });
    expect(await limits()).toEqual([7, 1_000, 1_000, 1_000]);
  });

  test('has a counter for each identifier that matches a pattern', async () => {
    await set({ namespaceName: 'a', identifier: 'each_*', limit: 2 });
    for (const identifier of ['each_1', 'each_2']) {
      expect((await check('a', identifier)).remaining).toBe(1);
    }
  });

  test('follows the order of precedence, also when overrides are deleted', async () => {
    const order = [
      ['order', 'user_12'],
      ['order', 'us*2'],
      ['order', '***'],
      ['o*der', '***'],
      ['*', 'user_12'],
    ];
    // From the last to the first, so that each replaces the one before.
    for (const [i, [namespaceName, identifier]] of [...order.entries()].reverse()) {
      await set({ namespaceName, identifier, limit: 10 + i });
      expect(await limitOf('order', 'user_12')).toBe(10 + i);
    }
    for (const [i, [namespaceName, identifier]] of order.entries()) {
      expect(await limitOf('order', 'user_12')).toBe(10 + i);
      await call('delete', { namespaceName, identifier });
    }
    expect(await limitOf('order', 'user_12')).toBe(1_000);
  });

  test('makes the checks that it applies to asynchronous, and no others', async () => {
    const figure = () => server.metric('weir_queue_deductions_total');
    const of = { namespaceName: 'async', identifier: 'later_*', limit: 100 };
    const deductions = async (identifier: string, fields: Fields = {}) => {
      const before = await figure();
      expect((await check('async', identifier, fields)).success).toBe(true);
      return (await figure()) - before;
    };
    await set({ ...of, async: true });
    expect(await deductions('later_1')).toBe(1);
    expect(await deductions('now_1')).toBe(0);
    expect(await deductions('now_2', { async: true })).toBe(1);
    await set({ ...of, async: false });
    expect(await deductions('later_2')).toBe(0);
    // Either the check or the override makes it asynchronous.
    expect(await deductions('later_3', { async: true })).toBe(1);
  });

  const most = WILDCARDS_PER_TEXT_MAX;
  test.each<[Fields, string]>([
    [{ identifier: undefined }, '"identifier" is required: a text of 3 to 512'],
    [{ identifier: '😀😀' }, '"identifier" must be a text of 3 to 512'],
    [{ identifier: 'x'.repeat(513) }, 'got a text of 513 characters'],
    [{ identifier: 'a*'.repeat(most + 1) }, `at most ${most} wildcards`],
    [{ limit: 0 }, `"limit" must be an integer from 1 to ${AMOUNT_MAX}; got 0`],
    [{ duration: 999 }, '"duration" must be an integer number of milliseconds from 1000'],
    [{ duration: DURATION_MAX_MS + 1 }, `to 3155760000000; got ${DURATION_MAX_MS + 1}`],
    [{ async: null }, '"async" must be true or false; got null'],
    [{ namespaceName: undefined }, '"namespaceId" or "namespaceName" is required'],
    [{ namespaceName: '' }, '"namespaceName" must be a text of 1 to 512'],
    [{ namespaceName: 'rlns_1' }, '"namespaceName" must be a name'],
    [{ namespaceName: '*'.repeat(most + 1) }, '"namespaceName" must have at most 16'],
  ])('names the invalid field: %j', async (fields, message) => {
    const error = await setError({ namespaceName: 'a', ...fields });
    expect(error).toEqual([400, expect.stringContaining(message)]);
  });

  test('accepts the longest texts and the most wildcards', async () => {
    const rest = 512 - 2 * most;
    const identifier = `${'*a'.repeat(most)}${'😀'.repeat(rest)}`;
    const namespaceName = `${'*b'.repeat(most)}${'n'.repeat(rest)}`;
    await set({ identifier, namespaceName, limit: AMOUNT_MAX });
    const matching = [namespaceName, identifier].map((text) => text.replaceAll('*', ''));
    expect(await limitOf(matching[0], matching[1])).toBe(AMOUNT_MAX);
    await call('delete', { identifier, namespaceName });
  });

  test('responds 404 for an unknown id, and for a name that the key may not create', async () => {
    expect(await setError({ namespaceId: 'rlns_nowhere' })).toEqual([
      404,
      'there is no namespace with the id "rlns_nowhere"',
    ]);
    const mayNotCreate = [404, expect.stringContaining('"ratelimit.*.create_namespace"')];
    expect(await setError({ namespaceName: 'uncreated' }, keys.setter)).toEqual(mayNotCreate);
    await set({ namespaceName: 'stored' }, keys.setter);
    // A key of one namespace may set no pattern.
    await set({ namespaceName: 'stored' }, keys.ofOne);
    const forbidden = [403, expect.stringContaining('"ratelimit.*.set_override"')];
    for (const namespaceName of ['sto*', 'other']) {
      expect(await setError({ namespaceName }, keys.ofOne)).toEqual(forbidden);
    }
  });
});

describe('getOverride and deleteOverride', () => {
  const OPERATIONS = ['ratelimits.getOverride', 'ratelimits.deleteOverride'] as const;

  test('find an override by the text of its pattern, in a namespace or a pattern of names', async () => {
    const identifier = 'a&b=c d+%*😀';
    for (const namespaceName of ['found', 'fou*']) {
      const of = { namespaceName, identifier };
      const id = await set(of);
      expect(await call('get', of)).toMatchObject({ id, identifier });
      await call('delete', of);
      for (const operation of OPERATIONS) {
        expect(await server.errorOf(operation, of)).toEqual([404, expect.any(String)]);
      }
    }
  });

  test.each(OPERATIONS)('%s needs an identifier and a known namespace', async (operation) => {
    const identifier = 'abc';
    for (const [fields, status, message] of [
      [{ namespaceName: 'nowhere', identifier }, 404, 'there is no namespace "nowhere"'],
      [{ identifier }, 400, '"namespaceId" or "namespaceName" is required'],
      [{ namespaceName: 'a' }, 400, '"identifier" is required: '],
    ] as const) {
      const error = await server.errorOf(operation, fields);
      expect(error).toEqual([status, expect.stringContaining(message)]);
    }
  });
});

describe('an override of a CIDR block', () => {
  const of = { namespaceName: 'blocks', cidr: true };

  test('applies to the addresses inside of it, the longest block first, on every thread', async () => {
    const identifiers = ['203.0.113.0/24', '203.0.113.128/25', '2001:db8::/32', '0.0.0.0/0'];
    const ids: string[] = [];
    for (const [i, identifier] of identifiers.entries()) {
      ids.push(await set({ ...of, identifier, limit: i + 11 }));
    }
    await set({ namespaceName: 'blocks', identifier: '203.0.*', limit: 20 });
    await set({ namespaceName: 'blocks', identifier: '203.0.113.9', limit: 21 });
    const limits = [
      ...([
        ['203.0.113.9', 21],
        ['203.0.113.7', 11],
        ['203.0.113.200', 12],
      ] as const),
      ...([
        ['::ffff:203.0.113.7', 11],
        ['64:ff9b::203.0.113.7', 11],
        ['8.8.8.8', 14],
      ] as const),
      ...([
        ['2001:DB8::1', 13],
        ['2001:db8:1:2::/64', 13],
        ['2001:db9::1', 1_000],
      ] as const),
      ...([
        ['203.0.113.7 ', 20],
        ['203.0.113.0/24', 11],
        ['user', 1_000],
      ] as const),
    ];
    for (const [identifier, limit] of limits) {
      expect([identifier, await limitOf('blocks', identifier)]).toEqual([identifier, limit]);
      const { data } = await server.ok('ratelimit.limit', {
        ...{ namespace: 'blocks', identifier, limit: 1_000, duration: DAY_MS, cost: 0 },
      });
      expect([identifier, (data as Fields).limit]).toEqual([identifier, limit]);
    }
    expect(await limitOf('other', '203.0.113.7')).toBe(1_000);
    await call('delete', { ...of, identifier: identifiers[0] });
    expect(await limitOf('blocks', '203.0.113.7')).toBe(14);
    const restored = await set({ ...of, identifier: identifiers[0], limit: 11 });
    expect(ids).not.toContain(restored);
  });

  test('is another one than the identifier or pattern with its text', async () => {
    const identifier = '10.0.0.0/8';
    const selector = { namespaceName: 'texts', identifier };
    const block = await set({ ...selector, cidr: true, limit: 6 });
    const literal = await set({ ...selector, limit: 7 });
    expect(literal).not.toBe(block);
    expect(await set({ ...selector, cidr: true, limit: 8 })).toBe(block);
    const values = { identifier, duration: LONGEST_WINDOW_MS, async: false };
    const shownBlock = { ...values, id: block, cidr: true, limit: 8 };
    const shown = { ...values, id: literal, limit: 7 };
    expect(await call('get', { ...selector, cidr: true })).toEqual(shownBlock);
    expect(await call('get', selector)).toEqual(shown);
    expect(await call('get', { ...selector, cidr: false })).toEqual(shown);
    expect((await call('list', { namespaceName: 'texts' })).overrides).toEqual([shownBlock, shown]);
    const v2 = { namespace: 'texts', identifier };
    const { data } = await server.ok('ratelimit.getOverride', { ...v2, cidr: true });
    expect(data).toEqual({
      ...{ overrideId: block, identifier, cidr: true, limit: 8, duration: LONGEST_WINDOW_MS },
    });
    expect([await limitOf('texts', identifier), await limitOf('texts', '10.1.2.3')]).toEqual([
      7, 8,
    ]);
    await server.ok('ratelimit.deleteOverride', { ...v2, cidr: true });
    expect(await server.errorOf('ratelimits.getOverride', { ...selector, cidr: true })).toEqual([
      ...[404, 'there is no override of the CIDR block "10.0.0.0/8" in that namespace'],
    ]);
    expect(await call('get', selector)).toEqual(shown);
  });

  test('is exported and imported', async () => {
    const item = { namespaceName: 'moved', identifier: '10.0.0.0/8', cidr: true };
    const overrides = [{ ...item, limit: 5, duration: DAY_MS, async: true }];
    expect(await call('import', { overrides })).toMatchObject({ created: 1 });
    const exported = (await call('export', { limit: 1_000 })).overrides as Fields[];
    expect(exported.filter(({ namespaceName }) => namespaceName === 'moved')).toEqual(overrides);
    expect(await call('import', { overrides })).toMatchObject({ unchanged: 1 });
    expect(await limitOf('moved', '10.1.2.3')).toBe(5);
  });

  test('has the canonical text, which an error names', async () => {
    for (const [identifier, message] of [
      [
        '203.0.113.7/24',
        'a CIDR block in its canonical form, "203.0.113.0/24"; got "203.0.113.7/24"',
      ],
      ['203.0.113.7', 'canonical form, "203.0.113.7/32"'],
      ['2001:DB8::/32', 'canonical form, "2001:db8::/32"'],
      ['10.0.*', 'a CIDR block such as 203.0.113.0/24 or 2001:db8::/32; got "10.0.*"'],
    ]) {
      const expected = [400, expect.stringContaining('"identifier" must be a CIDR block ')];
      const error = await setError({ ...of, identifier });
      expect(error).toEqual(expected);
      expect(error[1]).toContain(message);
    }
    expect(await setError({ ...of, cidr: 'yes' })).toEqual([
      ...[400, '"cidr" must be true or false; got "yes"'],
    ]);
    const query = { namespaceName: 'a', identifier: 'abc', cidr: 'yes' };
    expect(await server.errorOf('ratelimits.getOverride', query)).toEqual([
      ...[400, '"cidr" must be true or false; got "yes"'],
    ]);
  });
});

describe('a query', () => {
  /** Sends the query as latin1, one byte per character. */
  const get = async (path: string) => {
    const lines = [`GET ${path} HTTP/1.1`, 'Host: h', `Authorization: Bearer ${ROOT_KEY}`];
    const bytes = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
    const [response] = await exchange(server.port, [bytes]);
    return response;
  };
  const getOverride = (identifier: string) => {
    return get(`/v1/ratelimits.getOverride?namespaceName=utf8&identifier=${identifier}`);
  };
  const latin1 = (text: string) => Buffer.from(text).toString('latin1');

  test.each([
    ['namespaceName=%ff', 'the query must be percent-encoded UTF-8'],
    ['namespaceName=a&limit=0', 'from 1 to 100; got 0'],
    ['namespaceName=a&limit=101', 'from 1 to 100; got 101'],
    ['namespaceName=a&limit=x', 'from 1 to 100; got "x"'],
    ['namespaceName=a&cursor=x', '"cursor" must be the cursor'],
    ['cursor=x', '"cursor" must be the cursor'],
  ])('is validated: %s', async (query, message) => {
    const response = await get(`/v1/ratelimits.listOverrides?${query}`);
    expect(response.status).toBe(400);
    expect(errorIn(response).message).toContain(message);
  });

  test('may have unknown and repeated fields', async () => {
    const query = 'namespaceName=b&namespaceName=a&&__proto__=1&x';
    expect((await get(`/v1/ratelimits.listOverrides?${query}`)).status).toBe(200);
  });

  test('with bytes that are not UTF-8 gets a 400, and finds no override of an identifier with U+FFFD', async () => {
    for (const identifier of ['a\ufffdb', 'a\ufffd\ufffd\ufffdb']) {
      await set({ namespaceName: 'utf8', identifier });
    }
    for (const bytes of ['\xff', '\xc0\x80', '\xe2\x82', '\xed\xa0\x80', '\xf4\x90\x80\x80']) {
      const encoded = [...bytes].map((byte) => `%${byte.charCodeAt(0).toString(16)}`).join('');
      for (const identifier of [`a${bytes}b`, `a${encoded}b`]) {
        const response = await getOverride(identifier);
        expect([identifier, response.status]).toEqual([identifier, 400]);
        expect(errorIn(response).message).toMatch(/^the query must be .*UTF-8/);
      }
    }
  });

  test('in UTF-8 is accepted, raw and percent-encoded; U+FFFD only percent-encoded', async () => {
    for (const identifier of ['a\ufffdb', 'é€😀']) {
      await set({ namespaceName: 'utf8', identifier });
      const response = await getOverride(encodeURIComponent(identifier));
      expect(JSON.parse(response.body).identifier).toBe(identifier);
    }
    expect(JSON.parse((await getOverride(latin1('é€😀'))).body).identifier).toBe('é€😀');
    // uWebSockets.js gives the same text for it and for an ill-formed byte.
    expect((await getOverride(latin1('a\ufffdb'))).status).toBe(400);
  });
});

describe('listOverrides and listNamespaces', () => {
  test('return pages in a stable order, each item once, while others are added and removed', async () => {
    const total = 25;
    const namespaceName = 'listed';
    const names = Array.from({ length: total + 1 }, (_, i) => `listed_${i}`);
    const overrides = names.slice(0, total).map((identifier) => {
      return { namespaceName, identifier, limit: 5, duration: DAY_MS };
    });
    await call('import', { overrides });
    type Page = { overrides: { identifier: string }[]; cursor?: string; total: number };
    const pages: Page[] = [];
    do {
      const { cursor } = pages.at(-1) ?? {};
      const fields = { namespaceName, limit: 10, ...(cursor === undefined ? {} : { cursor }) };
      pages.push((await call('list', fields)) as unknown as Page);
      expect(pages.at(-1)?.total).toBe(total);
      if (pages.length > 1) continue;
      // One of a returned page is removed, one changes, one is added.
      await call('delete', { namespaceName, identifier: names[0] });
      await set({ namespaceName, identifier: names[1], limit: 9 });
      await set({ namespaceName, identifier: names[total] });
    } while (pages.at(-1)?.cursor !== undefined);
    expect(pages.map((page) => page.overrides.length)).toEqual([10, 10, 6]);
    const items = pages.flatMap((page) => page.overrides);
    expect(items.map(({ identifier }) => identifier)).toEqual(names);
    expect(Object.keys(items[0])).toEqual(['id', 'identifier', 'limit', 'duration', 'async']);
  });

  test('have no cursor on the last page or on an empty one', async () => {
    const list = (fields: Fields = {}) => {
      type Page = { namespaces: Fields[]; total: number; cursor?: string };
      return server.ok<Page>('ratelimits.listNamespaces', fields);
    };
    const { namespaces, total, cursor } = await list();
    expect([namespaces.length, cursor]).toEqual([total, undefined]);
    expect(namespaces).toContainEqual({ id: 'rlns_1', name: 'stored' });
    const one = await list({ limit: 1 });
    expect([one.namespaces.length, one.total]).toEqual([1, total]);
    const rest = await list({ limit: total - 1, cursor: one.cursor });
    expect([rest.namespaces.length, rest.cursor]).toEqual([total - 1, undefined]);
    expect(await call('list', { namespaceName: 'zz*' })).toEqual({ overrides: [], total: 0 });
  });
});

test('listOverrides without a namespace lists those of all namespaces that the key may read', async () => {
  const starred = await set({ namespaceName: 'star*', identifier: 'of_all' });
  const stored = await set({ namespaceName: 'stored', identifier: 'of_all' });
  const all: Fields[] = [];
  let cursor: unknown;
  do {
    const page = await call('list', { limit: 20, ...(cursor === undefined ? {} : { cursor }) });
    all.push(...(page.overrides as Fields[]));
    cursor = page.cursor;
  } while (cursor !== undefined);
  const ours = all.filter(({ identifier }) => identifier === 'of_all');
  const shown = { ...VALUES, identifier: 'of_all', async: false };
  expect(ours).toEqual([
    { ...shown, id: starred, namespaceName: 'star*' },
    { ...shown, id: stored, namespaceName: 'stored' },
  ]);
  const exported = (await call('export', { limit: 1_000 })).overrides as Fields[];
  expect(all.map(({ id: _, ...fields }) => fields)).toEqual(exported);
  const theirs = await server.ok('ratelimits.listOverrides', {}, keys.readerOfOne);
  expect(theirs.overrides).toEqual(all.filter(({ namespaceName }) => namespaceName === 'stored'));
  const [status, message] = await server.errorOf('ratelimits.listOverrides', {}, keys.setter);
  expect([status, message]).toEqual([403, expect.stringContaining('"ratelimit.*.read_override"')]);
});

describe('importOverrides and exportOverrides', () => {
  const line = (i: number, changes: Fields = {}) => ({
    namespaceName: i % 2 === 0 ? 'imported' : 'impo*',
    ...{ identifier: `i${i}_*`, limit: i + 1, duration: DAY_MS, async: i % 3 === 0 },
    ...changes,
  });

  test('set all overrides, or count them in a dry run, and export the same', async () => {
    const overrides = Array.from({ length: 50 }, (_, i) => line(i));
    const dry = await call('import', { overrides, dryRun: true });
    expect(dry).toEqual({ created: 50, updated: 0, unchanged: 0, dryRun: true });
    expect(await limitOf('imported', 'i4_x')).toBe(1_000);
    const wet = await call('import', { overrides: [...overrides, line(4, { limit: 99 })] });
    expect(wet).toEqual({ created: 50, updated: 1, unchanged: 0, dryRun: false });
    expect(await limitOf('imported', 'i4_x')).toBe(99);
    const again = await call('import', { overrides });
    expect(again).toMatchObject({ created: 0, updated: 1, unchanged: 49 });
    const exported: Fields[] = [];
    let cursor: unknown;
    do {
      const fields = { limit: 20, ...(cursor === undefined ? {} : { cursor }) };
      const page = await call('export', fields);
      exported.push(...(page.overrides as Fields[]));
      cursor = page.cursor;
    } while (cursor !== undefined);
    const ours = exported.filter(({ namespaceName }) => String(namespaceName).startsWith('impo'));
    expect(ours).toEqual(overrides);
  });

  test('set nothing if one override is invalid, and name its index', async () => {
    const total = async () => (await call('export', { limit: 1 })).total;
    const before = await total();
    const rejection = (overrides: unknown) => {
      return server.errorOf('ratelimits.importOverrides', { overrides });
    };
    const unnamed = line(61, { namespaceName: undefined });
    for (const [fault, status, message] of [
      [line(61, { limit: -1 }), 400, 'overrides[1]: "limit" must be'],
      ['text', 400, 'overrides[1]: an override must be a JSON object; got "text"'],
      [unnamed, 400, 'overrides[1]: "namespaceId" or'],
      [{ ...unnamed, namespaceId: 'rlns_x' }, 404, 'overrides[1]: there'],
    ] as const) {
      const error = await rejection([line(60, { namespaceName: 'never made' }), fault]);
      expect(error).toEqual([status, expect.stringContaining(message)]);
    }
    expect(await limitOf('never made', 'i60_x')).toBe(1_000);
    expect(await total()).toBe(before);
    expect((await server.namespaces()).map(({ name }) => name)).not.toContain('never made');
    expect(await rejection(5)).toEqual([400, '"overrides" must be an array of overrides; got 5']);
  });
});
