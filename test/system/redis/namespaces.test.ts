/** A namespace that one server deletes is deleted on all servers with the same Redis. */

import { join } from 'node:path';
import Database from 'libsql';
import { describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendRequest } from '../../support/http.ts';
import { type ApiClient, apiClient, type Fields } from '../../support/operations.ts';
import { forwardedFor, writeConfig } from '../../support/policy-config.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { ROOT_KEY, waitUntil } from '../../support/server.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  const redis = useRedis();
  const { directories, servers, start: startAt } = useServers(2);
  const alone = useServers(1);
  const env = { WEIR_ROOT_KEY: ROOT_KEY, WEIR_REDIS_TIMEOUT_MS: '1000' };
  const start = async (i: number, more: Record<string, string> = {}): Promise<ApiClient> => {
    const server = await startAt(i, redis.url, { ...env, ...more });
    await waitForStatus(server, 'ready');
    return apiClient(server);
  };
  const CHECK = { identifier: 'user', limit: 6, duration: LONGEST_WINDOW_MS };
  const remaining = async (server: ApiClient, namespace: string, cost = 1) => {
    return (await server.check({ ...CHECK, namespace, cost })).remaining;
  };
  const names = async (server: ApiClient) => {
    return (await server.namespaces()).map(({ name }) => name);
  };
  const countedIn = async (server: ApiClient, name: string) => {
    const { namespaces } = await server.ok<{ namespaces: Fields[] }>('analytics.getNamespaces');
    return namespaces.find((one) => one.name === name)?.allowed;
  };
  let a: ApiClient;
  let b: ApiClient;

  test('delete its counters and figures on each, and share those of the next one', async () => {
    [a, b] = [await start(0), await start(1)];
    expect(await remaining(a, 'shared', 4)).toBe(2);
    const id = await a.namespaceId('shared');
    await waitUntil('it is known there', async () => (await names(b)).includes('shared'));
    expect(await remaining(b, 'shared')).toBe(1);
    const override = { namespaceId: id, identifier: 'vip', limit: 9, duration: 60_000 };
    await b.ok('ratelimits.setOverride', override);
    expect(await b.ok('ratelimits.deleteNamespace', { namespaceId: id })).toEqual({ overrides: 1 });
    await waitUntil('it is deleted there', async () => !(await names(a)).includes('shared'));
    expect([await countedIn(a, 'shared'), await countedIn(b, 'shared')]).toEqual([
      undefined,
      undefined,
    ]);
    expect(await remaining(a, 'shared', 3)).toBe(3);
    const next = await a.namespaceId('shared');
    expect(next).not.toBe(id);
    await waitUntil('it is known there', async () => (await names(b)).includes('shared'));
    expect(await remaining(b, 'shared', 3)).toBe(0);
    await waitUntil('both count it', async () => (await remaining(a, 'shared', 0)) === 0);
  });

  test('delete it on a server that was down, also if it was created again meanwhile', async () => {
    await remaining(b, 'missed', 6);
    await b.namespaceId('missed');
    await waitUntil('it has figures', async () => (await countedIn(b, 'missed')) === 1);
    await servers[1].stop();
    await waitUntil('it is known there', async () => (await names(a)).includes('missed'));
    await a.ok('ratelimits.deleteNamespace', { namespaceName: 'missed' });
    expect(await remaining(a, 'missed', 2)).toBe(4);
    await a.namespaceId('missed');
    b = await start(1);
    expect(await countedIn(b, 'missed')).toBeUndefined();
    expect(await remaining(b, 'missed', 2)).toBe(2);
    expect(await countedIn(b, 'missed')).toBe(1);
  });

  test('keep the figures of one that the store lacks at a start without Redis', async () => {
    const server = apiClient(await alone.start(0, redis.url, env));
    await waitForStatus(alone.servers[0], 'ready');
    const lock = new Database(join(alone.directories[0], 'store.db'), { timeout: 0 });
    lock.exec('BEGIN IMMEDIATE');
    await remaining(server, 'late', 3);
    await waitUntil('it has figures', async () => (await countedIn(server, 'late')) === 1);
    alone.servers[0].child.kill('SIGKILL');
    await alone.servers[0].exited;
    lock.close();
    redis.suspend();
    try {
      const restarted = apiClient(await alone.start(0, redis.url, env));
      expect(await names(restarted)).not.toContain('late');
      redis.resume();
      await waitUntil('it is known', async () => (await names(restarted)).includes('late'));
      expect(await countedIn(restarted, 'late')).toBe(1);
    } finally {
      redis.resume();
    }
  });

  test('create it again on a server whose configuration file has a policy for it', async () => {
    await servers[1].stop();
    const config = writeConfig(directories[1], { gate: { limit: 5 } });
    b = await start(1, { WEIR_CONFIG: config });
    const gateway = async () => {
      const headers = { ...forwardedFor('192.0.2.1'), 'X-Weir-Key': ROOT_KEY };
      const request = { method: 'GET', path: '/v1/check/gate', headers };
      return (await sendRequest(servers[1].port, request)).headers.ratelimit;
    };
    for (let i = 0; i < 3; i++) await gateway();
    expect(await gateway()).toContain('r=1');
    await waitUntil('it is known there', async () => (await names(a)).includes('gate'));
    // The store that both share has the policy.
    const remove = { namespaceName: 'gate' };
    const has = 'has the policy of the namespace "gate"';
    expect(await a.errorOf('ratelimits.deleteNamespace', remove)).toEqual([
      409,
      `the configuration file of another machine ${has}: remove it there first`,
    ]);
    expect(await b.errorOf('ratelimits.deleteNamespace', remove)).toEqual([
      409,
      `the configuration file ${has}: remove it first`,
    ]);
    // A server that starts without the policy removes it from there.
    await servers[0].stop();
    a = await start(0);
    const id = await a.namespaceId('gate');
    await a.ok('ratelimits.deleteNamespace', { namespaceName: 'gate' });
    await waitUntil('it is created again', async () => {
      const found = (await a.namespaces()).find(({ name }) => name === 'gate');
      return found !== undefined && found.id !== id;
    });
    expect(await gateway()).toContain('r=4');
  });
});
