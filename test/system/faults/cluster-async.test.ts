/**
 * Asynchronous checks on servers with one real Redis: by how much windows exceed their limits, that
 * Redis gets every token in the end, and that synchronous checks see all that was reported.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG, newSeed, recordMeasurement, trialCount } from '../../support/guarantees.ts';
import { LONGEST_WINDOW_MS, sendCheck } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { waitUntil } from '../../support/server.ts';
import { openCounter, runAsyncLoad, sendPaced } from './async-load.ts';
import { closeMachines, type Machine, startMachines, sumCounts } from './cluster-machines.ts';
import { type PreparedCheck, prepareCheck } from './traffic.ts';

/** Servers, and multiples of the limits. */
const COUNTS = [2, 3, 5];
const LOADS = [1, 2, 10];
const LIMITS = [
  { limit: 1_000, durationMs: 1_000 },
  { limit: 200, durationMs: 2_000 },
];
const WINDOWS = 5;
/** The default of WEIR_SYNC_MS. */
const SYNC_MS = 100;

const SERVERS = 3;
const LOAD_MS = trialCount(1_000, 20_000);
/** Some are exhausted, and exceeded. */
const LONG_LIMITS = [300, 2_000, 9_000_000, 9_000_000];
const COSTS = [1, 3, 7];
const PER_SECOND = 100;
const ROUNDS = trialCount(4, 40);
/** Longer than a report takes: what was reported twice would show. */
const SETTLED_MS = 3 * SYNC_MS;

interface Inspection {
  counters: { algorithms: { fixed: { used: number } } }[];
}

