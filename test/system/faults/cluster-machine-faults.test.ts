/**
 * Machines of a cluster that die, stop, are cut off, are suspended, or see wrong clocks, under load:
 * every answer is recorded, and every window is replayed. Some windows span the fault, others are
 * short. The measurements are the table of docs/guarantees.md.
 */

import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { readMetric, sendRequest } from '../../support/http.ts';
import { isMissing } from '../../support/programs/program.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { FAULT_KINDS, readWorkerDeaths, workerFaults } from '../../support/worker-faults.ts';
import type { DelayProxy } from '../redis/delay-proxy.ts';
import {
  AnswerRecord,
  ClusterClients,
  type Counter,
  durationOfYoungWindow,
  exhaust,
} from './cluster-clients.ts';
import { type Machine, type MachineOptions, newMachines } from './cluster-machines.ts';

const MACHINES = 3;
const CLIENTS_PER_MACHINE = 4;
const COSTS = [1, 1, 1, 2, 3];
const COST_MAX = 3;
/** Windows that span a fault: no test sees their end. */
const SPANNING_MS = 120_000;
const SPANNING_LIMITS = IS_LONG ? [400, 1_000, 2_000] : [200, 400];
const SHORT_MS = 2_000;
const SHORT_LIMITS = [15, 60, 300];
/** Parts of a limit: a lease is no larger. */
const LEASE_MAX = 0.05;
const TIMEOUT_MS = trialCount(180_000, 600_000);
const ACCEPTOR_FAULT = new URL('../../support/acceptor-fault.preload.mjs', import.meta.url)
  .pathname;
const ACCEPTOR_FAULT_ARGS = ['--import', ACCEPTOR_FAULT];
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

/** Sums over the repetitions of a fault. */
interface Costs {
  checks: number;
  windows: number;
  /** Tokens that windows which span the fault have allowed; over their limits; that nobody got. */
  allowed: number;
  over: number;
  lost: number;
  /** Tokens over the limits of short windows. */
  shortOver: number;
  /** Denied checks for whose cost later checks have got tokens. */
  deniedEarly: number;
  unproven: number;
  withoutRedis: number;
  /** Checks that had no answer, or a 503, and were sent to another machine. */
  repeated: number;
  /** Checks that no machine has answered. */
  errors: number;
}

let redis: RedisServer;
let loads = 0;

/** Clients that use counters of their own on all machines, with faults meanwhile. */
class Load {
  readonly machines: readonly Machine[];
  readonly record = new AnswerRecord();
  readonly seed = newSeed();
  readonly spanning: readonly Counter[];
  readonly short: readonly Counter[];
  readonly clients: ClusterClients;
  readonly #before: number[];

  constructor(machines: readonly Machine[]) {
    this.machines = machines;
    const name = `load_${loads++}`;
    const duration = durationOfYoungWindow(SPANNING_MS);
    this.spanning = SPANNING_LIMITS.map((limit) => {
      return { identifier: `${name}_spanning_${limit}`, limit, duration };
    });
    this.short = SHORT_LIMITS.map((limit) => {
      return { identifier: `${name}_short_${limit}`, limit, duration: SHORT_MS };
    });
    this.#before = this.#counts();
    this.clients = new ClusterClients({
      machines,
      clientsPerMachine: CLIENTS_PER_MACHINE,
      record: this.record,
      seed: this.seed,
      nextCheck: (below) => {
        const counters = below(2) === 0 ? this.spanning : this.short;
        return { counter: counters[below(counters.length)], cost: COSTS[below(COSTS.length)] };
      },
    });
  }

