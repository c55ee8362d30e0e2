/**
 * Machines of a cluster that die, stop, are cut off, are suspended, or see wrong clocks, under load:
 * every answer is recorded, and every window is replayed. The measurements are a table of
 * docs/guarantees.md.
 */

import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { IS_LONG, trialCount } from '../../support/guarantees.ts';
import { readMetric } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isMissing } from '../../support/programs/program.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { FAULT_KINDS, readWorkerDeaths, workerFaults } from '../../support/worker-faults.ts';
import type { DelayProxy } from '../redis/delay-proxy.ts';
import {
  ClusterLoad,
  type Costs,
  NOTHING_LOST,
  NOTHING_OVER,
  recordCosts,
  runFault,
} from './cluster-load.ts';
import {
  closeMachines,
  type Machine,
  type MachineOptions,
  newMachines,
} from './cluster-machines.ts';

const MACHINES = 3;
const CLIENTS_PER_MACHINE = 4;
const COST_MAX = 3;
const LOAD = {
  spanning: IS_LONG ? [400, 1_000, 2_000] : [200, 400],
  short: [15, 60, 300],
  clientsPerMachine: CLIENTS_PER_MACHINE,
  costs: [1, 1, 1, 2, COST_MAX],
};
/** Parts of a limit: a lease is no larger. */
const LEASE_MAX = 0.05;
const TIMEOUT_MS = trialCount(180_000, 600_000);
const ACCEPTOR_FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url)
  .pathname;
/** Longer than a recall waits, than a check waits for Redis, and than a short window. */
const STOPS_MS = IS_LONG ? [15, 100, 2_500, 10_000] : [2_500];
const [SECOND, HOUR] = [1_000, 3_600_000];
/** The offsets of clocks, which are one after the other those of two machines. */
const CLOCK_STEPS_MS = IS_LONG
  ? [2 * SECOND, -2 * SECOND, HOUR, -HOUR, 0, 0, -5 * SECOND, 30 * SECOND, 0, 0]
  : [2 * SECOND, HOUR, -HOUR, 0, 0];
/** How long a run of a shard worker lasts before it fails, on average. */
const WORKER_LIFE_MS = trialCount(500, 250);
const PARTITION_MS = IS_LONG ? 3_000 : 300;
/** How a machine is cut off. */
const ALL_PARTITIONS = [
  { how: 'packets are dropped', begin: (proxy: DelayProxy) => proxy.set({ isBlackhole: true }) },
  {
    how: 'connections are refused',
    begin: (proxy: DelayProxy) => {
      proxy.set({ refuses: true });
      proxy.cut();
    },
  },
  { how: 'answers end, and requests do not', begin: (proxy: DelayProxy) => proxy.halfClose() },
];
const PARTITIONS = IS_LONG ? ALL_PARTITIONS : ALL_PARTITIONS.slice(0, 1);

const isFaketimeMissing = isMissing('faketime', '--version');

let redis: RedisServer;

/** The deaths of machines cost at most a lease of each counter and what was in flight. */
function expectLossOf(deaths: readonly number[]) {
  return (costs: Costs, load: ClusterLoad) => {
    const inFlight = CLIENTS_PER_MACHINE * COST_MAX;
    const most = deaths.flatMap((machine) => {
      return load.spanning.map((counter) => {
        return Math.floor(LEASE_MAX * counter.limit) + inFlight + load.deniedBy(counter, machine);
      });
    });
    expect(costs).toMatchObject(NOTHING_OVER);
    expect(costs.lost).toBeLessThanOrEqual(most.reduce((a, b) => a + b));
  };
}

/** Waits until Redis knows all usage, also that of decisions without it. */
async function expectReported(load: ClusterLoad): Promise<void> {
  const { port } = load.machines[1];
  for (const counter of load.spanning) {
    const { identifier, duration } = counter;
    const used = async () => {
      const result = await callOperationOk(port, 'ratelimits.inspect', { identifier, duration });
      return (result.counters as { current: number }[])[0].current;
    };
    await expect.poll(used).toBe(load.tokensOf(counter));
  }
}

/** Its clock has stepped back, which weir's own time does not follow. */
async function expectClockAhead({ server }: Machine): Promise<void> {
  const aheadMs = async () => {
    return 1_000 * (await readMetric(server.adminUrl, 'weir_clock_offset_seconds'));
  };
  await expect.poll(aheadMs).toBeGreaterThan(HOUR / 2);
}

/** Ends a partition, and waits until the machine uses Redis. */
async function heal(machine: Machine): Promise<void> {
  machine.proxy.heal();
  await machine.waitUntilReady();
}

