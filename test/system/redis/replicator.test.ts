/** Machines that share a registry in a real Redis have the same records. */

import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import Database from 'libsql';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { makeKey, rootKeyRecord } from '../../../src/auth/keys.ts';
import { makeOverrideId } from '../../../src/overrides/id.ts';
import { decodeChanges, Snapshot } from '../../../src/registry/shared/snapshot.ts';
import { isRedisMissing, type RedisServer } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import {
  type Fault,
  Faults,
  type Machine,
  type MachineOptions,
  removeMachines,
  startMachine,
} from './machine.ts';
import { restartEmpty, useEmptyRedis, useRedis } from './use-redis.ts';

const VALUES = { durationMs: 1_000, isAsync: false, createdMs: 1 };
const HEAD = 'weir:{registry}:head';
const LOG = 'weir:{registry}:log';

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
const removeKey = ({ writer, registry }: Machine, name: string) => {
  return writer.submit(10, () => {
    registry.removeKey(registry.keys().find((key) => key.name === name)!);
    return {};
  });
};
const putOverride = ({ writer, registry }: Machine, name: string, limit: number) => {
  return writer.submit(10, () => {
    registry.ensureNamespace(name, 5);
    const { id: scope } = registry.namespaceByName(name)!;
    const id = registry.override(scope, { identifier: 'abc' })?.id ?? makeOverrideId();
    registry.putOverride({ ...VALUES, id, scope, identifier: 'abc', limit });
    return {};
  });
};
const keyNames = ({ registry }: Machine) => registry.keys().map(({ name }) => name);
const limitsOf = ({ registry }: Machine) => [...registry.overrides()].map(({ limit }) => limit);
const errorsOf = ({ logged }: Machine) => logged.filter((line) => line.startsWith('error'));

/** Waits until all machines have the version in Redis, and requires that all have its records. */
async function requireConvergence(redis: RedisServer, machines: readonly Machine[]): Promise<void> {
  await waitUntil('all machines have the version in Redis', async () => {
    const [version, commit] = (await redis.command('HMGET', HEAD, 'version', 'commit')) as string[];
    return machines.every(({ store: { replica } }) => {
      return replica?.version === Number(version) && replica.commit === commit;
    });
  });
  // Another machine may have restored the registry before the first one has connected again.
  let all: Awaited<ReturnType<Machine['client']['readAll']>>;
  await waitUntil('the first machine reads it', async () => {
    all = await machines[0].client.readAll().catch(() => undefined);
    return all !== undefined;
  });
  for (const machine of machines) {
    const stored = Snapshot.of((table) => machine.store.read(table));
    expect(all!.snapshot.changesFrom(stored)).toEqual([]);
    const memory = Snapshot.of((table) => {
      return table === 'audit' ? machine.store.read(table) : machine.registry.stored(table);
    });
    expect(all!.snapshot.changesFrom(memory)).toEqual([]);
  }
}

