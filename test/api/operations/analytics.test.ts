/** The operations that show what was counted. */

import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ANALYTICS_FILE } from '../../../src/analytics/database.ts';
import { AMOUNT_MAX, ANALYTICS_NAMESPACES_MAX } from '../../../src/core/constants.ts';
import { NO_FIGURES } from '../../../src/core/figures.ts';
import { OTHER_NAMESPACE } from '../../../src/core/namespace.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { describeEngines, describeOnce } from '../../support/engine-modes.ts';
import { LONGEST_WINDOW_MS, sendRequest } from '../../support/http.ts';
import type { ApiClient, Fields } from '../../support/operations.ts';
import { forwardedFor } from '../../support/policy-config.ts';
import { waitUntil } from '../../support/server.ts';
import { SMALL, useServer } from '../../support/test-server.ts';

const HOUR_MS = 3_600_000;
const LONGEST = { limit: 5, duration: LONGEST_WINDOW_MS };
/** Checks of a namespace that is not stored yet are counted some ms later. */
const create = async (server: ApiClient, ...names: string[]) => {
  for (const namespaceName of names) {
    const fields = { namespaceName, identifier: 'unused', limit: 1, duration: 60_000 };
    await server.ok('ratelimits.setOverride', fields);
  }
};
const figuresOf = async (server: ApiClient, fields: Fields = {}) => {
  const { namespaces } = await server.ok('analytics.getNamespaces', fields);
  return Object.fromEntries(
    (namespaces as Fields[]).map(({ name, id, ...figures }) => [name, figures]),
  );
};
const identifiersOf = async (server: ApiClient, namespaceName: string, limit = 20) => {
  const fields = { namespaceName, limit };
  const { denied, spent } = await server.ok('analytics.getIdentifiers', fields);
  const short = (items: unknown) => {
    return (items as Fields[]).map(({ identifier, count, error }) => [identifier, count, error]);
  };
  return { denied: short(denied), spent: short(spent) };
};

