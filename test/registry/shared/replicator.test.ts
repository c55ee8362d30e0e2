/** Machines that share a registry in a real Redis have the same records. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeKey, rootKeyRecord } from '../../../src/auth/keys.ts';
import { contentsOf, type Machine, removeMachines, startMachine } from '../../support/machine.ts';
import { overrideId } from '../../support/override-model.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/server.ts';

const VALUES = { limit: 5, durationMs: 1_000, isAsync: false, createdMs: 1 };

describe.skipIf(isRedisMissing)('machines with one Redis', () => {
  let redis: RedisServer;
  let machines: Machine[];
  beforeEach(async () => {
    redis = await startRedis();
    machines = [];
  });
  afterEach(async () => {
    for (const machine of machines) await machine.kill();
    await redis.close();
    removeMachines();
  });

  const start = async (options = {}) => {
    const machine = await startMachine(redis.url, options);
    machines.push(machine);
    return machine;
  };
  const addNamespace = ({ writer, registry }: Machine, name: string) => {
    return writer.submit(10, () => {
      registry.ensureNamespace(name, 5);
      return {};
    });
  };
  const addKey = ({ writer, registry }: Machine, name: string) => {
    const record = rootKeyRecord(makeKey(), name, 1);
    return writer.submit(10, () => {
      registry.addKey(record);
      registry.audit({ at: 1, action: 'key.create', keyId: null, target: { name } });
      return record;
    });
  };
  const putOverride = ({ writer, registry }: Machine, name: string, limit: number) => {
    return writer.submit(10, () => {
      registry.ensureNamespace(name, 5);
      const { id: scope } = registry.namespaceByName(name)!;
      const id = registry.override(scope, 'abc')?.id ?? overrideId(limit);
      registry.putOverride({ ...VALUES, id, scope, identifier: 'abc', limit });
      return {};
    });
  };
  const convergence = async () => {
    await waitUntil('all machines have the same version', () => {
      const [first, ...others] = machines.map(({ replicator }) => replicator.version);
      return others.every((version) => version === first);
    });
    const [first, ...others] = machines.map(contentsOf);
    for (const other of others) expect(other).toEqual(first);
  };

  test('use the hash key of the first one', async () => {
    const [a, b] = [await start(), await start()];
    expect(b.store.hashKey).toEqual(a.store.hashKey);
  });

  test('activate every change on each of them, under the same rows', async () => {
    const [a, b, c] = [await start(), await start(), await start()];
    await addKey(a, 'one');
    await putOverride(b, 'names', 7);
    await convergence();
    await putOverride(c, 'names', 8);
    await convergence();
    expect([...a.registry.overrides()].map(({ limit }) => limit)).toEqual([8]);
    for (const { published } of [a, b, c]) {
      expect(published.map(({ table }) => table)).toContain('overrides');
    }
    for (const { store } of [a, b, c]) expect(store.read('audit').length).toBe(1);
  });

  test('that change at the same time acknowledge each change, and lose none', async () => {
    const all = [await start(), await start(), await start()];
    const changes = all.flatMap((machine, i) => {
      return Array.from({ length: 20 }, (_, j) => addNamespace(machine, `${i}-${j}`));
    });
    await Promise.all(changes);
    await convergence();
    expect(all[0].registry.namespaceCount).toBe(60);
  });

  test('that create one namespace at the same time give it one id', async () => {
    const all = [await start(), await start(), await start()];
    for (const { writer } of all) writer.registerNamespace('same');
    await waitUntil('all have it', () => all.every(({ registry }) => registry.namespaceCount > 0));
    await convergence();
    expect(all[0].registry.namespaceCount).toBe(1);
  });
});
