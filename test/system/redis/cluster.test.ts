/** Machines that share their limits through a Redis Cluster. */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { CounterSelector } from '../../../src/engine/engine.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { isRedisMissing, type RedisCluster, startCluster } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { identityOf, LONG_WINDOW_MS, TestMachine } from './redis-machines.ts';

const MOVED_COUNTERS = 12;
const MOVED_BUCKETS = [5, 40];
const MOVES = trialCount(6, 100);
const ALL: CounterSelector = { durationsMs: undefined, rule: undefined };

let cluster: RedisCluster;
let machines: TestMachine[] = [];

beforeAll(async () => {
  if (!isRedisMissing) cluster = await startCluster();
}, 120_000);

afterAll(async () => {
  if (!isRedisMissing) await cluster.close();
});

afterEach(() => {
  for (const machine of machines) machine.close();
  machines = [];
});

describe.skipIf(isRedisMissing)('machines with a cluster', () => {
  test('count each check once while the slots of counters move', { timeout: 300_000 }, async () => {
    // Without leases each check is a call.
    machines = [true, false, false].map((leases) => new TestMachine(cluster.url, { leases }));
    await expect
      .poll(() => machines.every((machine) => machine.state.hasJoined(0)), { timeout: 30_000 })
      .toBe(true);
    const [{ keys }] = machines;
    const identities = Array.from({ length: 1_000 }, (_, n) => identityOf(`moved ${n}`))
      .filter((id) => MOVED_BUCKETS.includes(keys.bucketOf(id)))
      .slice(0, MOVED_COUNTERS);
    const slots = MOVED_BUCKETS.map((bucket) => slotOfKey(keys.members(bucket)));
    const allowed = identities.map(() => 0);
    const before = await redirections(cluster);
    let checks = 0;
    let isMoving = true;
    const terms = { limit: 9_000_000, durationMs: LONG_WINDOW_MS };
    const load = async (machine: TestMachine, seed: number) => {
      const below = seededRandom(seed);
      while (isMoving) {
        const counter = below(identities.length);
        const cost = 1 + below(9);
        const isAsync = below(4) === 0;
        const decision = await machine.decide(identities[counter], { ...terms, cost, isAsync });
        if (decision.allowed) allowed[counter] += cost;
        checks++;
        await sleep(1);
      }
    };
    const seed = newSeed();
    const loads = machines.flatMap((machine, m) => {
      return [1, 2].map((n) => load(machine, seed + 10 * m + n));
    });
    try {
      for (let move = 0; move < MOVES; move++) {
        const slot = slots[move % slots.length];
        const from = await cluster.ownerOf(slot);
        const to = cluster.nodes[(cluster.nodes.indexOf(from) + 1) % cluster.nodes.length];
        const finish = await cluster.beginMove(slot, to);
        // Scripts get TRYAGAIN while only some of the keys are there, and ASK when none is.
        await sleep(20);
        const moved = (await from.command(
          'CLUSTER',
          'GETKEYSINSLOT',
          `${slot}`,
          '999',
        )) as string[];
        const target = ['127.0.0.1', `${to.port}`, '', '0', '5000'];
        await from.command('MIGRATE', ...target, 'KEYS', ...moved).catch(() => {});
        await sleep(20);
        await finish();
        await sleep(20);
      }
    } finally {
      isMoving = false;
      await Promise.all(loads);
    }
    const after = await redirections(cluster);
    for (const [counter, id] of identities.entries()) {
      for (const machine of machines) {
        const used = async () => {
          const result = await machine.request(id, { kind: 'inspect', selector: ALL });
          return result.kind === 'inspect' ? (result.counters[0]?.current ?? 0) : result;
        };
        await expect.poll(used, { timeout: 30_000 }).toBe(allowed[counter]);
      }
    }
    const counts = Object.entries(after).map(([kind, count]) => {
      expect(count).toBeGreaterThan(before[kind]);
      return `${count - before[kind]} ${kind}`;
    });
    const withdrawn = machines.reduce((sum, machine) => sum + machine.withdrawn, 0);
    recordMeasurement(
      'P1',
      `slots move in a cluster: ${counts.join(', ')}`,
      `3 machines, ${MOVES} moves, ${checks} checks (seed ${seed})`,
      `0 tokens lost, 0 counted twice; ${withdrawn} checks not answered`,
    );
  });
});

/** How many calls the nodes have redirected, or refused while the keys of a script were moved. */
async function redirections({ nodes }: RedisCluster): Promise<Record<string, number>> {
  const counts: Record<string, number> = { ASK: 0, TRYAGAIN: 0 };
  for (const node of nodes) {
    const info = String(await node.command('INFO', 'errorstats'));
    for (const kind of Object.keys(counts)) {
      counts[kind] += Number(new RegExp(`errorstat_${kind}:count=(\\d+)`).exec(info)?.[1] ?? 0);
    }
  }
  return counts;
}