  /** Waits until each counter has used a share of its limit. */
  async used(share: number): Promise<void> {
    const leastShare = () => {
      return Math.min(...this.spanning.map((counter) => this.#tokens(counter) / counter.limit));
    };
    await expect.poll(leastShare, { timeout: TIMEOUT_MS }).toBeGreaterThanOrEqual(share);
  }

  /** Waits until clients have got so many more answers. */
  async answered(count: number): Promise<void> {
    const { answers } = this.record;
    await waitUntil('the load goes on', () => this.record.answers >= answers + count);
  }

  /** Uses up the counters, under load and then one check after the other. */
  async finish(rounds?: number): Promise<void> {
    await this.used(1 - 4 * LEASE_MAX);
    await this.stop(rounds);
  }

  async stop(rounds?: number): Promise<void> {
    await this.clients.stop();
    await exhaust(this.machines, this.record, this.spanning, rounds);
    await this.readCounts();
  }

  async readCounts(): Promise<void> {
    for (const machine of this.machines) if (machine.isServing) await machine.readCounts();
  }

  /** What the fault has cost. Every answer was valid. */
  costs(): Costs {
    const spanning = this.record.costs(this.spanning);
    const short = this.record.costs(this.short);
    const [unproven, withoutRedis] = this.#counts().map((count, i) => count - this.#before[i]);
    const { answers, invalid, unavailable } = this.record;
    expect(invalid).toEqual([]);
    return {
      checks: answers,
      windows: spanning.windows + short.windows,
      allowed: spanning.allowedTokens,
      over: spanning.over,
      shortOver: short.over,
      lost: spanning.lost,
      deniedEarly: spanning.deniedEarly + short.deniedEarly,
      unproven,
      withoutRedis,
      repeated: this.clients.unanswered + unavailable,
      errors: this.clients.errors,
    };
  }

  /** Waits until Redis knows all usage, also that of decisions without it. */
  async expectReported(): Promise<void> {
    for (const counter of this.spanning) {
      const { identifier, duration } = counter;
      const path = '/v1/ratelimits.inspect';
      const body = JSON.stringify({ identifier, duration });
      const used = async () => {
        const { port } = this.machines[1];
        const { counters } = JSON.parse((await sendRequest(port, { path, body })).body);
        return counters[0].current as number;
      };
      await expect.poll(used).toBe(this.#tokens(counter));
    }
  }

  /** Whether all counters that span the fault are denied by a machine. */
  isUsedUpOn(machine: number): boolean {
    return this.spanning.every((counter) => {
      return this.record.deniedBy(counter, machine) >= 3 * COST_MAX;
    });
  }

  /** The tokens that the deaths of machines may have cost. */
  lossMax(deaths: readonly number[]): number {
    const inFlight = CLIENTS_PER_MACHINE * COST_MAX;
    return deaths.reduce((total, machine) => {
      return (
        total +
        this.spanning.reduce((sum, counter) => {
          const denied = this.record.deniedBy(counter, machine);
          return sum + Math.floor(LEASE_MAX * counter.limit) + inFlight + denied;
        }, 0)
      );
    }, 0);
  }

  #tokens(counter: Counter): number {
    return this.record.tokensOf(counter);
  }

  #counts(): number[] {
    const counts = this.machines.map((machine) => machine.counts);
    return [
      counts.reduce((sum, { unproven }) => sum + unproven, 0),
      counts.reduce((sum, { withoutRedis }) => sum + withoutRedis, 0),
    ];
  }
}

/** Records what a fault has cost in all of its repetitions. */
function recordCosts(fault: string, trials: string, all: readonly Costs[]): void {
  const sum = (name: keyof Costs) => all.reduce((total, costs) => total + costs[name], 0);
  const what = `${trials}, ${sum('checks')} checks in ${sum('windows')} windows`;
  const over = `${sum('over')} of ${sum('allowed')} tokens over, ${sum('shortOver')} of short windows`;
  recordMeasurement('P1', fault, what, over);
  const early = `${sum('deniedEarly')} denied early, ${sum('lost')} tokens lost`;
  const without = `${sum('withoutRedis')} decided without Redis, ${sum('unproven')} unproven`;
  recordMeasurement('P2', fault, what, `${early}; ${without}`);
  recordMeasurement('P3', fault, what, `${sum('repeated')} repeated, ${sum('errors')} errors`);
}

const NOTHING_OVER = { over: 0, shortOver: 0, errors: 0 };
const NOTHING_LOST = { ...NOTHING_OVER, lost: 0 };

/** New counters are exact on all machines: nothing over the limit, and nothing lost. */
async function expectExact(machines: readonly Machine[]): Promise<void> {
  const record = new AnswerRecord();
  const duration = durationOfYoungWindow(SPANNING_MS);
  const counters = [15, 100, 300].map((limit) => {
    return { identifier: `after_${loads++}`, limit, duration };
  });
  await exhaust(machines, record, counters);
  expect(record.invalid).toEqual([]);
  expect(counters.map((counter) => record.tokensOf(counter))).toEqual([15, 100, 300]);
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
  beforeAll(async () => {
    machines.push(...(await newMachines(redis, count, options)));
  });
  afterAll(async () => {
    await Promise.all(machines.map((machine) => machine.close()));
  });
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
  const load = new Load(machines);
  await Promise.all(starts);
  await load.finish();
  expect(load.costs()).toMatchObject(NOTHING_LOST);
  await expectExact(machines);
  return load.costs();
}

describe.skipIf(isRedisMissing)('machines with one Redis', { timeout: TIMEOUT_MS }, () => {
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(async () => {
    await redis.close();
  });

  /** Repeats a fault with new counters. */
  const repeat = async (times: number, one: () => Promise<Costs>): Promise<Costs[]> => {
    const all: Costs[] = [];
    for (let i = 0; i < times; i++) all.push(await one());
    return all;
  };

  describe('and with deny', () => {
    const machines = useMachines(MACHINES);

    test('that start at the same moment allow nothing over a limit before they know each other', async () => {
      const all = [await startTogether(machines)];
      for (let i = 1; i < trialCount(1, 8); i++) {
        const others = await newMachines(redis, MACHINES);
        try {
          all.push(await startTogether(others));
        } finally {
          await Promise.all(others.map((machine) => machine.close()));
        }
      }
      recordCosts('three start at the same moment', `${all.length} times`, all);
    });

    describe('that have started', () => {
      useStarted(machines);

      test.runIf(IS_LONG)('lose nothing without a fault', async () => {
        const all = await repeat(3, async () => {
          const load = new Load(machines);
          await load.finish();
          expect(load.costs()).toMatchObject(NOTHING_LOST);
          return load.costs();
        });
        recordCosts('no fault', `${all.length} times`, all);
      });

      test('that are killed one after the other cost a lease and what was in flight, and serve again with their data directories', async () => {
        const killed = trialCount(1, 2);
        const all = await repeat(trialCount(1, 5), async () => {
          const load = new Load(machines);
          await load.used(0.2);
          for (const machine of machines.slice(0, killed)) {
            await machine.kill();
            await load.answered(200);
          }
          await Promise.all(machines.slice(0, killed).map((machine) => machine.start()));
          await load.finish();
          expect(load.costs()).toMatchObject(NOTHING_OVER);
          expect(load.costs().lost).toBeLessThanOrEqual(load.lossMax([0, 1].slice(0, killed)));
          await expectExact(machines);
          return load.costs();
        });
        recordCosts(`kill -9 of ${killed} of three`, `${killed * all.length} kills`, all);
      });

      test('that are restarted one after the other lose nothing, and clients that try again see no error', async () => {
        const restarted = trialCount(2, MACHINES);
        const all = await repeat(trialCount(1, 3), async () => {
          const load = new Load(machines);
          for (const machine of machines.slice(0, restarted)) {
            await load.answered(100);
            expect(await machine.stop()).toEqual({ code: 0, signal: null });
            await machine.start();
          }
          await load.finish();
          expect(load.costs()).toMatchObject(NOTHING_LOST);
          await expectExact(machines);
          return load.costs();
        });
        recordCosts('rolling restart with SIGTERM', `${restarted * all.length} restarts`, all);
      });

      test.each(PARTITIONS)(
        'of which one is cut off from Redis lose nothing: $how',
        async ({ how, begin }) => {
          const all = await repeat(trialCount(1, 3), async () => {
            const load = new Load(machines);
            await load.used(0.1);
            begin(machines[0].proxy);
            await sleep(PARTITION_MS);
            await heal(machines[0]);
            await load.finish();
            expect(load.costs()).toMatchObject(NOTHING_LOST);
            return load.costs();
          });
          recordCosts(`partition: ${how}`, `${all.length} of ${PARTITION_MS} ms`, all);
          await expectExact(machines);
        },
      );

      test.each(STOPS_MS)(
        'of which one is suspended for %i ms while it holds leases lose nothing',
        async (ms) => {
          const load = new Load(machines);
          await load.used(0.1);
          const [suspended] = machines;
          const stops = ms < SHORT_MS ? 40 : 1;
          for (let stop = 0; stop < stops; stop++) {
            await suspended.suspend();
            await sleep(ms);
            suspended.resume();
            await load.answered(30);
          }
          await suspended.waitUntilReady();
          await load.finish();
          recordCosts(`SIGSTOP for ${ms} ms`, `${stops} stops`, [load.costs()]);
          expect(load.costs()).toMatchObject(NOTHING_LOST);
          await expectExact(machines);
        },
      );

      test('of which one has shard workers that fail allow nothing over a limit, and answer every check', async () => {
        const [victim] = machines;
        const kinds = IS_LONG ? FAULT_KINDS : ['exit', 'throw'];
        await victim.stop();
        victim.options = workerFaults(WORKER_LIFE_MS, kinds);
        await victim.start();
        victim.options = {};
        const load = new Load(machines);
        const leastDeaths = () => {
          const { byKind } = readWorkerDeaths(victim.server);
          return Math.min(...kinds.map((kind) => byKind[kind]));
        };
        const poll = { timeout: TIMEOUT_MS };
        await expect.poll(leastDeaths, poll).toBeGreaterThanOrEqual(trialCount(1, 10));
        await load.finish(1);
        const { total } = readWorkerDeaths(victim.server);
        recordCosts('shard workers of one machine fail', `${total} deaths`, [load.costs()]);
        expect(load.costs()).toMatchObject(NOTHING_OVER);
        expect(load.costs().lost).toBeLessThanOrEqual(total * CLIENTS_PER_MACHINE * COST_MAX);
        expect(await victim.stop()).toEqual({ code: 0, signal: null });
        await expectExact(machines);
      });
    });
  });

  describe.runIf(IS_LONG).each([
    { how: 'kill -9, WEIR_LEASES=off', options: { env: { WEIR_LEASES: 'off' } } },
    { how: 'an acceptor ends', options: { execArgv: ACCEPTOR_FAULT_ARGS } },
  ])('$how', ({ how, options }) => {
    const machines = useMachines(MACHINES, options);
    useStarted(machines);
    let trigger: string;
    beforeAll(() => {
      const [victim] = machines;
      trigger = join(victim.directory, 'trigger');
      const env = { ...options.env, FAULT: 'exit', FAULT_FILE: trigger };
      victim.options = { ...options, env };
    });

    test('costs no more than a lease and what was in flight', async () => {
      const [victim] = machines;
      const all = await repeat(4, async () => {
        const load = new Load(machines);
        await load.used(0.3);
        if (options.execArgv === undefined) await victim.kill();
        else {
          await victim.readCounts();
          writeFileSync(trigger, '');
          await victim.waitUntilEnded();
          rmSync(trigger);
        }
        await load.finish();
        expect(load.costs()).toMatchObject(NOTHING_OVER);
        expect(load.costs().lost).toBeLessThanOrEqual(load.lossMax([0]));
        await victim.start();
        return load.costs();
      });
      recordCosts(how, `${all.length} deaths`, all);
      await expectExact(machines);
    });
  });

  describe('and with local', () => {
    const machines = useMachines(2, { env: { WEIR_ON_ENGINE_DOWN: 'local' } });
    useStarted(machines);
    const [side, other] = [0, 1];

    test.runIf(IS_LONG)(
      'report what they have allowed in a partition, and then allow nothing more',
      async () => {
        const all = await repeat(4, async () => {
          const load = new Load(machines);
          await load.used(0.1);
          machines[side].proxy.set({ isBlackhole: true });
          await load.answered(100);
          await load.clients.stop();
          await heal(machines[side]);
          await load.expectReported();
          const { withoutRedis } = load.costs();
          await load.stop();
          const costs = load.costs();
          expect(costs).toMatchObject({ lost: 0, errors: 0 });
          // A check that Redis does not answer in time is decided locally, on a busy computer also
          // without a fault.
          expect(costs.over).toBeLessThanOrEqual(costs.withoutRedis - withoutRedis);
          return costs;
        });
        recordCosts('partition, local, limit not reached', `${all.length} times`, all);
      },
    );

    test('allow no more than the limit on each side of a partition', async () => {
      const all = await repeat(trialCount(1, 4), async () => {
        const load = new Load(machines);
        await load.used(0.1);
        machines[side].proxy.set({ isBlackhole: true });
        const isUsedUp = () => load.isUsedUpOn(side) && load.isUsedUpOn(other);
        await expect.poll(isUsedUp, { timeout: TIMEOUT_MS }).toBe(true);
        await load.clients.stop();
        for (const counter of load.spanning) {
          const own = [side, other].map((machine) => load.record.allowedBy(counter, machine));
          expect(Math.max(...own)).toBeLessThanOrEqual(counter.limit);
        }
        await heal(machines[side]);
        await load.expectReported();
        await load.readCounts();
        const before = load.costs();
        await load.stop();
        const costs = load.costs();
        expect(costs).toMatchObject({ lost: 0, errors: 0 });
        const decidedLocally = costs.withoutRedis - before.withoutRedis;
        expect(costs.allowed - before.allowed).toBeLessThanOrEqual(decidedLocally);
        return costs;
      });
      recordCosts('partition, local, limit reached on both sides', `${all.length} times`, all);
    });
  });

  describe.skipIf(isFaketimeMissing)('of which two have clocks that step', () => {
    const machines = useMachines(trialCount(2, MACHINES), { hasFakeClock: true });
    useStarted(machines);

    test('lose nothing, and name the windows of Redis', async () => {
      const load = new Load(machines);
      await load.used(0.05);
      for (const [i, ms] of CLOCK_STEPS_MS.entries()) {
        machines[i % 2].stepClock(ms);
        await load.answered(IS_LONG ? 300 : 50);
        if (ms === -HOUR) await expectClockAhead(machines[i % 2]);
      }
      await load.finish();
      recordCosts('clocks step', `${CLOCK_STEPS_MS.length} steps`, [load.costs()]);
      expect(load.costs()).toMatchObject(NOTHING_LOST);
      await expectExact(machines);
    });
  });
});
