/** A migration moves all records of a store into Redis. `cluster-command.test.ts` has its refusals. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openRedis } from '../../../src/redis/connection.ts';
import { SharedRegistryClient } from '../../../src/registry/shared/client.ts';
import { migrate } from '../../../src/registry/shared/migration.ts';
import { Snapshot } from '../../../src/registry/shared/snapshot.ts';
import { DataDirectory } from '../../../src/registry/store/directory.ts';
import { SqliteStore } from '../../../src/registry/store/sqlite.ts';
import type { Store } from '../../../src/registry/store/store.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { redisSettings } from '../../support/redis-settings.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';
import { addRecords, fillWithKeys, withStore } from '../../support/store.ts';
import { removeMachines, startMachine } from './machine.ts';
import { useEmptyRedis } from './use-redis.ts';

describe.skipIf(isRedisMissing)('a migration', () => {
  const redis = useEmptyRedis();
  let path: string;
  let client: SharedRegistryClient;
  let close: () => void;
  beforeEach(async () => {
    path = temporaryDirectory();
    const link = openRedis(redisSettings(redis.url));
    await link.ready(20_000);
    client = new SharedRegistryClient(link, 'weir');
    close = () => link.close();
    withStore(path, (store) => {
      fillWithKeys(store, 3);
      const names = Array.from({ length: 1_200 }, (_, i) => `name ${i}`);
      addRecords(
        store,
        'namespaces',
        names.map((name, i) => ({ id: `rlns_${i}`, name, createdMs: i })),
      );
    });
  });
  afterEach(() => {
    close();
    removeDirectory(path);
    removeMachines();
  });

  const useStore = async <T>(work: (store: Store) => Promise<T>): Promise<T> => {
    const directory = DataDirectory.open(path);
    const store = SqliteStore.open(directory);
    try {
      return await work(store);
    } finally {
      store.close();
      directory.close();
    }
  };

  test('moves every record, and the store is then a replica', async () => {
    const { records, status, local } = await useStore(async (store) => {
      const result = await migrate(store, client, false);
      return { ...result, local: Snapshot.of((table) => store.read(table)) };
    });
    expect([status, records.keys, records.namespaces]).toEqual(['moved', 3, 1_200]);
    const all = await client.readAll();
    expect(all!.snapshot.changesFrom(local)).toEqual([]);
    const [migrated, other] = [
      await startMachine(redis.url, { path }),
      await startMachine(redis.url),
    ];
    expect(other.store.hashKey).toEqual(migrated.store.hashKey);
    expect(other.registry.namespaceCount).toBe(1_200);
    await migrated.kill();
    await other.kill();
  });

  test('changes nothing when it is repeated', async () => {
    const head = () => redis.command('HGETALL', 'weir:{registry}:head');
    await useStore((store) => migrate(store, client, false));
    const before = await head();
    expect((await useStore((store) => migrate(store, client, false))).status).toBe('present');
    expect(await head()).toEqual(before);
  });

  test('that was interrupted before the store knew of it can be repeated', async () => {
    await useStore(async (store) => {
      const { hashKey, replica } = store;
      const commit = () => {
        throw new Error('killed');
      };
      const killed = { hashKey, replica, read: store.read.bind(store), commit };
      await expect(migrate(killed, client, false)).rejects.toThrow('killed');
      expect(store.replica).toBeUndefined();
      expect((await migrate(store, client, false)).status).toBe('present');
      expect(store.replica?.version).toBe(1);
    });
  });
});
