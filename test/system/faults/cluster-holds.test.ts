/**
 * Holds of three machines with one Redis, under load and faults. Leases in use never exceed their
 * limit, nor do counted and reserved tokens, except by what commits declare. All holds end by their
 * ttl, whichever machine began them.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { recordMeasurements, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { HOLD_LIMIT, HoldLoad, TTL_MAX_MS } from './cluster-hold-load.ts';
import { closeMachines, type Machine, newMachines } from './cluster-machines.ts';

vi.setConfig({ testTimeout: trialCount(180_000, 1_800_000) });

const MACHINES = 3;
const CLIENTS = 12;
/** How long the load runs before a fault, and after the last one. */
const LOAD_MS = trialCount(1_000, 3_000);
const FAULTS = trialCount(1, 12);
const DOWN_MS = trialCount(300, 1_500);
/** The most of a limit that a lease of tokens has: what a dead machine keeps from the others. */
const LEASE_SHARE = 0.05;

interface Fault {
  name: string;
  act: (machines: readonly Machine[], redis: RedisServer) => Promise<unknown>;
  /**
   * Whether Redis asks machines for the usage of others that they know. It may be from before a
   * commit has returned tokens, which then stay counted until their window ends.
   */
  forgetsReturns?: boolean;
}

const CASES: Fault[] = [
  { name: 'without a fault', act: () => sleep(LOAD_MS) },
  {
    name: 'where Redis is killed, and restarted with its file',
    forgetsReturns: true,
    act: async (_, redis) => {
      await redis.kill();
      await sleep(DOWN_MS);
      await redis.restart();
    },
  },
  {
    name: 'where Redis is killed, and restarted empty',
    forgetsReturns: true,
    act: async (_, redis) => {
      await redis.kill();
      await sleep(DOWN_MS);
      await redis.restart({ isEmpty: true });
    },
  },
  // The last: an empty Redis waits for a machine that is gone.
  {
    name: 'where one machine is killed',
    act: async ([machine]) => {
      await machine.kill();
      await sleep(DOWN_MS);
      await machine.start();
    },
  },
];

describe.skipIf(isRedisMissing)('holds of three machines', () => {
  let redis: RedisServer;
  let machines: Machine[];
  let loads = 0;
  beforeAll(async () => {
    redis = await startRedis({ isDurable: true });
    machines = await newMachines(redis, MACHINES, { env: { WEIR_RECOVERY: 'exact' } });
  });
  beforeEach(() => Promise.all(machines.map((machine) => machine.restore())));
  afterAll(async () => {
    await closeMachines(machines);
    await redis?.close();
  });

  const cases = CASES.map((fault) => [fault.name, fault] as const);
  test.each(cases)('never exceed a limit, and all end %s', async (name, fault) => {
    const load = new HoldLoad(machines, `load_${loads++}`, CLIENTS);
    const beganMs = performance.now();
    for (let i = 0; i < FAULTS; i++) {
      await sleep(LOAD_MS);
      await fault.act(machines, redis);
      const { granted } = load;
      await waitUntil('holds are granted again', () => load.granted > granted + CLIENTS);
    }
    await sleep(LOAD_MS);
    await load.stop();
    const tookS = (performance.now() - beganMs) / 1_000;
    await load.waitUntilAllEnded();
    const { over, lost, mostInUse, mostCounted, ...figures } = load.figures();
    let kept = 0;
    for (const { identifier, limit, window, uses, pending } of load.windows) {
      const committed = uses
        .filter(({ untilMs }) => untilMs === Number.POSITIVE_INFINITY)
        .reduce((sum, { tokens }) => sum + tokens, 0);
      const check = { identifier, limit, cost: 0, ...window };
      const counted = limit - (await sendCheck(machines[1].port, check)).remaining;
      expect(counted, identifier).toBeGreaterThanOrEqual(Math.min(limit, committed));
      kept += Math.max(0, counted - committed - pending);
    }
    const counts = Object.entries(figures).map(([name, count]) => `${count} ${name}`);
    const most = `at most ${mostInUse} lease tokens in use and ${mostCounted} counted at once`;
    recordMeasurements(
      `holds ${name}`,
      `${FAULTS} times in ${tookS.toFixed(0)} s: ${counts.join(', ')}`,
      {
        P1: `${over} over; ${most}; seed ${load.seed}`,
        P2: `${lost} holds lost; of ${load.windows.length} counters ${kept} returned tokens counted`,
      },
    );
    expect({ over, lost }).toEqual({ over: 0, lost: 0 });
    if (fault.forgetsReturns) return;
    const leased = load.windows.length * Math.floor(LEASE_SHARE * HOLD_LIMIT);
    expect(kept).toBeLessThanOrEqual(leased);
  });

  test('that a dead machine began end by their ttl: others use the tokens', async () => {
    const [machine, { port }] = machines;
    const terms = { identifier: 'dead', limit: 200, duration: LONGEST_WINDOW_MS };
    const fields = { ...terms, cost: 10, ttl: TTL_MAX_MS };
    const lease = { identifier: 'dead', limit: 3, cost: 3, ttl: TTL_MAX_MS };
    let expiresAt = 0;
    for (let reserved = 0; reserved < terms.limit; reserved += fields.cost) {
      const answer = await callOperationOk(machine.port, 'ratelimits.reserve', fields);
      expect(answer.success).toBe(true);
      expiresAt = Number(answer.expiresAt);
    }
    await callOperationOk(machine.port, 'ratelimits.acquire', lease);
    await machine.kill();
    expect((await sendCheck(port, { ...terms, cost: 1 })).success).toBe(false);
    const cost = terms.limit * (1 - LEASE_SHARE);
    // Until then nothing but the machines looks for holds whose time is over.
    await waitUntil('their tokens are free', async () => {
      return (await sendCheck(port, { ...terms, cost })).success;
    });
    const lateMs = Date.now() - expiresAt;
    await waitUntil('the lease has ended', async () => {
      return (await callOperationOk(port, 'ratelimits.acquire', lease)).success === true;
    });
    recordMeasurements('holds of a machine that is killed', '20 reservations, 1 lease', {
      P2: `${cost} of ${terms.limit} tokens used again ${lateMs} ms after the last ttl`,
    });
  });
});
