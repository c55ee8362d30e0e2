/** What a rolling restart does with all defaults, from the answers alone. */

import { describe, expect, test } from 'vitest';
import { IS_LONG, recordMeasurements } from '../../support/guarantees.ts';
import { startBusyLoops } from '../../support/programs/busy-loops.ts';
import { isRedisMissing, startRedis } from '../../support/programs/redis.ts';
import { closeMachines, type Machine, startMachines } from './cluster-machines.ts';
import { OutsideClient } from './outside-client.ts';
import { measureRestarts, newCounters, type RestartFigures } from './rolling-restart.ts';

const MACHINES = IS_LONG ? 5 : 3;
const BUSY_LOOPS = 2;
/** A machine that gets no core for longer than its timeout decides without Redis. */
const ROUNDS_MAX = IS_LONG ? 10 : 3;

function record({ checks, over, withoutRedis, failed, p99Ms, longestMs }: RestartFigures): void {
  const ms = (time: number) => `${time.toFixed(0)} ms`;
  recordMeasurements(`${MACHINES} machines are restarted beside busy loops`, `${checks} checks`, {
    P1: `${over.second} and ${over.minute} tokens over, ${withoutRedis} without Redis`,
    P3: `${failed} without a decision, p99 ${ms(p99Ms)}, the longest took ${ms(longestMs)}`,
  });
}

describe.skipIf(isRedisMissing)('a rolling restart under load with all defaults', () => {
  test('decides every check, and exceeds no limit in a round that Redis decided alone', async () => {
    const redis = await startRedis();
    let machines: Machine[] = [];
    let stopLoops = () => {};
    const client = new OutsideClient();
    try {
      // Undefined: the default, not that of tests.
      const env = { WEIR_REDIS_URL: redis.url, WEIR_ON_ENGINE_DOWN: undefined };
      machines = await startMachines(redis, MACHINES, { env });
      stopLoops = startBusyLoops(BUSY_LOOPS);
      const rounds: RestartFigures[] = [];
      const isExact = () => rounds.some(({ over }) => over.second + over.minute === 0);
      while (!isExact() && rounds.length < ROUNDS_MAX) {
        const figures = await measureRestarts(client, machines, newCounters(`${rounds.length}_`));
        rounds.push(figures);
        record(figures);
        expect(figures.failed).toBe(0);
        if (figures.withoutRedis === 0) expect(figures.over).toEqual({ second: 0, minute: 0 });
      }
      expect(isExact()).toBe(true);
    } finally {
      stopLoops();
      client.close();
      await closeMachines(machines);
      await redis.close();
    }
  }, 300_000);
});
