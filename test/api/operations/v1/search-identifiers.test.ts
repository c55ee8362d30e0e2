/** The known identifiers that begin with a text. */

import { pino } from 'pino';
import { beforeAll, describe, expect, test } from 'vitest';
import { Analytics } from '../../../../src/analytics/analytics.ts';
import { AnalyticsDatabase } from '../../../../src/analytics/database.ts';
import { IdentifierRecorder } from '../../../../src/analytics/recorder.ts';
import { SKETCH_ENTRIES } from '../../../../src/analytics/sketch.ts';
import { UsageRows } from '../../../../src/analytics/usage-rows.ts';
import type { OperationContext } from '../../../../src/api/common/operation-context.ts';
import { searchIdentifiers } from '../../../../src/api/operations/v1/analytics-search-identifiers.ts';
import { Permissions } from '../../../../src/auth/permissions.ts';
import {
  ANALYTICS_IDENTIFIERS_MAX,
  ANALYTICS_SEARCHED_TEXTS_OF_TURN,
  ANALYTICS_SEARCHES_MAX,
  IDENTIFIER_MAX_CHARACTERS,
} from '../../../../src/core/constants.ts';
import { Hasher, newIdentity } from '../../../../src/core/hash.ts';
import { TurnBudget } from '../../../../src/core/turn-budget.ts';
import { Registry } from '../../../../src/registry/registry.ts';
import { Clock, ClockPublisher } from '../../../../src/shared-memory/clock.ts';
import { allocateControl, Control } from '../../../../src/shared-memory/control.ts';
import { describeEngines } from '../../../support/engine-modes.ts';
import { sendRequest } from '../../../support/http.ts';
import { TEST_HASH_KEY, testNamespace } from '../../../support/namespace.ts';
import type { ApiClient, Fields } from '../../../support/operations.ts';
import { ROOT_KEY, temporaryDirectory } from '../../../support/server.ts';
import { withStore } from '../../../support/store.ts';
import { useServer } from '../../../support/test-server.ts';

/** The longest duration of v2: no window ends during a test. */
const MONTH_MS = 2_592_000_000;

interface Found {
  identifiers: (Fields & { identifier: string; namespace: { name: string } })[];
  truncated: boolean;
}

const searchOn = (server: ApiClient, prefix: string, fields: Fields = {}, key?: string) => {
  return server.ok<Found>('analytics.searchIdentifiers', { prefix, ...fields }, key);
};
const namesOf = ({ identifiers }: Found) => {
  return identifiers.map(({ namespace, identifier }) => `${namespace.name} ${identifier}`);
};
const set = (server: ApiClient, namespaceName: string, identifier: string) => {
  const values = { limit: 5, duration: MONTH_MS };
  return server.ok('ratelimits.setOverride', { namespaceName, identifier, ...values });
};
const check = (server: ApiClient, namespace: string, identifier: string, cost = 1) => {
  return server.check({ namespace, identifier, limit: 3, duration: MONTH_MS, cost });
};

