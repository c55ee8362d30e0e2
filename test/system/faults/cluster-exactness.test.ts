/**
 * Servers that share their limits through a real Redis, under load without other faults. The
 * answers to all checks are replayed: every window allows no more than its limit, and a check that
 * fits is denied only if the metrics count a denial without proof, or a lease that was written off.
 */

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { describeReport, type RunningCluster, startServers } from './cluster-run.ts';

const COUNTS = IS_LONG ? [2, 3, 5] : [3];
/** In all, by number of servers. */
const CHECKS = trialCount(8_000, 400_000);
/** Hot limits with leases and without, and some that are seldom exhausted. */
const LIMITS = [10, 50, 200, 1_000, ...Array.from({ length: 200 }, (_, i) => 15 + (i % 11))];
const HOT = 4;
const DURATION_MS = trialCount(1_000, 2_000);

const percent = (share: number) => `${(100 * share).toFixed(2)} %`;

describe.skipIf(isRedisMissing)('servers with one Redis', () => {
  let redis: RedisServer;
  let cluster: RunningCluster | undefined;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterEach(async () => {
    await cluster?.close();
    cluster = undefined;
  });
  afterAll(async () => {
    await redis.close();
  });

  test.each(COUNTS)(
    '%i of them allow no window more than its limit, and deny what fits only without proof',
    { timeout: 1_200_000 },
    async (count) => {
      // A round trip of 0.5 to 2 ms.
      cluster = await startServers(redis, count, { delayMs: 0.25, jitterMs: 0.75 });
      const seed = newSeed();
      const report = await cluster.run({
        limits: LIMITS,
        durationMs: DURATION_MS,
        costs: [1, 1, 1, 1, 2, 3, 7, 0],
        connectionsPerServer: 8,
        checksPerServer: Math.ceil(CHECKS / count),
        seed,
        nextId: (below) => (below(4) === 0 ? HOT + below(LIMITS.length - HOT) : below(HOT)),
      });
      const { decisions, windows, overAdmission, certainlyFalse, unprovenDenials } = report;
      const { withoutRedis, recoveryDenials, writtenOff } = report;
      expect(report, describeReport(report)).toMatchObject({ errors: [], overAdmission: 0 });
      // A machine that is too slow for the deadlines of checks makes denials without proof. Redis
      // denies by the tokens of a machine that is silent for 10 ms as if they were used.
      const unproven = unprovenDenials + withoutRedis + recoveryDenials;
      if (writtenOff === 0) {
        expect(certainlyFalse, describeReport(report)).toBeLessThanOrEqual(unproven);
        if (unproven === 0) expect(report.leastUtilisation).toBe(1);
      }
      const what = `${count} servers, ${decisions} decisions in ${windows} windows (seed ${seed})`;
      const waited = `${percent(report.waited)} waited (p99 ${report.waitP99Ms.toFixed(1)} ms)`;
      recordMeasurement(
        'P1',
        `one Redis: ${waited}, ${report.tokenRequestsPerCheck.toFixed(3)} messages per check`,
        what,
        `${overAdmission} tokens too many`,
      );
      const used = `least ${percent(report.leastUtilisation)}, mean ${percent(report.meanUtilisation)}`;
      recordMeasurement(
        'P2',
        `one Redis: used of ${report.exhausted} exhausted windows ${used}`,
        what,
        `of ${report.denials} denials ${certainlyFalse} certainly false;` +
          ` ${unprovenDenials} without proof, ${withoutRedis} without Redis,` +
          ` ${writtenOff} leases written off`,
      );
    },
  );
});