describeEngines('analytics, decided %s,', (mode) => {
  const windows = [
    { limit: 2, duration: LONGEST_WINDOW_MS },
    { limit: 100, duration: LONGEST_WINDOW_MS - 1 },
  ];
  const policies = { site: { windows, cost: 2 } };
  const server = useServer({ mode, args: ['--acceptors', '2'], policies });

  test('count every decision at once: of checks, batches and asynchronous checks', async () => {
    await create(server, 'login', 'batch');
    for (let i = 0; i < 7; i++)
      await server.check({ ...LONGEST, namespace: 'login', identifier: 'é' });
    await server.check({ ...LONGEST, namespace: 'login', identifier: 'b', cost: 4 });
    await server.check({ ...LONGEST, namespace: 'login', identifier: 'b', cost: 3 });
    await server.check({ ...LONGEST, namespace: 'login', identifier: 'c', cost: 2, async: true });
    const batch = ['x', 'x', 'y'].map((identifier) => {
      return { namespace: 'batch', identifier, limit: 2, duration: 30 * 24 * HOUR_MS, cost: 1 };
    });
    await server.ok('ratelimit.multiLimit', batch);
    await server.ok('ratelimit.multiLimit', batch);
    expect(await figuresOf(server)).toMatchObject({
      login: { allowed: 7, denied: 3, tokensAllowed: 11, tokensDenied: 5 },
      batch: { allowed: 3, denied: 3, tokensAllowed: 3, tokensDenied: 3 },
    });
    const tokens = (outcome: string) => {
      return server.metric(`weir_tokens_total{namespace="login",outcome="${outcome}"}`);
    };
    expect([await tokens('allowed'), await tokens('denied')]).toEqual([11, 5]);
    expect(await identifiersOf(server, 'login')).toEqual({
      denied: [
        ['é', 2, 0],
        ['b', 1, 0],
      ],
      spent: [
        ['é', 5, 0],
        ['b', 4, 0],
        ['c', 2, 0],
      ],
    });
    expect((await identifiersOf(server, 'batch', 1)).denied).toEqual([['x', 2, 0]]);
  });

  test('count a gateway check once, by the identifier of its policy', async () => {
    const headers = forwardedFor('203.0.113.9');
    const request = { method: 'GET', path: '/v1/check/site', headers };
    for (const status of [200, 429]) {
      expect((await sendRequest(server.gatewayPort, request)).status).toBe(status);
    }
    expect(await figuresOf(server)).toMatchObject({
      site: { allowed: 1, denied: 1, tokensAllowed: 2, tokensDenied: 2 },
    });
    expect(await identifiersOf(server, 'site')).toEqual({
      denied: [['203.0.113.9', 1, 0]],
      spent: [['203.0.113.9', 2, 0]],
    });
  });

  describeOnce(mode, 'in one mode,', () => {
    test('have points only for minutes and hours with checks', async () => {
      await create(server, 'timed');
      await server.check({ ...LONGEST, namespace: 'timed', identifier: 'x' });
      await server.stepClock(2 * HOUR_MS);
      // A reading belongs to the minute of the reading before it.
      await figuresOf(server);
      await server.check({ ...LONGEST, namespace: 'timed', identifier: 'x', cost: 2 });
      const range = { start: server.nowMs() - 5 * HOUR_MS, end: server.nowMs() + HOUR_MS };
      const of = { namespaceName: 'timed' };
      for (const [granularity, unitMs] of [
        ['minute', 60_000],
        ['hour', HOUR_MS],
      ] as const) {
        const fields = { ...of, ...range, granularity };
        const answer = await server.ok('analytics.getTimeline', fields);
        const points = answer.points as { time: number; tokensAllowed: number }[];
        expect(points.map(({ tokensAllowed }) => tokensAllowed)).toEqual([1, 2]);
        for (const time of [answer.start as number, answer.end as number, points[0].time]) {
          expect(time % unitMs).toBe(0);
        }
        expect(points[1].time - points[0].time).toBeGreaterThanOrEqual(2 * HOUR_MS - unitMs);
      }
      const before = { start: range.start - 3 * HOUR_MS, end: range.start - 2 * HOUR_MS };
      expect(await figuresOf(server, before)).toEqual({});
      const timeline = { ...of, ...before };
      const { points } = await server.ok('analytics.getTimeline', timeline);
      expect(points).toEqual([]);
    });

    test('have pages, with the limits of other lists', async () => {
      await create(server, 'pages');
      for (let i = 0; i < 5; i++) {
        const costs = { namespace: 'pages', identifier: `p${i}`, cost: 5 - i };
        await server.check({ ...LONGEST, ...costs });
      }
      type Page = { spent: Fields[]; denied: Fields[]; cursor?: string };
      // After a step of the clock, the hour of the acceptors is late by a second at most.
      const of = { namespaceName: 'pages', start: server.nowMs() - 5 * HOUR_MS };
      const page = (fields: Fields) => {
        return server.ok<Page>('analytics.getIdentifiers', { ...of, ...fields });
      };
      const named = ({ spent }: Page) => spent.map(({ identifier }) => identifier);
      // The main thread learns of a sketch after the answer to the check that has made it.
      await waitUntil('all are counted', async () => named(await page({})).length === 5);
      const first = await page({ limit: 2 });
      const second = await page({ limit: 2, cursor: first.cursor });
      const third = await page({ limit: 2, cursor: second.cursor });
      expect([first, second, third].flatMap(named)).toEqual(['p0', 'p1', 'p2', 'p3', 'p4']);
      expect([third.cursor, third.denied]).toEqual([undefined, []]);
      expect([named(await page({ limit: 100 })).length, (await page({})).cursor]).toEqual([
        5,
        undefined,
      ]);
      expect(await server.errorOf('analytics.getIdentifiers', { limit: 101 })).toEqual([
        400,
        '"limit" must be an integer from 1 to 100; got 101',
      ]);
      type Totals = { namespaces: Fields[]; cursor?: string; total: number };
      const all = await server.ok<Totals>('analytics.getNamespaces');
      const listed: unknown[] = [];
      let cursor: string | undefined;
      do {
        const fields = { limit: 1, ...(cursor !== undefined && { cursor }) };
        const one = await server.ok<Totals>('analytics.getNamespaces', fields);
        listed.push(...one.namespaces);
        cursor = one.cursor;
      } while (cursor !== undefined);
      expect([listed, listed.length]).toEqual([all.namespaces, all.total]);
    });

    test('count a check without a cost for the namespace that its batch creates', async () => {
      const batch = (namespace: string, costs: number[]) => {
        const check = { namespace, identifier: 'x', limit: 5, duration: 60_000 };
        return server.ok(
          'ratelimit.multiLimit',
          costs.map((cost) => ({ ...check, cost })),
        );
      };
      await batch('zero first', [0, 1]);
      await batch('zero last', [1, 0]);
      for (const name of ['zero first', 'zero last']) {
        await server.namespaceId(name);
        expect((await figuresOf(server))[name]).toMatchObject({ allowed: 2, tokensAllowed: 1 });
      }
    });

    test('round sums above 2^53, as their description says', async () => {
      await create(server, 'huge');
      const huge = { limit: AMOUNT_MAX, duration: 60_000, namespace: 'huge', identifier: 'x' };
      for (let i = 0; i < 3; i++) await server.check({ ...huge, cost: AMOUNT_MAX });
      const { tokensAllowed, tokensDenied } = (await figuresOf(server)).huge as Record<
        string,
        number
      >;
      expect(tokensAllowed).toBe(AMOUNT_MAX);
      expect(tokensDenied).toBe(2 * AMOUNT_MAX);
      await server.check({ ...huge, cost: 1 });
      expect((await figuresOf(server)).huge).toMatchObject({ tokensDenied: 2 * AMOUNT_MAX + 2 });
      const openapi = JSON.stringify(await (await fetch(`${server.url}/openapi.json`)).json());
      const sentence = 'Exact up to 2^53; a larger sum is rounded with each addition.';
      expect(openapi.split(sentence).length - 1).toBeGreaterThanOrEqual(4);
    });

    test('reject a range that is empty or has too many points, and say what is accepted', async () => {
      const tooLong = 'the range from "start" to "end" must have at most 744 hours; got 745';
      const hours = { start: 0, end: HOUR_MS * 745 };
      const of = { namespaceName: 'login' };
      await create(server, 'login');
      const day = { ...of, granularity: 'day' };
      const tooFine = { ...of, start: 0, end: HOUR_MS * 26 };
      for (const [operation, fields, message] of [
        ['getNamespaces', { start: 5, end: 5 }, '"start" must be before "end"; got 5 and 5'],
        [
          'getNamespaces',
          { start: '-1' },
          '"start" must be a time in Unix milliseconds, from 0 to',
        ],
        ['getNamespaces', hours, tooLong],
        ['getIdentifiers', { ...of, ...hours }, tooLong],
        ['getTimeline', tooFine, 'must have at most 1500 points; got 1560 of a minute'],
        ['getTimeline', day, '"granularity" must be minute or hour; got "day"'],
        ['getTimeline', {}, '"namespaceId" or "namespaceName" is required'],
      ] as const) {
        const [status, error] = await server.errorOf(`analytics.${operation}`, fields);
        expect([status, error]).toEqual([400, expect.stringContaining(message)]);
      }
      const longest = { ...of, start: 0, end: HOUR_MS * 25 };
      await server.ok('analytics.getTimeline', longest);
      await server.ok('analytics.getNamespaces', { start: 0, end: HOUR_MS * 744 });
    });

    test('rank the identifiers of all namespaces, as one list of their lists', async () => {
      const names = Array.from({ length: 6 }, (_, i) => `ranked_${i}`);
      await create(server, ...names);
      const used: { name: string; identifier: string; cost: number }[] = [];
      for (const [i, name] of names.entries()) {
        for (let j = 0; j < 4; j++) {
          const one = { name, identifier: `r${j}`, cost: 1 + ((7 * i + 11 * j) % 24) };
          used.push(one);
          const { identifier, cost } = one;
          await server.check({ ...LONGEST, namespace: name, identifier, cost, limit: 1_000 });
        }
      }
      const permissions = await Promise.all(
        names.map(async (name) => `ratelimit.${await server.namespaceId(name)}.read_analytics`),
      );
      const { key } = await server.ok<{ key: string }>('keys.create', { name: 'r', permissions });
      type Page = { spent: (Fields & { namespace: Fields })[]; complete: boolean; cursor?: string };
      const all: unknown[] = [];
      let cursor: string | undefined;
      do {
        // After a step of the clock, the hour of the acceptors is late by a second at most.
        const query = { start: server.nowMs() - 5 * HOUR_MS, limit: 5, ...(cursor && { cursor }) };
        const page = await server.ok<Page>('analytics.getIdentifiers', query, key);
        expect(page.complete).toBe(true);
        all.push(
          ...page.spent.map(({ namespace, identifier, count }) => {
            return [namespace.name, identifier, count];
          }),
        );
        cursor = page.cursor;
      } while (cursor !== undefined);
      const expected = used.map(({ name, identifier, cost }) => [name, identifier, cost]);
      expect(all.map((one) => (one as unknown[])[2])).toEqual(
        used.map(({ cost }) => cost).toSorted((a, b) => b - a),
      );
      expect(all.map(String).toSorted()).toEqual(expected.map(String).toSorted());
    });

    test('show a key only the namespaces that it may read', async () => {
      await create(server, 'mine', 'theirs');
      for (const namespace of ['mine', 'theirs']) {
        await server.check({ ...LONGEST, namespace, identifier: 'x' });
      }
      const id = await server.namespaceId('mine');
      const made = { name: 'mine', permissions: [`ratelimit.${id}.read_analytics`] };
      const key = (await server.ok('keys.create', made)).key as string;
      const own = await server.ok('analytics.getNamespaces', {}, key);
      expect(own).toMatchObject({ namespaces: [{ name: 'mine' }], total: 1 });
      for (const [namespaceName, status] of [
        ['mine', 200],
        ['theirs', 403],
        [OTHER_NAMESPACE, 403],
      ] as const) {
        const fields = { namespaceName };
        const answer = await server.call('analytics.getTimeline', fields, key);
        expect(answer.status).toBe(status);
      }
      const others = { namespaceName: OTHER_NAMESPACE };
      const { namespace, points } = await server.ok('analytics.getTimeline', others);
      expect([namespace, points]).toEqual([{ name: OTHER_NAMESPACE }, []]);
    });

    test('keep no identifiers of checks that create no namespace', async () => {
      // Each of them would take the room of a namespace.
      for (let i = 0; i < 2 * ANALYTICS_NAMESPACES_MAX; i++) {
        await server.check({ ...LONGEST, namespace: `none ${i}`, identifier: 'x', cost: 0 });
      }
      await create(server, 'roomy');
      await server.check({ ...LONGEST, namespace: 'roomy', identifier: 'x' });
      const roomy = { namespaceName: 'roomy' };
      expect((await server.ok('analytics.getIdentifiers', roomy)).complete).toBe(true);
    });
  });
});

