/** Machines that share their limits through a Redis Cluster. */

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing, type RedisCluster, startCluster } from '../../support/redis.ts';
import { identityOf, TestMachine } from '../../support/redis-machines.ts';

const DURATION_MS = 2_592_000_000;
const LIMIT = 100;
const COUNTERS = 30;

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
  test('allow each limit together, whichever node has the counter', async () => {
    machines = Array.from({ length: 2 }, () => new TestMachine(cluster.url));
    await expect
      .poll(() => machines.every((machine) => machine.state.hasJoined(0)), { timeout: 30_000 })
      .toBe(true);
    const allowed = new Array<number>(COUNTERS).fill(0);
    await Promise.all(
      allowed.map(async (_, counter) => {
        for (let n = 0; n < 1.3 * LIMIT; n++) {
          const machine = machines[n % machines.length];
          const terms = { limit: LIMIT, durationMs: DURATION_MS };
          const decision = await machine.decide(identityOf(`cluster ${counter}`), terms);
          if (decision.allowed) allowed[counter]++;
        }
      }),
    );
    for (const count of allowed) expect(count).toBeLessThanOrEqual(LIMIT);
    // On a busy computer answers come too late: of their checks, and to recalls.
    const late = machines.reduce((sum, machine) => {
      return sum + machine.withdrawn + 5 * machine.count(WORKER_STAT.leasesWrittenOff);
    }, 0);
    const total = allowed.reduce((sum, count) => sum + count, 0);
    expect(total).toBeGreaterThanOrEqual(COUNTERS * LIMIT - late);
  });
});