describe.skipIf(isRedisMissing)('asynchronous checks on servers with one Redis', () => {
  let redis: RedisServer;
  let machines: Machine[];
  let others: Machine[] = [];
  let identifiers = 0;
  beforeAll(async () => {
    redis = await startRedis();
    machines = await startMachines(redis, SERVERS, { network: {} });
  });
  afterEach(() => closeMachines(others.splice(0)));
  afterAll(async () => {
    await closeMachines(machines);
    await redis.close();
  });

  const used = async (port: number, identifier: string) => {
    const fields = await callOperationOk(port, 'ratelimits.inspect', { identifier });
    const { counters } = fields as unknown as Inspection;
    return counters.reduce((sum, { algorithms }) => sum + algorithms.fixed.used, 0);
  };
  /** Waits until an inspection on each server shows so many tokens. */
  const waitForUsage = async (identifier: string, tokens: number) => {
    for (const { port } of machines) {
      await waitUntil(`${port} shows ${tokens} tokens of ${identifier}`, async () => {
        return (await used(port, identifier).catch(() => -1)) === tokens;
      });
    }
  };

  // Its bound depends on how fast Redis answers.
  test.runIf(IS_LONG).each(COUNTS)(
    'allow on %i of them no more than the limit and what one interval does not report',
    { timeout: 600_000 },
    async (count) => {
      others = await startMachines(redis, count, { network: {} });
      const servers = others.map(({ server }) => server);
      for (const load of LOADS) {
        const options = { limits: LIMITS, load, windows: WINDOWS };
        const report = await runAsyncLoad(servers, options);
        const { rows, skipped, slowestRoundTripMs } = report;
        for (const { limit, durationMs, windows, mean, least, worst, worstOfOne } of rows) {
          expect(worstOfOne).toBeLessThanOrEqual(1);
          const perMs = (load * limit) / durationMs;
          // Reports and answers may be late, as the slowest of the inspections was.
          const unreported = perMs * (SYNC_MS + 2 * slowestRoundTripMs);
          expect((worst - 1) * limit).toBeLessThanOrEqual(unreported);
          if (load === 10) expect(least).toBeGreaterThanOrEqual(1);
          const what = `${count} servers, ${limit} per ${durationMs / 1_000} s at ${load} x`;
          const allowed = `${mean.toFixed(3)} of the limit, ${worst.toFixed(3)} at worst`;
          const possible = `${((SYNC_MS * perMs) / limit).toFixed(2)} more are possible`;
          const trials = `${what}, ${windows} windows, ${skipped} checks not sent`;
          recordMeasurement('P1', 'async', trials, `allowed ${allowed}; ${possible}`);
        }
      }
    },
  );

  test('lose and repeat no token, though connections are cut', { timeout: 300_000 }, async () => {
    const allowed = LONG_LIMITS.map(() => 0);
    const record = ({ id, cost }: PreparedCheck, isAllowed: boolean) => {
      if (isAllowed) allowed[id] += cost;
    };
    const bodies = LONG_LIMITS.map((limit) => {
      const identifier = `exact_${identifiers++}`;
      return { identifier, limit, duration: LONGEST_WINDOW_MS, async: true };
    });
    const checks = bodies.flatMap((body, id) => {
      return COSTS.map((cost) => prepareCheck(id, { ...body, cost }));
    });
    for (const { port } of machines) {
      for (const [id, body] of bodies.entries()) {
        await openCounter(port, { ...body, cost: 1 });
        allowed[id]++;
      }
    }
    const cutEach = async () => {
      for (const { proxy } of machines) {
        await sleep(LOAD_MS / 5);
        proxy.cut();
      }
    };
    const ends = machines.map(({ port }) => {
      const streams = checks.map((check) => ({ check, perSecond: PER_SECOND }));
      return sendPaced({ port, streams, durationMs: LOAD_MS, onDecision: record });
    });
    const [sent] = await Promise.all([Promise.all(ends), cutEach()]);
    const requireTotals = async () => {
      for (const [id, { identifier }] of bodies.entries()) {
        await waitForUsage(identifier, allowed[id]);
      }
    };
    await requireTotals();
    await sleep(SETTLED_MS);
    await requireTotals();
    // Tokens that are gone, and tokens that are known to be used, of each counter.
    const read =
      "local u, r = struct.unpack('<dd', redis.call('HGET', KEYS[1], 'a')) return {u, r}";
    const keys = (await redis.command('KEYS', `*:c:*:${LONGEST_WINDOW_MS}:*`)) as string[];
    const totals = await Promise.all(keys.map((key) => redis.command('EVAL', read, '1', key)));
    const byAmount = (a: number[], b: number[]) => a[0] - b[0];
    expect((totals as number[][]).toSorted(byAmount)).toEqual(
      allowed.map((tokens) => [tokens, tokens]).toSorted(byAmount),
    );
    for (const [id, limit] of LONG_LIMITS.entries()) {
      expect(allowed[id]).toBeLessThanOrEqual(SERVERS * limit);
    }
    const count = sent.reduce((sum, one) => sum + one.sent, 0);
    const tokens = allowed.reduce((sum, one) => sum + one, 0);
    const trials = `${SERVERS} servers, ${count} checks, ${tokens} tokens`;
    recordMeasurement('P1', 'async: connections to Redis are cut', trials, '0 lost, 0 repeated');
  });

  test('are seen by synchronous checks when they are reported', { timeout: 300_000 }, async () => {
    const seed = newSeed();
    const below = seededRandom(seed);
    const limit = ROUNDS * 60;
    const identifier = `mixed_${identifiers++}`;
    const body = { identifier, limit, duration: LONGEST_WINDOW_MS };
    let reported = 0;
    let bySync = 0;
    let wrongDenials = 0;
    // More than the limit in all.
    for (let round = 0; round < 2 * ROUNDS; round++) {
      for (let n = 0; n < 4; n++) {
        const cost = 1 + below(10);
        const { port } = machines[below(SERVERS)];
        if ((await sendCheck(port, { ...body, cost, async: true })).success) reported += cost;
      }
      await waitForUsage(identifier, reported + bySync);
      let allowed = 0;
      let smallestDenied = Number.POSITIVE_INFINITY;
      await Promise.all(
        machines.map(async ({ port }) => {
          for (let n = 0; n < 2; n++) {
            const cost = 1 + below(10);
            if ((await sendCheck(port, { ...body, cost })).success) allowed += cost;
            else smallestDenied = Math.min(smallestDenied, cost);
          }
        }),
      );
      bySync += allowed;
      if (allowed > 0) expect(reported + bySync).toBeLessThanOrEqual(limit);
      if (reported + bySync + smallestDenied <= limit) wrongDenials++;
    }
    const { unproven, withoutRedis } = sumCounts(
      await Promise.all(machines.map((machine) => machine.readCounts())),
    );
    expect(wrongDenials).toBeLessThanOrEqual(unproven + withoutRedis);
    await waitForUsage(identifier, reported + bySync);
    expect(bySync).toBeGreaterThan(0);
    const trials = `${2 * ROUNDS} rounds, ${reported} of ${limit} tokens async (seed ${seed})`;
    const measured = `0 tokens too many, ${wrongDenials} denied what fitted`;
    recordMeasurement('P1', 'synchronous checks after asynchronous ones', trials, measured);
  });
});