describe('the file of the analytics', () => {
  const own = useDataDirectory(SMALL);

  test('survives a restart', async () => {
    const first = await own.start();
    await create(first, 'a');
    await first.check({ ...LONGEST, namespace: 'a', identifier: 'x', cost: 3 });
    await first.check({ ...LONGEST, namespace: 'a', identifier: 'long '.repeat(100), cost: 5 });
    await first.stop();
    const second = await own.start();
    await second.check({ ...LONGEST, namespace: 'a', identifier: 'x' });
    expect(await figuresOf(second)).toEqual({
      a: { ...NO_FIGURES, allowed: 3, tokensAllowed: 9 },
    });
    const { complete, spent } = await second.ok('analytics.getIdentifiers', {
      namespaceName: 'a',
    });
    expect({ complete, spent }).toEqual({
      complete: true,
      spent: [
        { identifier: 'long '.repeat(100).slice(0, 96), cutOff: true, count: 5, error: 0 },
        { identifier: 'x', count: 4, error: 0 },
      ],
    });
  });

  test('starts empty if it is damaged, and the log says so', async () => {
    await (await own.start()).stop();
    writeFileSync(join(own.dataDir, ANALYTICS_FILE), 'damaged'.repeat(1_000));
    const server = await own.start();
    const message = 'the analytics cannot be read; weir starts with empty ones';
    await waitUntil('the log says so', () => server.stderr().includes(message));
    await create(server, 'a');
    await server.check({ ...LONGEST, namespace: 'a', identifier: 'y' });
    expect(await figuresOf(server)).toMatchObject({ a: { allowed: 1 } });
  });

  test('does not exist while analytics are off, and operations answer 503', async () => {
    const off = ['--acceptors', '1', '--counters', '1024', '--analytics', 'off'];
    const server = await own.start({ args: off });
    await server.check({ ...LONGEST, namespace: 'a', identifier: 'x' });
    expect(await server.errorOf('analytics.getNamespaces')).toEqual([
      503,
      'there are no analytics: WEIR_ANALYTICS is off, or the log says why their file is not used',
    ]);
    expect(existsSync(join(own.dataDir, ANALYTICS_FILE))).toBe(false);
  });
});