describe.skipIf(isRedisMissing)('machines with one Redis', () => {
  const redis = useEmptyRedis();
  const machines: Machine[] = [];
  afterEach(async () => {
    for (const machine of machines.splice(0)) await machine.kill();
    removeMachines();
  });

  const start = async (options: MachineOptions = {}) => {
    const machine = await startMachine(redis.url, options);
    machines.push(machine);
    return machine;
  };
  const kill = async (machine: Machine) => {
    await machine.kill();
    machines.splice(machines.indexOf(machine), 1);
  };
  const convergence = () => requireConvergence(redis, machines);

  test('use the hash key of the first one', async () => {
    const [a, b] = await Promise.all([start(), start()]);
    expect(b.store.hashKey).toEqual(a.store.hashKey);
    await kill(b);
    const again = await start({ path: b.path });
    expect(again.store.hashKey).toEqual(a.store.hashKey);
  });

  test('activate every change on each of them, under the same rows', async () => {
    const [a, b, c] = [await start(), await start(), await start()];
    await addKey(a, 'one');
    await putOverride(b, 'names', 7);
    await convergence();
    await putOverride(c, 'names', 8);
    await removeKey(b, 'one');
    await convergence();
    expect([limitsOf(a), keyNames(a)]).toEqual([[8], []]);
    for (const { published, store } of [a, b, c]) {
      expect(published.map(({ table }) => table)).toContain('overrides');
      expect(store.read('audit').length).toBe(1);
    }
    const { after, before } = a.published.findLast(({ table }) => table === 'keys')!;
    expect([before, after]).toEqual([expect.objectContaining({ name: 'one' }), undefined]);
  });

  test('that create one namespace at the same time give it one id', async () => {
    const all = [await start(), await start(), await start()];
    for (const { writer } of all) writer.registerNamespace('same');
    await waitUntil('all have it', () => all.every(({ registry }) => registry.namespaceCount > 0));
    await convergence();
    expect(all[0].registry.namespaceCount).toBe(1);
  });

  test('catch up by the log after they were cut off', async () => {
    const faults = new Faults();
    const [a, b] = [await start(), await start({ faults })];
    await addKey(a, 'revoked');
    await convergence();
    faults.isCutOff = true;
    for (let i = 0; i < 5; i++) await putOverride(a, `n${i}`, i + 1);
    await removeKey(a, 'revoked');
    await waitUntil('it notices', () => b.replicator.state === 'unreachable');
    // Checks go on with what it has; changes are rejected.
    expect(keyNames(b)).toEqual(['revoked']);
    await expect(addNamespace(b, 'x')).rejects.toThrow('nothing was changed');
    faults.isCutOff = false;
    await convergence();
    expect(keyNames(b)).toEqual([]);
    expect(b.replicator.state).toBe('current');
  });

  test('catch up by all records where the log was trimmed', async () => {
    const faults = new Faults();
    const [a, b] = [await start(), await start({ faults })];
    await addKey(a, 'revoked');
    await putOverride(a, 'kept', 3);
    await convergence();
    faults.isCutOff = true;
    for (let i = 0; i < 700; i++) a.writer.registerNamespace(`many ${i}`);
    await waitUntil('they are written', () => a.registry.namespaceCount > 700);
    await removeKey(a, 'revoked');
    await putOverride(a, 'kept', 4);
    await redis.command('DEL', LOG);
    faults.isCutOff = false;
    await convergence();
    expect([keyNames(b), limitsOf(b)]).toEqual([[], [4]]);
    // The log goes on.
    await putOverride(b, 'kept', 5);
    await convergence();
  });

  test('restore a registry that Redis has lost, from the one with the last version', async () => {
    const faults = new Faults();
    const [a, b] = [await start(), await start({ faults })];
    await addKey(a, 'one');
    await convergence();
    faults.isCutOff = true;
    await addKey(a, 'two');
    await restartEmpty(redis);
    faults.isCutOff = false;
    await convergence();
    expect(keyNames(b)).toEqual(['one', 'two']);
    expect([...errorsOf(a), ...errorsOf(b)].join()).toContain('it was restored from the store');
    await addKey(b, 'three');
    await convergence();
    expect(keyNames(a)).toEqual(['one', 'two', 'three']);
  });

  test('restore it although a new machine starts first', async () => {
    const [a] = [await start()];
    await addKey(a, 'one');
    const { hashKey } = a.store;
    await restartEmpty(redis);
    const b = await start();
    await convergence();
    expect([b.store.hashKey, a.store.hashKey]).toEqual([hashKey, hashKey]);
    expect(keyNames(b)).toEqual(['one']);
  });

  test('restore the last versions, where Redis comes back with an older one', async () => {
    const [a, b] = [await start(), await start()];
    await addKey(a, 'one');
    await redis.command('SAVE');
    await addKey(b, 'two');
    await removeKey(a, 'one');
    await convergence();
    await redis.kill();
    await redis.restart();
    await convergence();
    expect(keyNames(a)).toEqual(['two']);
  });

  test.each(['keys', 'overrides', 'head', 'log'])('survive that Redis loses %s', async (lost) => {
    const [a, b] = [await start(), await start()];
    await addKey(a, 'one');
    await putOverride(a, 'names', 1);
    await convergence();
    await redis.command('DEL', `weir:{registry}:${lost}`);
    await putOverride(b, 'names', 2);
    await convergence();
    expect([keyNames(a), limitsOf(a)]).toEqual([['one'], [2]]);
  });

  test('keep their replica, and change nothing, where Redis gets another registry', async () => {
    const faults = new Faults();
    const a = await start({ faults });
    await addKey(a, 'one');
    faults.isCutOff = true;
    await redis.command('FLUSHALL');
    const b = await start();
    await addKey(b, 'other');
    faults.isCutOff = false;
    await waitUntil('it notices', () => a.replicator.state === 'diverged');
    await expect(addKey(a, 'two')).rejects.toThrow('another registry');
    expect([keyNames(a), keyNames(b)]).toEqual([['one'], ['other']]);
    expect(errorsOf(a).join()).toContain('another registry');
  });

  // With two changes the lost version is higher, but it must not replace the other either.
  test.each([1, 2])(
    'copy their store, and follow a Redis that has lost %i changes',
    async (count) => {
      const faults = new Faults();
      const [a, b] = [await start({ faults }), await start()];
      await addKey(a, 'one');
      await convergence();
      await redis.command('SAVE');
      await kill(b);
      for (let i = 0; i < count; i++) await addKey(a, `lost ${i}`);
      faults.isCutOff = true;
      await redis.kill();
      await redis.restart();
      const again = await start({ path: b.path });
      await addKey(again, 'acknowledged');
      faults.isCutOff = false;
      await convergence();
      expect(keyNames(a)).toEqual(['one', 'acknowledged']);
      expect(errorsOf(a).join()).toContain('the store was copied');
    },
  );

  test('complete a store that could not be written', async () => {
    const [a, b] = [await start(), await start()];
    await addKey(a, 'one');
    await convergence();
    const lock = new Database(join(b.path, 'store.db'));
    lock.exec('BEGIN IMMEDIATE');
    await addKey(a, 'two');
    await waitUntil('it is active', () => keyNames(b).includes('two'));
    await addKey(b, 'three');
    expect(b.store.read('keys').length).toBe(1);
    lock.exec('ROLLBACK');
    lock.close();
    await convergence();
    expect(keyNames(b)).toEqual(['one', 'two', 'three']);
  });

  test('change nothing while Redis is full, read-only or suspended, and recover', async () => {
    const [a, b] = [await start(), await start()];
    await addKey(a, 'one');
    await redis.command('CONFIG', 'SET', 'maxmemory', '1');
    await expect(addKey(a, 'two')).rejects.toThrow('nothing was changed');
    await redis.command('CONFIG', 'SET', 'maxmemory', '0');
    await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await expect(addKey(a, 'two')).rejects.toThrow('nothing was changed');
    await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '0');
    redis.suspend();
    await expect(addKey(b, 'two')).rejects.toThrow('something may have been changed');
    redis.resume();
    await waitUntil('it is connected again', () => b.replicator.state === 'current');
    await addKey(b, 'three');
    await convergence();
    expect(keyNames(a)).toContain('three');
    expect(keyNames(a).filter((name) => name === 'two').length).toBeLessThanOrEqual(1);
  });

  test('acknowledge no change that too few replicas have, and do not lose it', async () => {
    const [a, b] = [await start({ redisWait: 1 }), await start()];
    await expect(addKey(a, 'one')).rejects.toThrow('something may have been changed');
    await convergence();
    expect([keyNames(a), keyNames(b)]).toEqual([['one'], ['one']]);
  });

  test.each<[Fault, string[]]>([
    ['lost reply', ['one']],
    ['nonsense', ['one']],
    ['lost', []],
    ['late', []],
  ])('find out what became of a commit: %s', async (fault, expected) => {
    const faults = new Faults();
    const [a] = [await start({ faults }), await start()];
    faults.commits.push(fault);
    const outcome = await addKey(a, 'one').then(
      () => 'acknowledged',
      (error: Error) => error.message,
    );
    if (expected.length > 0) expect(outcome).toBe('acknowledged');
    else expect(outcome).toContain('nothing was changed');
    // Long enough for a late commit.
    await sleep(400);
    await convergence();
    expect(keyNames(a)).toEqual(expected);
  });

  test('lose no acknowledged change, and repeat none, when one is killed at any step', async () => {
    const other = await start();
    const acknowledged: string[] = [];
    let { path } = await start();
    for (let step = 0; step < 12; step++) {
      await kill(machines[1]);
      const faults = new Faults();
      const machine = await start({ path, faults });
      faults.isLastCallExecuted = step % 2 === 1;
      faults.callsLeft = Math.floor(step / 2);
      const name = `key ${step}`;
      const isDone = await Promise.race([
        addKey(machine, name).then(() => true),
        waitUntil('it is dead', () => faults.callsLeft < 0).then(() => sleep(50, false)),
      ]);
      if (isDone) acknowledged.push(name);
      path = machine.path;
    }
    await kill(machines[1]);
    await start({ path });
    await convergence();
    expect(keyNames(other)).toEqual(expect.arrayContaining(acknowledged));
    expect(new Set(keyNames(other)).size).toBe(keyNames(other).length);
    expect(acknowledged.length).toBeGreaterThan(0);
  });
});

