/** Holds of machines that share a Redis Cluster. */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import type { Eventual } from '../../../src/core/eventual.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import { nameOfHold } from '../../../src/engine/redis/scripts/keys.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { checkOf } from '../../support/engines.ts';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { isRedisMissing, type RedisCluster, startCluster } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import { LONG_WINDOW_MS, TestMachine } from './redis-machines.ts';

const TTL_MS = 600_000;
const LIMIT = 100;
const NAMES = Array.from({ length: 12 }, (_, n) => `spread ${n}`);
const MOVES = trialCount(3, 30);
/** Moved one by one, before the rest. */
const MOVED_KEYS = 30;

let cluster: RedisCluster;
let machines: TestMachine[] = [];
let pump: NodeJS.Timeout;

const checkFor = (name: string, terms: Partial<Check> = {}) => {
  return checkOf(name, { limit: LIMIT, durationMs: LONG_WINDOW_MS, ...terms });
};

function reserve({ engine, clock }: TestMachine, checks: readonly Check[]) {
  return engine.holds.reserve(checks, clock.monotonicMs(), TTL_MS);
}

function acquire({ engine }: TestMachine, name: string, limit: number) {
  const { namespace, identity } = checkFor(name);
  return engine.holds.acquire({ namespace, identity, limit, cost: 1, ttlMs: TTL_MS });
}

async function used({ engine }: TestMachine, name: string): Promise<number> {
  const all = { durationsMs: undefined, rule: undefined };
  const counters = await engine.inspect(checkFor(name).identity, all, () => {});
  return Math.max(0, ...counters.flatMap(({ usage }) => Object.values(usage)).map((of) => of.used));
}

const liveHolds = ({ engine }: TestMachine, name: string) => {
  return engine.holds.liveHolds(checkFor(name).identity);
};

function shuffled<T>(items: readonly T[], below: (n: number) => number): T[] {
  const left = [...items];
  return items.map(() => left.splice(below(left.length), 1)[0]);
}

async function startMachines(url: string): Promise<TestMachine[]> {
  machines = [new TestMachine(url, { syncMs: 50 }), new TestMachine(url, { syncMs: 50 })];
  const haveJoined = () => machines.every(({ state }) => state.hasJoined(0));
  await expect.poll(haveJoined, { timeout: 30_000 }).toBe(true);
  return machines;
}

/** The workers of other threads read their queues by themselves. */
beforeEach(() => {
  pump = setInterval(() => {
    for (const { worker } of machines) worker.processEntries();
  }, 1);
});
afterEach(() => {
  clearInterval(pump);
  for (const machine of machines.splice(0)) machine.close();
});

