/** Holds and repeated requests of servers that share a Redis, over HTTP. */

import { beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import {
  callOperation,
  callOperationOk,
  type Fields,
  type Operation,
} from '../../support/operations.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

const ALL = [0, 1, 2];
const TTL_MS = 60_000;
const WINDOW = { limit: 100, duration: LONGEST_WINDOW_MS };

describe.skipIf(isRedisMissing)('three servers with one Redis', () => {
  const redis = useRedis({ isDurable: true });
  const { servers, start } = useServers(ALL.length);
  beforeAll(async () => {
    await Promise.all(ALL.map((i) => start(i, redis.url)));
    for (const server of servers) await waitForStatus(server, 'ready');
  });

  const ok = (i: number, operation: Operation, fields: Fields) => {
    return callOperationOk(servers[i].port, operation, fields);
  };
  const acquire = (i: number, identifier: string, fields: Fields = {}) => {
    return ok(i, 'ratelimits.acquire', { identifier, limit: 2, ttl: TTL_MS, ...fields });
  };
  const reserve = (i: number, identifier: string, cost: number, fields: Fields = {}) => {
    return ok(i, 'ratelimits.reserve', { identifier, ...WINDOW, cost, ttl: TTL_MS, ...fields });
  };
  const holdsOf = async (i: number, identifier: string) => {
    return (await ok(i, 'ratelimits.inspect', { identifier })).holds as Fields;
  };
  const used = async (i: number, identifier: string) => {
    const { counters } = await ok(i, 'ratelimits.inspect', { identifier });
    return (counters as { current: number }[])[0].current;
  };

  test('acquire on one, renew on another and release on the third, with the same answers', async () => {
    const first = await acquire(0, 'jobs');
    expect(first).toMatchObject({ success: true, inUse: 1, limit: 2 });
    const second = await acquire(1, 'jobs');
    expect(second).toMatchObject({ success: true, inUse: 2, limit: 2 });
    for (const i of ALL) {
      expect(await acquire(i, 'jobs')).toMatchObject({ success: false, inUse: 2, limit: 2 });
    }
    const { leaseId } = first;
    const renewed = await ok(2, 'ratelimits.renew', { leaseId, ttl: 2 * TTL_MS });
    expect(renewed).toMatchObject({ success: true, inUse: 2, limit: 2 });
    expect(renewed.expiresAt).toBeGreaterThan(first.expiresAt as number);
    const shown = await Promise.all(ALL.map((i) => holdsOf(i, 'jobs')));
    for (const holds of shown) {
      expect(holds).toEqual(shown[0]);
      expect(holds).toMatchObject({ inUse: 2, live: 2, reserved: 0 });
    }
    expect(JSON.stringify(shown[0])).toContain(String(renewed.expiresAt));
    expect(await ok(1, 'ratelimits.release', { leaseId })).toEqual({ released: 1 });
    for (const i of ALL) {
      expect(await ok(i, 'ratelimits.release', { leaseId })).toEqual({ released: 0 });
      expect(await ok(i, 'ratelimits.renew', { leaseId, ttl: TTL_MS })).toMatchObject({
        success: false,
      });
    }
    expect(await acquire(0, 'jobs')).toMatchObject({ success: true, inUse: 2 });
  });

  test('commit and cancel a reservation of another one, once', async () => {
    const reserved = await reserve(0, 'tokens', 60);
    expect(reserved).toMatchObject({ success: true, remaining: 40 });
    expect(await reserve(1, 'tokens', 41)).toMatchObject({ success: false, reservationId: null });
    const { reservationId } = reserved;
    const commits = await Promise.all(
      ALL.map((i) => ok(i, 'ratelimits.commit', { reservationId, cost: 10 + i })),
    );
    expect(new Set(commits.map(({ charged }) => charged)).size).toBe(1);
    const charged = commits[0].charged as number;
    expect([10, 11, 12]).toContain(charged);
    expect(await ok(1, 'ratelimits.cancel', { reservationId })).toMatchObject({
      released: 60 - charged,
    });
    const other = await reserve(2, 'tokens', 50);
    expect(await ok(0, 'ratelimits.cancel', other)).toMatchObject({ released: 50 });
    for (const i of ALL) expect(await used(i, 'tokens')).toBe(charged);
  });

  test('do not end a hold of a namespace in which the key has no permission', async () => {
    const { leaseId } = await acquire(0, 'private', { namespace: 'theirs' });
    const { reservationId } = await reserve(0, 'private', 10, { namespace: 'theirs' });
    await ok(0, 'ratelimits.limit', { identifier: 'a', namespace: 'ours', ...WINDOW });
    const idOf = async (name: string) => {
      const { namespaces } = await ok(0, 'ratelimits.listNamespaces', {});
      return (namespaces as { id: string; name: string }[]).find((one) => one.name === name)?.id;
    };
    const keyOf = async (namespace: string) => {
      await waitUntil('it has an id', async () => (await idOf(namespace)) !== undefined);
      const permissions = [`ratelimit.${await idOf(namespace)}.limit`];
      return String((await ok(0, 'keys.create', { name: namespace, permissions })).key);
    };
    const [ours, theirs] = [await keyOf('ours'), await keyOf('theirs')];
    const calls: [Operation, Fields][] = [
      ['ratelimits.renew', { leaseId, ttl: TTL_MS }],
      ['ratelimits.commit', { reservationId, cost: 1 }],
      ['ratelimits.cancel', { reservationId }],
      ['ratelimits.release', { leaseId }],
    ];
    const statusOf = async (i: number, [operation, fields]: [Operation, Fields], key: string) => {
      return (await callOperation(servers[i].port, operation, fields, key)).status;
    };
    for (const i of [1, 2]) {
      for (const key of [ours, theirs]) {
        const isValid = async () => {
          const fields = { identifier: 'a', namespace: 'unknown', ...WINDOW };
          return (await statusOf(i, ['ratelimits.limit', fields], key)) === 403;
        };
        await waitUntil('the key has reached it', isValid);
      }
      const statuses = await Promise.all(calls.map((call) => statusOf(i, call, ours)));
      // A renewal of an unknown lease is no error.
      expect(statuses.slice(1)).toEqual([404, 404, 404]);
    }
    expect(await holdsOf(2, 'private')).toBeDefined();
    for (const call of calls) expect(await statusOf(1, call, theirs)).toBe(200);
  });

  test('count a request once that is repeated on each', async () => {
    const identifier = 'repeated';
    const limit = { identifier, ...WINDOW, cost: 30, requestId: 'check' };
    const answers = await Promise.all(ALL.map((i) => ok(i, 'ratelimits.limit', limit)));
    for (const answer of answers) expect(answer).toEqual(answers[0]);
    expect(answers[0]).toMatchObject({ success: true, remaining: 70 });
    const holds = await Promise.all(
      ALL.flatMap((i) => [
        reserve(i, identifier, 20, { requestId: 'reservation' }),
        acquire(i, identifier, { requestId: 'lease' }),
      ]),
    );
    expect(new Set(holds.map(({ reservationId }) => reservationId)).size).toBe(2);
    expect(new Set(holds.map(({ leaseId }) => leaseId)).size).toBe(2);
    for (const i of ALL) {
      expect(await used(i, identifier)).toBe(50);
      expect(await holdsOf(i, identifier)).toMatchObject({ inUse: 1, reserved: 20, live: 2 });
      const { port } = servers[i];
      const other = await callOperation(port, 'ratelimits.limit', { ...limit, cost: 31 });
      expect(other.status).toBe(409);
    }
  });

  test('end leases of another one by a reset, if it says so', async () => {
    for (const i of ALL) await acquire(i, 'reset', { limit: 3 });
    await ok(2, 'ratelimits.reset', { identifier: 'reset' });
    expect(await holdsOf(0, 'reset')).toMatchObject({ inUse: 3 });
    await ok(2, 'ratelimits.reset', { identifier: 'reset', leases: true });
    for (const i of ALL) expect(await holdsOf(i, 'reset')).toMatchObject({ inUse: 0, live: 0 });
    expect(await acquire(1, 'reset', { limit: 1 })).toMatchObject({ success: true, inUse: 1 });
  });
});
