/** Holds in a Redis Cluster that moves their slot. */

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { HOLD_TTL_MIN_MS } from '../../../src/core/constants.ts';
import { slotOfKey } from '../../../src/redis/slot.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { checkOf } from '../../support/engines.ts';
import { isRedisMissing, type RedisCluster, startCluster } from '../../support/programs/redis.ts';
import { LONG_WINDOW_MS, TestMachine } from './redis-machines.ts';

const TERMS = { limit: 100, durationMs: LONG_WINDOW_MS };

let cluster: RedisCluster;
let machine: TestMachine;
let pump: NodeJS.Timeout;

beforeAll(async () => {
  if (!isRedisMissing) cluster = await startCluster();
}, 60_000);
afterAll(() => cluster?.close());
afterEach(() => {
  clearInterval(pump);
  machine.close();
});

describe.skipIf(isRedisMissing)('a reservation whose counter has moved to another node', () => {
  test('returns its tokens at its expiry, when its slot has moved as a whole', async () => {
    machine = new TestMachine(cluster.url, { callTimeoutMs: 300 });
    pump = setInterval(() => machine.worker.processEntries(), 1);
    await expect.poll(() => machine.state.hasJoined(0), { timeout: 10_000 }).toBe(true);
    const check = checkOf('moved', { ...TERMS, cost: 60 });
    const { holds } = machine.engine;
    const { id } = await holds.reserve([check], machine.clock.monotonicMs(), HOLD_TTL_MIN_MS);

    const slot = slotOfKey(machine.keys.members(id!.record));
    const from = await cluster.ownerOf(slot);
    const to = cluster.nodes.find((node) => node !== from)!;
    const endMove = await cluster.beginMove(slot, to);
    const prefix = machine.keys.counter(check.identity, LONG_WINDOW_MS);
    const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', String(slot), '100')) as string[];
    const [counter] = keys.filter((key) => key.startsWith(prefix));
    await from.command('MIGRATE', to.host, String(to.port), counter, '0', '1000');
    // Its expiry is tried meanwhile.
    const failures = () => machine.count(WORKER_STAT.redisCallFailures);
    const before = failures();
    await expect.poll(failures, { timeout: 10_000 }).toBeGreaterThan(before);
    await endMove();
    const remaining = async () => {
      return (await machine.decide(check.identity, { ...TERMS, cost: 0 })).remaining;
    };
    await expect.poll(remaining, { timeout: 10_000 }).toBe(100);
  });
});
