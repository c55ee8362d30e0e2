/** Overrides that replace the limit of acquires, over the API. */

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { AMOUNT_MAX } from '../../../src/core/constants.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { describeEngines } from '../../support/engine-modes.ts';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { ApiClient, Fields, Operation } from '../../support/operations.ts';
import { writeStoreVersion2 } from '../../support/store-version-2.ts';
import { SMALL, useServer } from '../../support/test-server.ts';

const TERMS = { limit: 50, duration: LONGEST_WINDOW_MS };
const TTL_MS = 60_000;

interface Acquired {
  success: boolean;
  leaseId: string;
  inUse: number;
  limit: number;
}

const set = (server: ApiClient, namespaceName: string, identifier: string, fields: Fields = {}) => {
  const override = { namespaceName, identifier, ...TERMS, ...fields };
  return server.ok<{ overrideId: string }>('ratelimits.setOverride', override);
};
const acquire = (server: ApiClient, namespace: string, identifier: string, fields: Fields = {}) => {
  const lease = { namespace, identifier, limit: 1, ttl: TTL_MS, ...fields };
  return server.ok<Acquired>('ratelimits.acquire', lease);
};

describeEngines(
  'decided %s, the concurrency of an override',
  (mode) => {
    const server = useServer({ mode, args: ['--acceptors', '2'] });
    /** What acquires get, one after the other. */
    const acquired = async (namespace: string, identifier: string, count: number) => {
      const answers: [success: boolean, inUse: number, limit: number][] = [];
      for (let i = 0; i < count; i++) {
        const { success, inUse, limit } = await acquire(server, namespace, identifier);
        answers.push([success, inUse, limit]);
      }
      return answers;
    };
    const applied = async (namespaceName: string, identifier: string) => {
      const fields = { namespaceName, identifier, usage: true };
      type Answer = { usage: { applied: number } };
      return (await server.ok<Answer>('ratelimits.getOverride', fields)).usage.applied;
    };

    test('replaces the limit of an acquire, in the precedence of checks', async () => {
      await set(server, 'a', 'user_*', { concurrency: 2 });
      await set(server, 'a*', 'user_*', { concurrency: 9 });
      await set(server, 'a', 'user_vip', { concurrency: 3 });
      await set(server, 'a', 'user_plain');
      await set(server, 'a', '10.0.0.0/8', { cidr: true, concurrency: 4 });
      const granted = (limit: number) => {
        return Array.from({ length: limit }, (_, i) => [true, i + 1, limit]);
      };
      for (const [namespace, identifier, limit] of [
        ['a', 'user_1', 2],
        ['a', 'user_2', 2],
        ['ab', 'user_1', 9],
        ['a', 'user_vip', 3],
        // The override that applies has none: the acquire has its own limit.
        ['a', 'user_plain', 1],
        ['a', '10.1.2.3', 4],
        ['a', 'other', 1],
      ] as const) {
        expect(await acquired(namespace, identifier, limit + 1)).toEqual([
          ...granted(limit),
          [false, limit, limit],
        ]);
      }
    });

    test('of 0 denies every lease, and lets checks pass', async () => {
      await set(server, 'zero', 'user_1', { concurrency: 0 });
      expect(await acquired('zero', 'user_1', 2)).toEqual([
        [false, 0, 0],
        [false, 0, 0],
      ]);
      const check = { namespace: 'zero', identifier: 'user_1', limit: 1, duration: 1_000 };
      expect(await server.check(check)).toMatchObject({ success: true, limit: 50, remaining: 49 });
    });

    test('applies to the next acquire, and ends no lease', async () => {
      await set(server, 'next', 'user_1', { concurrency: 3 });
      const leases: string[] = [];
      for (let i = 0; i < 3; i++) {
        leases.push((await acquire(server, 'next', 'user_1')).leaseId);
      }
      await set(server, 'next', 'user_1', { concurrency: 2 });
      expect(await acquired('next', 'user_1', 1)).toEqual([[false, 3, 2]]);
      const [leaseId] = leases;
      expect(await server.ok('ratelimits.renew', { leaseId, ttl: TTL_MS })).toMatchObject({
        ...{ success: true, inUse: 3, limit: 3 },
      });
      for (const leaseId of leases.slice(1)) await server.ok('ratelimits.release', { leaseId });
      expect(await acquired('next', 'user_1', 2)).toEqual([
        [true, 2, 2],
        [false, 2, 2],
      ]);
    });

    test('ends with a set without it, and with the override', async () => {
      for (const [identifier, end] of [
        ['user_1', () => set(server, 'ends', 'user_1')],
        [
          'user_*',
          () => server.ok('ratelimit.deleteOverride', { namespace: 'ends', identifier: 'user_*' }),
        ],
      ] as const) {
        const name = identifier.replace('*', '2');
        await set(server, 'ends', identifier, { concurrency: 5 });
        expect(await acquired('ends', name, 1)).toEqual([[true, 1, 5]]);
        await end();
        expect(await acquired('ends', name, 1)).toEqual([[false, 1, 1]]);
      }
    });

    test('is not a parameter of a repeatable acquire, whose answer keeps its limit', async () => {
      await set(server, 'repeat', 'user_1', { concurrency: 3 });
      const request = { requestId: 'a', limit: 1 };
      const first = await acquire(server, 'repeat', 'user_1', request);
      expect(first).toMatchObject({ success: true, inUse: 1, limit: 3 });
      await set(server, 'repeat', 'user_1', { concurrency: 5 });
      expect(await acquire(server, 'repeat', 'user_1', request)).toEqual(first);
      const other = {
        namespace: 'repeat',
        identifier: 'user_1',
        ttl: TTL_MS,
        ...request,
        limit: 3,
      };
      expect(await server.errorOf('ratelimits.acquire', other)).toEqual([
        ...[409, expect.stringContaining('the same limit, cost and ttl')],
      ]);
      // The repetition is no use of the override.
      expect(await applied('repeat', 'user_1')).toBe(1);
    });

    test('counts granted and denied acquires as use of the override', async () => {
      await set(server, 'used', 'user_*', { concurrency: 2 });
      await set(server, 'used', 'user_plain');
      await acquired('used', 'user_1', 3);
      await acquired('used', 'user_plain', 1);
      expect(await applied('used', 'user_*')).toBe(3);
      expect(await applied('used', 'user_plain')).toBe(0);
    });
  },
  ['in-place', 'worker'],
);

