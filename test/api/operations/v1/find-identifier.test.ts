/** Where an identifier is, over all namespaces. */

import { beforeAll, describe, expect, test } from 'vitest';
import { describeEngines } from '../../../support/engine-modes.ts';
import type { Fields } from '../../../support/operations.ts';
import { useServer } from '../../../support/test-server.ts';

/** The longest duration of v2: no window ends during a test. */
const MONTH_MS = 2_592_000_000;
const ID = 'searched';

interface Found {
  found: (Fields & { namespace: { id: string; name: string }; counters: Fields[] })[];
  cursor?: string;
  total: number;
}

describeEngines('an identifier is found, decided %s,', (mode) => {
  const server = useServer({ mode, args: ['--acceptors', '2'] });
  const find = (fields: Fields = {}, key?: string) => {
    return server.ok<Found>('ratelimits.findIdentifier', { identifier: ID, ...fields }, key);
  };
  const set = (namespaceName: string, identifier: string) => {
    const values = { limit: 5, duration: MONTH_MS };
    return server.ok('ratelimits.setOverride', { namespaceName, identifier, ...values });
  };
  const check = (namespace: string, cost = 1, identifier = ID) => {
    return server.check({ namespace, identifier, limit: 3, duration: MONTH_MS, cost });
  };

  beforeAll(async () => {
    for (const name of ['counted', 'denied', 'overridden', 'held', 'matched', 'other', 'private']) {
      await set(name, 'unused');
    }
    await check('counted', 2);
    await check('denied', 4);
    await check('private');
    await check('other', 1, 'another');
    const lease = { namespace: 'held', identifier: ID, limit: 3, cost: 2, ttl: 600_000 };
    await server.ok('ratelimits.acquire', lease);
    await set('overridden', ID);
    await set('matched', 'search*');
  });

  test('in the namespaces where it has a counter, a hold, a decision or an override of its own', async () => {
    const { found, total, cursor } = await find();
    expect([total, cursor]).toEqual([7, undefined]);
    const byName = Object.fromEntries(found.map((place) => [place.namespace.name, place]));
    expect(Object.keys(byName)).toEqual(['counted', 'denied', 'overridden', 'held', 'private']);
    expect(byName.held.holds).toEqual({ reserved: 0, inUse: 2, live: 1 });
    expect(byName.counted).not.toHaveProperty('holds');
    expect(byName.counted.counters).toMatchObject([{ duration: MONTH_MS, current: 2 }]);
    expect(byName.denied.lastDenied).toMatchObject({ decision: 'denied', cost: 4, limit: 3 });
    expect(byName.overridden).toMatchObject({
      counters: [],
      override: { namespace: 'overridden', identifier: ID, limit: 5 },
    });
  });

  test('page by page, in each namespace once', async () => {
    const names: string[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const page = await find({ limit: 1, ...(cursor !== undefined && { cursor }) });
      names.push(...page.found.map(({ namespace }) => namespace.name));
      cursor = page.cursor;
      pages++;
    } while (cursor !== undefined);
    expect([pages, names]).toEqual([7, ['counted', 'denied', 'overridden', 'held', 'private']]);
  });

  describe('by a key with few permissions', () => {
    const keyWith = async (...permissions: string[]) => {
      const { key } = await server.ok<{ key: string }>('keys.create', { name: 'k', permissions });
      return key;
    };

    test('only in the namespaces that it may read', async () => {
      const id = await server.namespaceId('counted');
      const key = await keyWith(`ratelimit.${id}.read_namespace`);
      const { found, total } = await find({}, key);
      expect([total, found.map(({ namespace }) => namespace)]).toEqual([
        1,
        [{ id, name: 'counted' }],
      ]);
    });

    test('without overrides and decisions that it may not read', async () => {
      const { found } = await find({}, await keyWith('ratelimit.*.read_namespace'));
      // A denied check with a new counter leaves a counter in memory, and none in Redis.
      const names = found.map(({ namespace }) => namespace.name);
      expect(names.filter((name) => name !== 'denied')).toEqual(['counted', 'held', 'private']);
      for (const { holds: _, ...place } of found) {
        expect(Object.keys(place).sort()).toEqual(['counters', 'namespace']);
      }
    });
  });
});
