/** Machines whose clock is wrong when they start without Redis. */

import { describe, expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { identityOf, LONG_WINDOW_MS, machineGroup, TestMachine } from './redis-machines.ts';

const ID = identityOf('shared');
const ALL = { kind: 'inspect', selector: { durationsMs: undefined, rule: undefined } } as const;
const OPTIONS = { isAvailable: true, leases: false, syncMs: 20 };
const group = machineGroup(OPTIONS);
const { redis, machines } = group;

describe.skipIf(isRedisMissing)('a machine that has decided alone, with its clock ahead', () => {
  test.each(['fixed', 'sliding'] as const)(
    'reports its usage to Redis, and counts on in a %s window',
    async (rule) => {
      const terms = { limit: 100, durationMs: LONG_WINDOW_MS, rule: RULE[rule] };
      await redis.kill();
      const local = { ...OPTIONS, timeoutMs: 50, onEngineDown: 'local' } as const;
      const machine = new TestMachine(redis.url, local);
      machines.push(machine);
      const { state, clock } = machine;
      state.setLocalClock(clock.nowMs() + 10.5 * LONG_WINDOW_MS, clock.monotonicMs());
      expect((await machine.decide(ID, { ...terms, cost: 30 })).allowed).toBe(true);
      await redis.restart({ isEmpty: true });
      await group.start(1);
      const [, other] = machines;
      const shared = () => other.request(ID, ALL);
      await expect.poll(shared).toMatchObject({ counters: [{ current: 30 }] });
      expect((await machine.decide(ID, { ...terms, cost: 10 })).allowed).toBe(true);
      await expect.poll(shared).toMatchObject({ counters: [{ current: 40 }] });
    },
  );
});
