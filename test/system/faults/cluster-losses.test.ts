/**
 * Losses of data in Redis, restarts and partitions, with all defaults of three servers: an outside
 * client counts what windows have allowed above their limits, what was denied although it fitted,
 * and how long. The cases and their expectations are a table in `loss-cases.ts`.
 */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG, recordMeasurements } from '../../support/guarantees.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { LOSS_CASES, runLossCase } from './loss-cases.ts';
import type { LossFigures } from './observed-cluster.ts';

function record(fault: string, figures: LossFigures): void {
  const { checks, over, withoutRedis, deniedLost, deniedOthers, failed, longestMs } = figures;
  const { normalS } = figures;
  const normal = normalS === undefined ? 'never normal' : `normal after ${normalS.toFixed(1)} s`;
  const example = failed === 0 ? '' : ` (${figures.failure})`;
  const denied = `denied falsely: ${deniedLost} of lost counters, ${deniedOthers} of others`;
  recordMeasurements(fault, `${checks} checks`, {
    P1: `${over} tokens over, ${withoutRedis} without Redis`,
    P2: `${denied}; ${normal}`,
    P3: `${failed} without a decision${example}, the longest took ${longestMs.toFixed(0)} ms`,
  });
}

describe.skipIf(isRedisMissing)('three servers with all defaults', { timeout: 120_000 }, () => {
  let redis: RedisServer;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis?.close());

  const cases = LOSS_CASES.filter(({ isLong }) => IS_LONG || !isLong);
  test.each(cases.map((one) => [one.fault, one] as const))(
    '%s: no window allows more than its limit, and other counters go on',
    // While a busy computer answers late, `local` decides, and a machine may be given up.
    { retry: 1 },
    async (fault, one) => {
      const { over, deniedFalsely, secondsMax } = one.expected;
      const figures = await runLossCase(redis, one);
      record(fault, figures);
      // On a busy computer Redis may be late. Metrics count the decisions that follow from it.
      if (over !== undefined) {
        expect(figures.over).toBeLessThanOrEqual(over + figures.allowedWithoutRedis);
      }
      if (deniedFalsely !== undefined) {
        const most = deniedFalsely + figures.deniedUnproven;
        expect(figures.deniedOthers).toBeLessThanOrEqual(most);
      }
      expect(figures.normalS ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(secondsMax);
    },
  );
});