interface Step {
  machine: number;
  action: 'namespace' | 'override' | 'removal';
  name: string;
  limit: number;
  fault: Fault;
  /** Whether to wait for it before the next step. */
  isAwaited: boolean;
}

const steps = fc.array(
  fc.record<Step>({
    machine: fc.nat(2),
    action: fc.constantFrom('namespace', 'override', 'override', 'removal'),
    name: fc.constantFrom('a', 'b', 'c'),
    limit: fc.integer({ min: 1, max: 9 }),
    fault: fc.oneof(
      { weight: 5, arbitrary: fc.constant<Fault>('none') },
      { weight: 4, arbitrary: fc.constantFrom<Fault[]>('lost', 'late', 'lost reply', 'nonsense') },
    ),
    isAwaited: fc.boolean(),
  }),
  { minLength: 1, maxLength: 25 },
);

describe.skipIf(isRedisMissing)('three machines with faults', () => {
  const redis = useRedis();
  const machines: Machine[] = [];
  const faults = [new Faults(), new Faults(), new Faults()];
  beforeAll(async () => {
    for (const each of faults) machines.push(await startMachine(redis.url, { faults: each }));
  });
  afterAll(async () => {
    for (const machine of machines) await machine.kill();
    removeMachines();
  });

  /** Each change writes an audit entry with its number, so that it can be found in the log. */
  const change = ({ writer, registry }: Machine, step: Step, number: number) => {
    return writer.submit(10, () => {
      registry.ensureNamespace(step.name, 5);
      const { id: scope } = registry.namespaceByName(step.name)!;
      const before = registry.override(scope, { identifier: 'abc' });
      if (step.action === 'override') {
        const id = before?.id ?? makeOverrideId();
        const { limit } = step;
        registry.putOverride({ ...VALUES, id, scope, identifier: 'abc', limit });
      } else if (step.action === 'removal' && before !== undefined) {
        registry.removeOverride(before);
      }
      registry.audit({ at: 1, action: 'namespace.create', keyId: null, target: { number } });
      return { before: before?.limit };
    });
  };

  test('make each acknowledged change once, in an order that all results agree with', async () => {
    let number = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (run) => {
        const start = machines[0].store.replica!.version;
        const limits = new Map(
          [...machines[0].registry.overrides()].map(({ scope, limit }) => {
            return [machines[0].registry.namespaceById(scope)!.name, limit];
          }),
        );
        const first = number;
        const outcomes: Promise<{ before?: number } | string>[] = [];
        for (const step of run) {
          if (step.fault !== 'none') faults[step.machine].commits.push(step.fault);
          const outcome = change(machines[step.machine], step, number++).catch((error) => {
            return (error as Error).message;
          });
          outcomes.push(outcome);
          if (step.isAwaited) await outcome;
        }
        const results = await Promise.all(outcomes);
        for (const each of faults) each.commits.length = 0;
        await sleep(200);
        await requireConvergence(redis, machines);

        const log = (await redis.command('XRANGE', LOG, `${start + 1}`, '+')) as [
          string,
          string[],
        ][];
        const made = log.flatMap(([, fields]) => {
          return decodeChanges(fields[3]).flatMap(({ table, after }) => {
            return table === 'audit' ? [(after!.target as { number: number }).number] : [];
          });
        });
        expect(new Set(made).size).toBe(made.length);
        for (const [i, result] of results.entries()) {
          const isMade = made.includes(first + i);
          if (typeof result !== 'string') expect(isMade).toBe(true);
          else if (result.includes('nothing was changed')) expect(isMade).toBe(false);
        }
        // The results are those of the changes one after the other, in the order of the log.
        for (const at of made) {
          const { action, name, limit } = run[at - first];
          const result = results[at - first];
          if (typeof result !== 'string') expect(result.before).toBe(limits.get(name));
          if (action === 'override') limits.set(name, limit);
          else if (action === 'removal') limits.delete(name);
        }
        expect(limitsOf(machines[0]).sort()).toEqual([...limits.values()].sort());
      }),
      { numRuns: 15 },
    );
  }, 120_000);
});