/** Machines of the tests of a group. They are not started. */
function useMachines(count: number, options: MachineOptions = {}): Machine[] {
  const machines: Machine[] = [];
  const args = ['--workers', String(trialCount(1, 2))];
  beforeAll(async () => {
    machines.push(...(await newMachines(redis, count, { args, ...options })));
  });
  afterAll(() => closeMachines(machines));
  return machines;
}

/** Before each test of a group, starts machines that do not run, and ends faults. */
function useStarted(machines: readonly Machine[]): void {
  beforeEach(async () => {
    await Promise.all(machines.map((machine) => machine.restore()));
  });
}

/** Starts machines that clients use at once. @returns what that has cost */
async function startTogether(machines: readonly Machine[]): Promise<Costs> {
  const starts = machines.map((machine) => machine.start({ isServingEarly: true }));
  await waitUntil('one listens', () => machines.some(({ isServing }) => isServing));
  const load = new ClusterLoad(machines, LOAD);
  await Promise.all(starts);
  await load.finish();
  const costs = load.costs();
  expect(costs).toMatchObject(NOTHING_LOST);
  await load.expectExact();
  return costs;
}

describe.skipIf(isRedisMissing)('machines with one Redis', { timeout: TIMEOUT_MS }, () => {
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.close());

  describe('and with deny', () => {
    const machines = useMachines(MACHINES);

    test('that start at the same moment allow nothing over a limit before they know each other', async () => {
      const all = [await startTogether(machines)];
      for (let i = 1; i < trialCount(1, 8); i++) {
        const others = await newMachines(redis, MACHINES);
        try {
          all.push(await startTogether(others));
        } finally {
          await closeMachines(others);
        }
      }
      recordCosts('three start at the same moment', `${all.length} times`, all);
    });

    describe('that have started', () => {
      useStarted(machines);

      test.runIf(IS_LONG)('lose nothing without a fault', async () => {
        await runFault(machines, { name: 'no fault', times: 3, load: LOAD, act: () => {} });
      });

      test('that are killed one after the other cost a lease and what was in flight, and serve again with their data directories', async () => {
        const victims = machines.slice(0, trialCount(1, 2));
        await runFault(machines, {
          name: `kill -9 of ${victims.length} of three`,
          times: trialCount(1, 5),
          load: LOAD,
          act: async (load) => {
            await load.used(0.2);
            for (const machine of victims) {
              await machine.kill();
              await load.answered(200);
            }
            await Promise.all(victims.map((machine) => machine.start()));
          },
          expectCosts: expectLossOf(victims.map((_, i) => i)),
        });
      });

      test('that are restarted one after the other lose nothing, and clients that try again see no error', async () => {
        await runFault(machines, {
          name: 'rolling restart with SIGTERM',
          times: trialCount(1, 3),
          load: LOAD,
          act: async (load) => {
            for (const machine of machines.slice(0, trialCount(2, MACHINES))) {
              await load.answered(100);
              expect(await machine.stop()).toEqual({ code: 0, signal: null });
              await machine.start();
            }
          },
        });
      });

      test.each(PARTITIONS)(
        'of which one is cut off from Redis lose nothing: $how',
        async ({ how, begin }) => {
          await runFault(machines, {
            name: `partition of ${PARTITION_MS} ms: ${how}`,
            times: trialCount(1, 3),
            load: LOAD,
            act: async () => {
              begin(machines[0].proxy);
              await sleep(PARTITION_MS);
              await heal(machines[0]);
            },
          });
        },
      );

      test.each(STOPS_MS)(
        'of which one is suspended for %i ms while it holds leases lose nothing',
        async (ms) => {
          const [suspended] = machines;
          const stops = ms < 2_000 ? 40 : 1;
          await runFault(machines, {
            name: `SIGSTOP for ${ms} ms`,
            trials: `${stops} stops`,
            load: LOAD,
            act: async (load) => {
              for (let stop = 0; stop < stops; stop++) {
                await suspended.suspend();
                await sleep(ms);
                suspended.resume();
                await load.answered(30);
              }
              await suspended.waitUntilReady();
            },
          });
        },
      );

      test('of which one has shard workers that fail allow nothing over a limit, and answer every check', async () => {
        const [victim] = machines;
        const { options } = victim;
        const kinds = IS_LONG ? FAULT_KINDS : ['exit', 'throw'];
        await victim.stop();
        victim.options = { ...options, ...workerFaults(WORKER_LIFE_MS, kinds) };
        await victim.start();
        victim.options = options;
        const load = new ClusterLoad(machines, LOAD);
        const leastDeaths = () => {
          const { byKind } = readWorkerDeaths(victim.server);
          return Math.min(...kinds.map((kind) => byKind[kind]));
        };
        const poll = { timeout: TIMEOUT_MS };
        await expect.poll(leastDeaths, poll).toBeGreaterThanOrEqual(trialCount(1, 10));
        await load.finish();
        const costs = load.costs();
        const { total } = readWorkerDeaths(victim.server);
        recordCosts('shard workers of one machine fail', `${total} deaths`, [costs]);
        expect(costs).toMatchObject(NOTHING_OVER);
        expect(costs.lost).toBeLessThanOrEqual(total * CLIENTS_PER_MACHINE * COST_MAX);
        expect(await victim.stop()).toEqual({ code: 0, signal: null });
        await load.expectExact();
      });
    });
  });

  describe.runIf(IS_LONG).each([
    { how: 'kill -9, WEIR_LEASES=off', options: { env: { WEIR_LEASES: 'off' } } },
    { how: 'an acceptor ends', options: { execArgv: ['--import', ACCEPTOR_FAULT] } },
  ])('$how', ({ how, options }) => {
    const machines = useMachines(MACHINES, options);
    useStarted(machines);
    let trigger: string;
    beforeAll(() => {
      const [victim] = machines;
      trigger = join(victim.directory, 'trigger');
      const env = { ...options.env, FAULT: 'exit', FAULT_FILE: trigger };
      victim.options = { ...victim.options, env };
    });

    test('costs no more than a lease and what was in flight', async () => {
      const [victim] = machines;
      await runFault(machines, {
        name: how,
        times: 4,
        load: LOAD,
        act: async (load) => {
          await load.used(0.3);
          if (options.execArgv === undefined) await victim.kill();
          else {
            await victim.readCounts();
            writeFileSync(trigger, '');
            await victim.waitUntilEnded();
            rmSync(trigger);
          }
          await load.answered(200);
          await victim.start();
        },
        expectCosts: expectLossOf([0]),
      });
    });
  });

  describe('and with local', () => {
    const machines = useMachines(2, { env: { WEIR_ON_ENGINE_DOWN: 'local' } });
    useStarted(machines);
    const [side, other] = [0, 1];
    /** @returns what it has cost until both sides knew all usage, and in all */
    const partition = async (during: (load: ClusterLoad) => Promise<unknown>) => {
      const load = new ClusterLoad(machines, LOAD);
      await load.used(0.1);
      machines[side].proxy.set({ isBlackhole: true });
      await during(load);
      await load.stop();
      await heal(machines[side]);
      await expectReported(load);
      await load.readCounts();
      const before = load.costs();
      await load.finish();
      const costs = load.costs();
      expect(costs).toMatchObject({ lost: 0, errors: 0 });
      return { before, costs };
    };

    test.runIf(IS_LONG)(
      'report what they have allowed in a partition, and then allow nothing more',
      async () => {
        const all: Costs[] = [];
        for (let i = 0; i < 4; i++) {
          const { before, costs } = await partition((load) => load.answered(100));
          // A check that Redis does not answer in time is decided locally, on a busy computer also
          // without a fault.
          expect(costs.over).toBeLessThanOrEqual(costs.withoutRedis - before.withoutRedis);
          all.push(costs);
        }
        recordCosts('partition, local, limit not reached', `${all.length} times`, all);
      },
    );

    test('allow no more than the limit on each side of a partition', async () => {
      const all: Costs[] = [];
      for (let i = 0; i < trialCount(1, 4); i++) {
        const { before, costs } = await partition(async (load) => {
          const isUsedUp = () => {
            const machines = load.spanning.flatMap((counter) => {
              return [side, other].map((machine) => load.deniedBy(counter, machine));
            });
            return machines.every((denied) => denied >= 3 * COST_MAX);
          };
          await expect.poll(isUsedUp, { timeout: TIMEOUT_MS }).toBe(true);
          await load.stop();
          for (const counter of load.spanning) {
            const own = [side, other].map((machine) => load.tokensOf(counter, machine));
            expect(Math.max(...own)).toBeLessThanOrEqual(counter.limit);
          }
        });
        expect(before.over).toBeGreaterThan(0);
        const decidedLocally = costs.withoutRedis - before.withoutRedis;
        expect(costs.allowed - before.allowed).toBeLessThanOrEqual(decidedLocally);
        all.push(costs);
      }
      recordCosts('partition, local, limit reached on both sides', `${all.length} times`, all);
    });
  });

  describe.skipIf(isFaketimeMissing)('of which two have clocks that step', () => {
    const machines = useMachines(trialCount(2, MACHINES), { hasFakeClock: true });
    useStarted(machines);

    test('lose nothing, and name the windows of Redis', async () => {
      await runFault(machines, {
        name: 'clocks step',
        trials: `${CLOCK_STEPS_MS.length} steps`,
        load: LOAD,
        act: async (load) => {
          for (const [i, ms] of CLOCK_STEPS_MS.entries()) {
            machines[i % 2].stepClock(ms);
            await load.answered(IS_LONG ? 300 : 50);
            if (ms === -HOUR) await expectClockAhead(machines[i % 2]);
          }
        },
      });
    });
  });
});