describeEngines('identifiers are found by prefix, decided %s,', (mode) => {
  const server = useServer({ mode, args: ['--acceptors', '2'] });
  const search = (prefix: string, fields: Fields = {}, key?: string) => {
    return searchOn(server, prefix, fields, key);
  };

  beforeAll(async () => {
    for (const name of ['first', 'second', 'many']) await set(server, name, 'unused');
    await check(server, 'first', 'user_1', 2);
    for (let i = 0; i < 2; i++) await check(server, 'second', 'user_1', 4);
    await check(server, 'second', 'user_2', 3);
    await check(server, 'second', 'User_2');
    await set(server, 'first', 'user_3');
    await set(server, 'first', 'user_1');
    await set(server, 'first', 'user_*');
  });

  test('in all namespaces, the most denied one first, with what is known of it', async () => {
    const { identifiers, truncated } = await search('user_');
    const counted = (count: number) => ({ count, error: 0 });
    expect(truncated).toBe(false);
    expect(identifiers).toMatchObject([
      { identifier: 'user_1', namespace: { name: 'second' }, denied: counted(2) },
      { identifier: 'user_2', namespace: { name: 'second' }, spent: counted(3) },
      { identifier: 'user_1', namespace: { name: 'first' }, spent: counted(2) },
      // A pattern is no identifier.
      { identifier: 'user_3', namespace: { name: 'first' }, sources: ['override'] },
    ]);
    const [denied, , overridden] = identifiers;
    expect(denied).not.toHaveProperty('spent');
    expect(denied.sources).toEqual(['analytics', 'decisions']);
    expect(Math.abs((denied.lastDeniedAt as number) - server.nowMs())).toBeLessThan(600_000);
    expect(overridden.sources).toContain('override');
    expect(namesOf(await search('user_1'))).toEqual(['second user_1', 'first user_1']);
    expect(namesOf(await search('user_', { namespaceName: 'first' }))).toEqual([
      'first user_1',
      'first user_3',
    ]);
  });

  test('up to a number, and it is said that more are known', async () => {
    for (const [limit, truncated] of [
      [1, true],
      [3, true],
      [4, false],
    ] as const) {
      const found = await search('user_', { limit });
      expect([found.identifiers.length, found.truncated]).toEqual([limit, truncated]);
    }
  });

  test('also where they are in no list of the busiest ones', async () => {
    const count = ANALYTICS_IDENTIFIERS_MAX + 10;
    for (let i = 0; i < count; i++) await check(server, 'many', `busy_${i}`, 2);
    await check(server, 'many', 'rare');
    const fields = { namespaceName: 'many', limit: 100 };
    const { spent } = await server.ok<{ spent: Fields[] }>('analytics.getIdentifiers', fields);
    expect(spent.map(({ identifier }) => identifier)).not.toContain('rare');
    expect((await search('rar')).identifiers).toMatchObject([
      { identifier: 'rare', spent: { count: 1, error: 0 } },
    ]);
    expect((await search('busy_', { limit: 100 })).identifiers).toHaveLength(count);
  });

  test('by a key that may read one namespace, only there', async () => {
    const id = await server.namespaceId('first');
    const keyWith = async (...actions: string[]) => {
      const permissions = actions.map((action) => `ratelimit.${id}.${action}`);
      return (await server.ok<{ key: string }>('keys.create', { name: 'k', permissions })).key;
    };
    const key = await keyWith('read_analytics');
    const { identifiers } = await search('user_', {}, key);
    expect(identifiers).toMatchObject([{ identifier: 'user_1', namespace: { id, name: 'first' } }]);
    // Without overrides, which it may not read.
    expect(identifiers[0].sources).not.toContain('override');
    const both = await search('user_', {}, await keyWith('read_analytics', 'read_override'));
    expect(namesOf(both)).toEqual(['first user_1', 'first user_3']);
  });

  test('as text: a star, an emoji and a very long prefix are ordinary', async () => {
    const long = `long ${'é'.repeat(IDENTIFIER_MAX_CHARACTERS - 5)}`;
    for (const identifier of ['*a', '😀b', 'e\u0301', long])
      await check(server, 'many', identifier, 4);
    expect(namesOf(await search('*'))).toEqual(['many *a']);
    expect(namesOf(await search('😀'))).toEqual(['many 😀b']);
    // Two forms of a character are two texts.
    expect(namesOf(await search('\u00e9'))).toEqual([]);
    // Analytics have the first bytes of a long identifier, the recent decisions all of it.
    expect((await search('long é')).identifiers).toMatchObject([
      { identifier: long.slice(0, 50), cutOff: true, sources: ['analytics'] },
      { identifier: long, sources: ['decisions'] },
    ]);
    expect(namesOf(await search(long))).toEqual([`many ${long}`]);
    const accepted = '"prefix" must be a text of 1 to 512 characters';
    for (const prefix of ['', `${long}e`]) {
      const [status, message] = await server.errorOf('analytics.searchIdentifiers', { prefix });
      expect([status, message]).toEqual([400, expect.stringContaining(accepted)]);
    }
    const path = '/v1/analytics.searchIdentifiers?prefix=%ED%A0%80';
    const headers = { authorization: `Bearer ${ROOT_KEY}` };
    const { status } = await sendRequest(server.port, { method: 'GET', path, headers });
    expect(status).toBe(400);
  });
});

