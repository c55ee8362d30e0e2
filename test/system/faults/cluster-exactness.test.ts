/**
 * Servers that share their limits through a real Redis, under load without other faults. The
 * answers to all checks are replayed: every window allows no more than its limit, and a check that
 * fits is denied only if the metrics count a denial without proof, or a lease that was written off.
 */

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG, trialCount } from '../../support/guarantees.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { ClusterLoad, recordCosts } from './cluster-load.ts';
import { closeMachines, type Machine, startMachines } from './cluster-machines.ts';

const COUNTS = IS_LONG ? [2, 3, 5] : [3];
/** In all, by number of servers. */
const CHECKS = trialCount(8_000, 200_000);
const CLIENTS = 8;
/** Hot limits with leases and without, and some that are seldom exhausted. */
const LIMITS = [10, 50, 200, 1_000, ...Array.from({ length: 200 }, (_, i) => 15 + (i % 11))];
const HOT = 4;

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  let redis: RedisServer;
  let machines: Machine[] | undefined;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterEach(() => closeMachines(machines));
  afterAll(() => redis.close());

  test.each(COUNTS)(
    '%i of them allow no window more than its limit, and deny what fits only without proof',
    { timeout: 1_200_000 },
    async (count) => {
      // A round trip of 0.5 to 2 ms.
      machines = await startMachines(redis, count, { network: { delayMs: 0.25, jitterMs: 0.75 } });
      const load = new ClusterLoad(machines, {
        ...{ short: LIMITS, shortMs: trialCount(1_000, 2_000), pauseMs: 0 },
        ...{ clientsPerMachine: CLIENTS, checks: Math.ceil(CHECKS / count / CLIENTS) },
        costs: [1, 1, 1, 1, 2, 3, 7, 0],
        nextShort: (below) => (below(4) === 0 ? HOT + below(LIMITS.length - HOT) : below(HOT)),
      });
      await load.end();
      const costs = load.costs();
      recordCosts('one Redis', `${count} servers (seed ${load.seed})`, [costs]);
      expect(costs).toMatchObject({ shortOver: 0, repeated: 0, errors: 0 });
      expect(costs.denials).toBeGreaterThan(0);
      // A machine that is too slow for the deadlines of checks makes denials without proof. Redis
      // denies by the tokens of a machine that is silent for 10 ms as if they were used.
      if (costs.writtenOff > 0) return;
      const unproven = costs.unproven + costs.withoutRedis + costs.recoveryDenials;
      expect(costs.deniedEarly).toBeLessThanOrEqual(unproven);
      if (unproven === 0) expect(costs.leastUtilisation).toBe(1);
    },
  );
});
