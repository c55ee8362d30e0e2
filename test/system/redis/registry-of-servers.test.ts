/** Servers with one Redis have the same keys, overrides and namespaces. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperation, callOperationOk } from '../../support/operations.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const ARGS = ['--acceptors', '1', '--workers', '1', '--counters', '1024'];

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  let redis: RedisServer;
  let servers: ServerProcess[];
  let directories: string[];
  beforeEach(async () => {
    redis = await startRedis();
    servers = [];
    directories = [];
  });
  afterEach(async () => {
    for (const server of servers) server.child.kill('SIGKILL');
    await Promise.all(servers.map(({ exited }) => exited));
    await redis.close();
    for (const directory of directories) removeDirectory(directory);
  });

  const start = async (env: Record<string, string | undefined> = {}, directory?: string) => {
    const path = directory ?? temporaryDirectory();
    directories.push(path);
    const variables = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url, ...env };
    const server = await startServer(path, { args: ARGS, env: variables });
    servers.push(server);
    return server;
  };
  const printedKey = ({ stdout }: ServerProcess) => /WEIR_KEY=(\S+)/.exec(stdout())?.[1];
  const statusWith = async ({ port }: ServerProcess, key: string) => {
    return (await callOperation(port, 'keys.list', {}, key)).status;
  };
  const readiness = async ({ adminUrl }: ServerProcess) => {
    return (await (await fetch(`${adminUrl}/readyz`)).json()) as { status: string };
  };

  test('print one root key at their first start, which is valid on each', async () => {
    const noKey = { WEIR_ROOT_KEY: undefined };
    const both = await Promise.all([start(noKey), start(noKey)]);
    const keys = both.map(printedKey).filter((key) => key !== undefined);
    expect(keys.length).toBe(1);
    for (const server of both) {
      await waitUntil('the key is valid', async () => (await statusWith(server, keys[0])) === 200);
    }
    const [stopped, other] = both;
    expect(await stopped.stop()).toEqual({ code: 0, signal: null });
    const again = await start(noKey, directories[0]);
    expect(printedKey(again)).toBeUndefined();
    expect(await statusWith(again, keys[0])).toBe(200);
    expect(await statusWith(other, keys[0])).toBe(200);
  });

  test('accept a key on each once it is created on one, and reject it once it is revoked', async () => {
    const [a, b] = [await start(), await start()];
    const permissions = ['keys.read'];
    const { key, keyId } = (await callOperationOk(a.port, 'keys.create', {
      name: 'shared',
      permissions,
    })) as { key: string; keyId: string };
    expect(await statusWith(a, key)).toBe(200);
    await waitUntil('it is valid there', async () => (await statusWith(b, key)) === 200);
    await callOperationOk(b.port, 'keys.revoke', { keyId });
    expect(await statusWith(b, key)).toBe(401);
    await waitUntil('it is rejected there', async () => (await statusWith(a, key)) === 401);
  });

  test('apply an override on each, and keep it when Redis restarts empty', async () => {
    const [a, b] = [await start(), await start()];
    const override = { namespaceName: 'shared', identifier: 'abc', duration: LONGEST_WINDOW_MS };
    await callOperationOk(a.port, 'ratelimits.setOverride', { ...override, limit: 7 });
    const check = { namespace: 'shared', identifier: 'abc', duration: LONGEST_WINDOW_MS, cost: 0 };
    const limitOn = async ({ port }: ServerProcess) => {
      return (await sendCheck(port, { ...check, limit: 3 })).limit;
    };
    expect(await limitOn(a)).toBe(7);
    await waitUntil('it applies there', async () => (await limitOn(b)) === 7);
    await redis.kill();
    await waitUntil('it is degraded', async () => (await readiness(b)).status === 'degraded');
    const during = await callOperation(b.port, 'ratelimits.setOverride', { ...override, limit: 8 });
    expect([during.status, during.body]).toEqual([
      503,
      expect.stringContaining('nothing was changed'),
    ]);
    expect(await limitOn(b)).toBe(7);
    await redis.restart({ isEmpty: true });
    await waitUntil('changes are accepted again', async () => {
      const body = { ...override, limit: 9 };
      return (await callOperation(b.port, 'ratelimits.setOverride', body)).status === 200;
    });
    await waitUntil('it applies there', async () => (await limitOn(a)) === 9);
    expect(a.stderr() + b.stderr()).toContain('it was restored from the store of this machine');
  });

  test('start from the replica in the store while Redis is away', async () => {
    const first = await start();
    const { key } = (await callOperationOk(first.port, 'keys.create', {
      name: 'kept',
      permissions: ['keys.read'],
    })) as { key: string };
    first.child.kill('SIGKILL');
    await first.exited;
    await redis.kill();
    const again = await start({}, directories[0]);
    expect(await statusWith(again, key)).toBe(200);
    await waitUntil('it is degraded', async () => (await readiness(again)).status === 'degraded');
    await redis.restart();
    await waitUntil('it has Redis again', async () => (await readiness(again)).status === 'ready');
  });
});