describe('without analytics', () => {
  const server = useServer({ args: ['--analytics', 'off'] });

  test('identifiers are found among the recent decisions', async () => {
    await set(server, 'first', 'unused');
    await check(server, 'first', 'user_1', 4);
    const { identifiers } = await searchOn(server, 'user_');
    expect(identifiers).toMatchObject([{ identifier: 'user_1', sources: ['decisions'] }]);
    expect(Object.keys(identifiers[0])).toContain('lastDeniedAt');
  });
});

describe('a search among very many texts', () => {
  /** With full sketches of one acceptor. */
  const NAMESPACES = 49;
  const SKETCHED = NAMESPACES * 2 * SKETCH_ENTRIES;
  const OVERRIDES = 100_000;

  test('works in many turns of the event loop, also if several run at once', async () => {
    const control = new Control(allocateControl(1, 1));
    new ClockPublisher(control);
    const clock = new Clock(control);
    const nowMs = clock.nowMs();
    const database = AnalyticsDatabase.open(temporaryDirectory(), nowMs, () => {});
    const usage = new UsageRows([], clock);
    const options = { control, clock, database, usage, minutes: 1_440, hours: 720 };
    const log = pino({ level: 'silent' });
    const analytics = new Analytics({ ...options, keysByRow: () => [], log });
    const recorder = new IdentifierRecorder(control, (one) => analytics.addSketches(one));
    const registry = withStore(temporaryDirectory(), (store) => new Registry(store));
    const hasher = new Hasher(TEST_HASH_KEY);
    for (let i = 0; i < NAMESPACES; i++) {
      const namespace = testNamespace(`n${i}`);
      const { id } = registry.addNamespace(namespace.name, nowMs);
      for (let j = 0; j < 4 * SKETCH_ENTRIES; j++) {
        const identity = hasher.hash(namespace.hashState, `user_${j}`, newIdentity());
        recorder.recordText(namespace, identity, 1, j % 2 === 0, `user_${j}`);
      }
      for (let j = 0; j < OVERRIDES / NAMESPACES; j++) {
        const values = { limit: 1, durationMs: 1_000, isAsync: false, createdMs: nowMs };
        const names = { id: `rlor_${i}_${j}`, scope: id, identifier: `user_${j}` };
        registry.putOverride({ ...values, ...names });
      }
    }
    const context = {
      ...{ registry, analytics, recentDecisions: undefined, nowMs: () => nowMs },
      permissions: new Permissions(['*']),
      turns: new TurnBudget(ANALYTICS_SEARCHED_TEXTS_OF_TURN, ANALYTICS_SEARCHES_MAX),
      validate: (validator: typeof searchIdentifiers.validator, input: unknown) => {
        return validator.validate(input);
      },
    } as unknown as OperationContext;
    let turns = 0;
    let timer: NodeJS.Immediate;
    const countTurn = () => {
      turns++;
      timer = setImmediate(countTurn);
    };
    countTurn();
    const prefixes = ['user_1', 'none', '😀'];
    const found = await Promise.all(
      prefixes.map((prefix) => searchIdentifiers.execute(context, { prefix })),
    );
    clearImmediate(timer!);
    analytics.close();
    expect(found).toMatchObject([{ truncated: true }, { identifiers: [], truncated: false }, {}]);
    // The first one has enough without overrides.
    const work = prefixes.length * SKETCHED + (prefixes.length - 1) * OVERRIDES;
    expect(turns).toBeGreaterThanOrEqual(Math.floor(work / (2 * ANALYTICS_SEARCHED_TEXTS_OF_TURN)));
  });
});
