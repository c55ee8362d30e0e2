/** Servers with one Redis have the same keys, overrides and namespaces. The tests use the same two. */

import { describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperation, callOperationOk } from '../../support/operations.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { type ServerProcess, waitUntil } from '../../support/server.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  const redis = useRedis();
  const { servers, start: startAt } = useServers(2);
  let rootKey = '';

  const start = (i: number) => startAt(i, redis.url, { WEIR_ROOT_KEY: undefined });
  const printedKey = ({ stdout }: ServerProcess) => /WEIR_KEY=(\S+)/.exec(stdout())?.[1];
  const statusWith = async ({ port }: ServerProcess, key: string) => {
    return (await callOperation(port, 'keys.list', {}, key)).status;
  };
  const createKey = async ({ port }: ServerProcess) => {
    const body = { name: 'shared', permissions: ['keys.read'] };
    const created = await callOperationOk(port, 'keys.create', body, rootKey);
    return created as { key: string; keyId: string };
  };
  test('print one root key at their first start, which is valid on each', async () => {
    const both = await Promise.all([start(0), start(1)]);
    const keys = both.map(printedKey).filter((key) => key !== undefined);
    expect(keys.length).toBe(1);
    [rootKey] = keys;
    for (const server of both) {
      await waitUntil('the key is valid', async () => (await statusWith(server, rootKey)) === 200);
    }
    expect(await both[0].stop()).toEqual({ code: 0, signal: null });
    const again = await start(0);
    expect(printedKey(again)).toBeUndefined();
    expect(await statusWith(again, rootKey)).toBe(200);
    expect(await statusWith(both[1], rootKey)).toBe(200);
  });

  test('accept a key on each once it is created on one, and reject it once it is revoked', async () => {
    const [a, b] = servers;
    const { key, keyId } = await createKey(a);
    expect(await statusWith(a, key)).toBe(200);
    await waitUntil('it is valid there', async () => (await statusWith(b, key)) === 200);
    await callOperationOk(b.port, 'keys.revoke', { keyId }, rootKey);
    expect(await statusWith(b, key)).toBe(401);
    await waitUntil('it is rejected there', async () => (await statusWith(a, key)) === 401);
  });

  test('apply the override of a CIDR block on each', async () => {
    const [a, b] = servers;
    const block = { namespaceName: 'blocks', identifier: '203.0.113.0/24', cidr: true };
    const values = { limit: 7, duration: LONGEST_WINDOW_MS };
    await callOperationOk(a.port, 'ratelimits.setOverride', { ...block, ...values }, rootKey);
    const check = { namespace: 'blocks', identifier: '203.0.113.7', limit: 3, cost: 0 };
    const headers = { Authorization: `Bearer ${rootKey}` };
    for (const { port } of [a, b]) {
      await waitUntil('it applies', async () => {
        const body = { ...check, duration: LONGEST_WINDOW_MS };
        return (await sendCheck(port, body, headers)).limit === 7;
      });
      const found = await callOperationOk(port, 'ratelimits.getOverride', block, rootKey);
      expect(found).toMatchObject({ identifier: '203.0.113.0/24', cidr: true, limit: 7 });
    }
  });

  test('apply an override on each, and keep it when Redis restarts empty', async () => {
    const [a, b] = servers;
    const override = { namespaceName: 'shared', identifier: 'abc', duration: LONGEST_WINDOW_MS };
    const setOverride = ({ port }: ServerProcess, limit: number) => {
      return callOperation(port, 'ratelimits.setOverride', { ...override, limit }, rootKey);
    };
    expect((await setOverride(a, 7)).status).toBe(200);
    const check = { namespace: 'shared', identifier: 'abc', duration: LONGEST_WINDOW_MS, cost: 0 };
    const limitOn = async ({ port }: ServerProcess) => {
      const headers = { Authorization: `Bearer ${rootKey}` };
      return (await sendCheck(port, { ...check, limit: 3 }, headers)).limit;
    };
    expect(await limitOn(a)).toBe(7);
    await waitUntil('it applies there', async () => (await limitOn(b)) === 7);
    await redis.kill();
    await waitForStatus(b, 'degraded');
    const during = await setOverride(b, 8);
    expect([during.status, during.body]).toEqual([
      503,
      expect.stringContaining('nothing was changed'),
    ]);
    expect(await limitOn(b)).toBe(7);
    await redis.restart({ isEmpty: true });
    await waitUntil('changes are accepted again', async () => {
      return (await setOverride(b, 9)).status === 200;
    });
    await waitUntil('it applies there', async () => (await limitOn(a)) === 9);
    expect(a.stderr() + b.stderr()).toContain('it was restored from the store of this machine');
  });

  test('start from the replica in the store while Redis is away', async () => {
    const [first, other] = servers;
    const { key } = await createKey(first);
    for (const server of [first, other]) server.child.kill('SIGKILL');
    await first.exited;
    await redis.kill();
    const again = await start(0);
    expect(await statusWith(again, key)).toBe(200);
    await waitForStatus(again, 'degraded');
    await redis.restart();
    await waitForStatus(again, 'ready');
  });
});
