/** A start brings its store up to date with Redis, and loses no records. */

import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeKey, rootKeyRecord } from '../../../src/auth/keys.ts';
import type { RedisSettings } from '../../../src/redis/settings.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { Registry } from '../../../src/registry/registry.ts';
import { SharedRegistry } from '../../../src/registry/shared/shared-registry.ts';
import { DataDirectory } from '../../../src/registry/store/directory.ts';
import { SqliteStore } from '../../../src/registry/store/sqlite.ts';
import { isRedisMissing, startCluster } from '../../support/programs/redis.ts';
import { redisSettings } from '../../support/redis-settings.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { addKey } from '../../support/store.ts';
import { recordingLog } from './machine.ts';
import { useEmptyRedis } from './use-redis.ts';

describe.skipIf(isRedisMissing)('a start', () => {
  const redis = useEmptyRedis();
  let settings: RedisSettings;
  let closing: (() => Promise<void> | void)[];
  beforeAll(() => {
    settings = redisSettings(redis.url, { syncMs: 20, redisTimeoutMs: 20, recovery: 'exact' });
  });
  beforeEach(() => {
    closing = [];
  });
  afterEach(async () => {
    for (const close of closing.reverse()) await close();
  });

  const openStore = (path = temporaryDirectory()) => {
    const directory = DataDirectory.open(path);
    const store = SqliteStore.open(directory);
    let isOpen = true;
    const close = () => {
      if (isOpen) {
        store.close();
        directory.close();
      }
      isOpen = false;
    };
    closing.push(() => removeDirectory(path), close);
    return { path, store, close };
  };
  const join = async (store: SqliteStore, changes: Partial<RedisSettings> = {}) => {
    const { log, lines } = recordingLog();
    const shared = await SharedRegistry.open({ settings: { ...settings, ...changes }, store, log });
    closing.push(() => shared.close());
    return { shared, lines };
  };
  const UNREACHABLE = { redisUrl: 'redis://127.0.0.1:1' };

  test('with records that Redis never had is refused, and says what to do', async () => {
    const { store } = openStore();
    addKey(store, {});
    await expect(join(store)).rejects.toThrow(
      'has records that are not in Redis (1 key): move them there with weir migrate',
    );
    expect(await redis.command('DBSIZE')).toBe(0);
  });

  test('without Redis uses the replica in the store, and fails where there is none', async () => {
    const first = openStore();
    await expect(join(first.store, UNREACHABLE)).rejects.toThrow('a first start needs it');
    const { shared } = await join(first.store);
    const registry = new Registry(first.store);
    shared.replica.attach(registry);
    const record = rootKeyRecord(makeKey(), 'one', 1);
    expect(await shared.change(registry, () => registry.addKey(record))).toBe(true);
    await shared.close();
    const { lines } = await join(first.store, UNREACHABLE);
    expect(lines.join()).toContain('the start uses the replica in the store');
    expect(first.store.read('keys')).toEqual([expect.objectContaining(record)]);
  });

  test('with a replica of another registry is refused', async () => {
    const { store } = openStore();
    await (await join(store)).shared.close();
    await redis.command('FLUSHALL');
    const other = await join(openStore().store);
    const registry = new Registry(store);
    await other.shared.change(registry, () => registry.ensureNamespace('a', 1));
    await expect(join(store)).rejects.toThrow('Redis has another registry');
  });

  test('after the memory engine has changed the replica is refused', async () => {
    const { store } = openStore();
    await (await join(store)).shared.close();
    expect(store.replica).toBeDefined();
    addKey(store, {});
    expect(store.replica).toBeUndefined();
    await expect(join(store)).rejects.toThrow('weir migrate');
  });

  test('makes the first key on one machine, and on another where that one never stored it', async () => {
    const [a, b] = [await join(openStore().store), await join(openStore().store)];
    const claims = await Promise.all([a, b].map(({ shared }) => shared.claimFirstKey()));
    expect(claims.toSorted()).toEqual([false, true]);
    const head = 'weir:{registry}:head';
    await redis.command('HSET', head, 'claimedUntil', '1');
    const { shared } = await join(openStore().store);
    expect(await shared.claimFirstKey()).toBe(true);
  });

  test('warns about a Redis that does not save its data', async () => {
    const warning = 'Redis does not save its data';
    await redis.command('CONFIG', 'SET', 'save', '3600 1');
    expect((await join(openStore().store)).lines.join()).not.toContain(warning);
    await redis.command('CONFIG', 'SET', 'save', '');
    expect((await join(openStore().store)).lines.join()).toContain(warning);
  });

  test('refuses a Redis that may delete keys, before it writes, unless that is accepted', async () => {
    const policy = (name: string) => redis.command('CONFIG', 'SET', 'maxmemory-policy', name);
    await policy('allkeys-lru');
    await expect(join(openStore().store)).rejects.toThrow(
      `must be noeviction; got 127.0.0.1:${redis.port}: allkeys-lru (WEIR_REDIS_EVICTION=accept`,
    );
    expect(await redis.command('DBSIZE')).toBe(0);
    const { store } = openStore();
    const { shared, lines } = await join(store, { redisEviction: 'accept' });
    expect(lines.filter((line) => line.includes('memory is full'))).toEqual([
      expect.stringMatching(/^warn: /),
    ]);
    expect(shared.serverWatch.evicting).toEqual([]);
    await shared.close();
    expect((await join(store, UNREACHABLE)).lines.join()).toContain('the start uses the replica');
    await policy('noeviction');
  });

  test('refuses a cluster of which one node may delete keys', async () => {
    const cluster = await startCluster(3);
    closing.push(() => cluster.close());
    const { store } = openStore();
    await (await join(store, { redisUrl: cluster.url })).shared.close();
    const ofRegistry = await cluster.ownerOf(slotOfKey('weir:{registry}:head'));
    const [evicting] = cluster.nodes.filter((node) => node !== ofRegistry);
    await evicting.command('CONFIG', 'SET', 'maxmemory-policy', 'volatile-lru');
    // It answers after the registry has.
    evicting.suspend();
    setTimeout(() => evicting.resume(), 500);
    const joining = join(store, { redisUrl: cluster.url });
    await expect(joining).rejects.toThrow(`got 127.0.0.1:${evicting.port}: volatile-lru (`);
  });
});