describe('the field `concurrency`', () => {
  const server = useServer();
  const inV1 = { namespaceName: 'field' };
  const inV2 = { namespace: 'field' };
  const v1 = { ...inV1, identifier: 'user_1' };
  const v2 = { ...inV2, identifier: 'user_1' };

  test('is in the answers of v1 and v2 where the override has one', async () => {
    const { overrideId } = await set(server, 'field', 'user_1', { concurrency: 0 });
    const shown = async () => [
      await server.ok('ratelimits.getOverride', v1),
      ...(await server.ok<{ overrides: Fields[] }>('ratelimits.listOverrides', inV1)).overrides,
      (await server.ok<{ data: Fields }>('ratelimit.getOverride', v2)).data,
      ...(await server.ok<{ data: Fields[] }>('ratelimit.listOverrides', inV2)).data,
      (await server.ok<{ override: Fields }>('ratelimits.explain', v2)).override,
    ];
    expect(await shown()).toEqual(Array(5).fill(expect.objectContaining({ concurrency: 0 })));
    const override = { ...v2, ...TERMS };
    const again = await server.ok('ratelimit.setOverride', { ...override, concurrency: 7 });
    expect(again).toMatchObject({ data: { overrideId } });
    expect(await shown()).toEqual(Array(5).fill(expect.objectContaining({ concurrency: 7 })));
    await server.ok('ratelimit.setOverride', override);
    for (const item of await shown()) expect(item).not.toHaveProperty('concurrency');
  });

  test('is an integer from 0, beside a limit and a duration', async () => {
    const message = `"concurrency" must be an integer from 0 to ${AMOUNT_MAX}; got`;
    const operations: [Operation, Fields][] = [
      ['ratelimits.setOverride', { ...v1, ...TERMS }],
      ['ratelimit.setOverride', { ...v2, ...TERMS }],
    ];
    for (const [operation, override] of operations) {
      for (const concurrency of [-1, 1.5, '3', null, AMOUNT_MAX + 1]) {
        expect(await server.errorOf(operation, { ...override, concurrency })).toEqual([
          ...[400, expect.stringContaining(message)],
        ]);
      }
      for (const field of ['limit', 'duration']) {
        const partial = { ...override, concurrency: 3, [field]: undefined };
        expect(await server.errorOf(operation, partial)).toEqual([
          ...[400, expect.stringContaining(`"${field}" is required`)],
        ]);
      }
      await server.ok(operation, { ...override, concurrency: AMOUNT_MAX });
    }
  });

  test('is exported, and imported as it was', async () => {
    const exported = async () => {
      const { overrides } = await server.ok<{ overrides: Fields[] }>('ratelimits.exportOverrides');
      return overrides.filter(({ namespaceName }) => namespaceName === 'moved');
    };
    const item = { namespaceName: 'moved', ...TERMS, async: false };
    const overrides: Fields[] = [
      { ...item, identifier: 'user_*', concurrency: 0 },
      { ...item, identifier: 'user_1', concurrency: 12 },
      { ...item, identifier: 'user_2' },
    ];
    const load = () => server.ok('ratelimits.importOverrides', { overrides });
    expect(await load()).toMatchObject({ created: 3 });
    expect(await exported()).toEqual(overrides);
    expect(await load()).toMatchObject({ created: 0, updated: 0, unchanged: 3 });
    overrides[1].concurrency = 13;
    expect(await load()).toMatchObject({ updated: 1, unchanged: 2 });
    expect(await acquire(server, 'moved', 'user_1')).toMatchObject({ limit: 13 });
  });

  test('is in the audit log, with the value before', async () => {
    await set(server, 'audited', 'user_1', { concurrency: 2 });
    await set(server, 'audited', 'user_1', { concurrency: 4 });
    await set(server, 'audited', 'user_1');
    interface Entry {
      before?: Fields;
      after?: Fields;
    }
    const { entries } = await server.ok<{ entries: Entry[] }>('audit.list', { limit: 3 });
    const values = entries.map(({ before, after }) => [before?.concurrency, after?.concurrency]);
    expect(values).toEqual([
      [4, undefined],
      [2, 4],
      [undefined, 2],
    ]);
  });
});

describe('a store', () => {
  const own = useDataDirectory(SMALL);

  test('of a version without concurrency keeps its overrides, and then takes one', async () => {
    writeStoreVersion2(join(own.dataDir, 'store.db'));
    const first = await own.start();
    const of = { namespaceName: 'api', identifier: 'user_*' };
    const before = await first.ok('ratelimits.getOverride', of);
    expect(before).toMatchObject({ limit: 100 });
    expect(before).not.toHaveProperty('concurrency');
    expect(await acquire(first, 'api', 'user_9')).toMatchObject({ success: true, limit: 1 });
    await set(first, 'api', 'user_*', { limit: 100, concurrency: 6 });
    await first.stop();
    const second = await own.start();
    expect(await second.ok('ratelimits.getOverride', of)).toMatchObject({ concurrency: 6 });
    expect(await acquire(second, 'api', 'user_9')).toMatchObject({ success: true, limit: 6 });
  });
});