describe.skipIf(isRedisMissing)('holds in a cluster', () => {
  beforeAll(async () => {
    cluster = await startCluster();
  }, 120_000);
  afterAll(() => cluster?.close());
  beforeEach(async () => {
    for (const node of cluster.nodes) await node.command('FLUSHALL');
  });

  test('of a list over several buckets are settled, or denied, as a whole', async () => {
    const [one, two] = await startMachines(cluster.url);
    const checks = NAMES.map((name, n) => {
      return checkFor(name, { cost: 40, rule: n % 3 === 0 ? RULE.gcra : RULE.fixed });
    });
    expect(new Set(checks.map(({ identity }) => one.keys.bucketOf(identity))).size).toBeGreaterThan(
      3,
    );
    const [committed, cancelled] = [await reserve(one, checks), await reserve(two, checks)];
    expect([committed.allowed, cancelled.allowed]).toEqual([true, true]);
    const over = [...checks.slice(0, -1), checkFor(NAMES.at(-1)!, { cost: 21 })];
    for (const machine of machines) {
      expect(await reserve(machine, over)).toMatchObject({ allowed: false, id: undefined });
    }
    for (const name of NAMES) {
      expect(await liveHolds(two, name)).toMatchObject({ count: 2, reservedTokens: 80 });
      await expect.poll(() => used(one, name)).toBe(80);
    }
    const { hashState } = checks[0].namespace;
    const fingerprints = checks.map(() => [hashState[0], hashState[1]]);
    expect(await two.engine.holds.namespacesOf(committed.id!)).toEqual(fingerprints);
    expect(await one.engine.holds.cancel(cancelled.id!)).toBe(40 * NAMES.length);
    const commit = await two.engine.holds.commit(
      committed.id!,
      NAMES.map((_, n) => n),
    );
    const charged = (NAMES.length * (NAMES.length - 1)) / 2;
    const expected = { charged, released: 40 * NAMES.length - charged, isLate: false };
    expect(commit).toEqual(expected);
    expect(
      await one.engine.holds.commit(
        committed.id!,
        NAMES.map(() => 1),
      ),
    ).toEqual(expected);
    for (const [n, name] of NAMES.entries()) {
      expect(await liveHolds(one, name)).toMatchObject({ count: 0, reservedTokens: 0 });
      await expect.poll(() => used(two, name)).toBe(n);
    }
  });

  test('are leases of many identifiers, whichever nodes have them', async () => {
    const [one, two] = await startMachines(cluster.url);
    const ids: HoldId[] = [];
    for (const name of NAMES) {
      const [first, second, third] = [
        await acquire(one, name, 2),
        await acquire(two, name, 2),
        await acquire(one, name, 2),
      ];
      expect([first.inUse, second.inUse, third]).toMatchObject([
        1,
        2,
        { granted: false, inUse: 2 },
      ]);
      ids.push(first.id!);
    }
    for (const [n, name] of NAMES.entries()) {
      expect(await two.engine.holds.renew(ids[n], TTL_MS)).toMatchObject({
        granted: true,
        inUse: 2,
      });
      expect(await two.engine.holds.release(ids[n])).toBe(1);
      expect(await acquire(one, name, 2)).toMatchObject({ granted: true, inUse: 2 });
      expect(await two.engine.holds.endLeases(checkFor(name).identity)).toBe(2);
      expect(await liveHolds(one, name)).toMatchObject({ count: 0, inUse: 0 });
    }
  });

  // The script ran on the new node, without the sums of the identity, which then stayed in use.
  test('do not change while only some of their keys have moved', async () => {
    const [one, two] = await startMachines(cluster.url);
    const [name] = NAMES;
    const id = (await acquire(one, name, 1)).id!;
    const members = one.keys.members(id.record);
    const slot = slotOfKey(members);
    const from = await cluster.ownerOf(slot);
    const to = cluster.nodes[(cluster.nodes.indexOf(from) + 1) % cluster.nodes.length];
    await to.command('CONFIG', 'RESETSTAT');
    const finish = await cluster.beginMove(slot, to);
    const moved = [members, one.keys.hold(id.record, nameOfHold(id.kind, id.secret, 0))];
    await from.command('MIGRATE', to.host, `${to.port}`, '', '0', '5000', 'KEYS', ...moved);
    let isReleased = false;
    const release = async () => {
      const released = await two.engine.holds.release(id);
      isReleased = true;
      return released;
    };
    const released = release();
    await waitUntil('the new node refuses calls, or has done one', async () => {
      return (
        isReleased || /errorstat_TRYAGAIN/.test(String(await to.command('INFO', 'errorstats')))
      );
    });
    await finish();
    expect(await released).toBe(1);
    expect(await liveHolds(one, name)).toMatchObject({ count: 0, inUse: 0 });
    expect(await acquire(one, name, 1)).toMatchObject({ granted: true, inUse: 1 });
  });

  test('change once while their slot moves', { timeout: 300_000 }, async () => {
    const [one, two] = await startMachines(cluster.url);
    const [name] = NAMES;
    const seed = newSeed();
    const below = seededRandom(seed);
    const bucket = one.keys.bucketOf(checkFor(name).identity);
    const slot = slotOfKey(one.keys.members(bucket));
    let [operations, failures] = [0, 0];
    let inUse = 0;
    let counted = 0;
    let isMoving = true;
    const tried = async <T>(act: () => Eventual<T>): Promise<T | undefined> => {
      try {
        return await act();
      } catch {
        return undefined;
      }
    };
    /** Tries until there is an answer, as a client does. */
    const answerTo = async <T>(act: () => Eventual<T>): Promise<void> => {
      for (operations++; (await tried(act)) === undefined; operations++) {
        failures++;
        await sleep(5);
      }
    };
    const client = async (machine: TestMachine, other: TestMachine) => {
      for (let n = 0; isMoving; n++) {
        operations += 2;
        const lease = await tried(() => acquire(machine, name, 1_000));
        if (lease?.id === undefined) failures++;
        else if (n % 3 === 0) inUse++;
        else await answerTo(() => other.engine.holds.release(lease.id!));
        const check = checkFor(name, { limit: 100_000, cost: 9 });
        const reserved = await tried(() => reserve(machine, [check]));
        if (reserved?.id === undefined) failures++;
        else {
          // A machine that reports what it knows of others does not know yet what has returned.
          const cost = n % 2 === 0 ? 9 : 12;
          await answerTo(() => other.engine.holds.commit(reserved.id!, [cost]));
          counted += cost;
        }
      }
    };
    const clients = [client(one, two), client(two, one), client(one, one)];
    try {
      for (let move = 0; move < MOVES; move++) {
        const from = await cluster.ownerOf(slot);
        const to = cluster.nodes[(cluster.nodes.indexOf(from) + 1) % cluster.nodes.length];
        const finish = await cluster.beginMove(slot, to);
        const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', `${slot}`, '999')) as string[];
        const target = ['127.0.0.1', `${to.port}`, '', '0', '5000', 'KEYS'];
        // A part of the keys of a hold is on either node for a while.
        for (const key of shuffled(keys, below).slice(0, MOVED_KEYS)) {
          await from.command('MIGRATE', ...target, key).catch(() => {});
          await sleep(2);
        }
        await finish();
        await sleep(100);
      }
    } finally {
      isMoving = false;
      await Promise.all(clients);
    }
    recordMeasurement(
      'P1',
      'holds of a slot that moves in a cluster',
      `${MOVES} moves, ${operations} operations`,
      `none lost, none counted twice; ${failures} not answered; seed ${seed}`,
    );
    await expect.poll(() => liveHolds(one, name), { timeout: 5_000 }).toMatchObject({ inUse });
    await expect.poll(() => used(two, name)).toBe(counted);
  });
});

test.runIf(IS_LONG && !isRedisMissing)(
  'holds outlive a failover, as far as the replica has them',
  {
    timeout: 300_000,
  },
  async () => {
    const replicated = await startCluster(3, { replicas: 1 });
    try {
      const [one, two] = await startMachines(replicated.url);
      const ids: HoldId[] = [];
      for (const name of NAMES) {
        ids.push(
          (await acquire(one, name, 1)).id!,
          (await reserve(one, [checkFor(name, { cost: 30 })])).id!,
        );
      }
      for (const node of replicated.nodes.slice(0, 3)) await node.command('WAIT', '1', '5000');
      await replicated.nodes[0].kill();
      for (const [n, name] of NAMES.entries()) {
        const acquired = () => Promise.resolve(acquire(two, name, 1)).catch(() => undefined);
        await expect
          .poll(acquired, { timeout: 60_000 })
          .toMatchObject({ granted: false, inUse: 1 });
        const { holds } = two.engine;
        expect(await holds.release(ids[2 * n])).toBe(1);
        expect(await holds.commit(ids[2 * n + 1], [12])).toMatchObject({
          charged: 12,
          released: 18,
        });
      }
    } finally {
      await replicated.close();
    }
  },
);
