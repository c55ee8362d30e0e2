/**
 * Two engines that share counters through a real Redis, as two machines do: single checks, batches
 * and lists of checks on the same counters at the same time.
 */

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import { TestEngine } from '../../support/engines.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const confirm = () => {};
const COUNTERS = 6;
const LIMIT = 300;
const CLIENTS = 8;
const REQUESTS = 60;

describe.skipIf(isRedisMissing)('two machines with one Redis', () => {
  let redis: RedisServer;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(async () => {
    await redis.close();
  });
  let engines: TestEngine[] = [];
  let runs = 0;
  const open = async (leases: boolean) => {
    const use = { redis, prefix: `shared${runs++}`, leases };
    engines = [await TestEngine.open(use, 1_024), await TestEngine.open(use, 1_024)];
    return engines;
  };
  afterEach(() => {
    for (const engine of engines.splice(0)) engine.close();
  });

  test.each([true, false])(
    'count what the answers say, and allow no more than the limit (leases: %s)',
    async (leases) => {
      const [one, other] = await open(leases);
      const allowed = new Map<string, number>();
      const add = (name: string, cost: number) => {
        allowed.set(name, (allowed.get(name) ?? 0) + cost);
      };
      let deniedBatches = 0;
      const client = async (seed: number) => {
        const next = seededRandom(seed);
        const engine = seed % 2 === 0 ? one : other;
        for (let i = 0; i < REQUESTS; i++) {
          const names = Array.from({ length: 1 + next(4) }, () => `counter_${next(COUNTERS)}`);
          const checks = names.map((name) => {
            const rule = next(3) === 0 ? RULE.sliding : RULE.fixed;
            return engine.check(name, { limit: LIMIT, cost: next(6), rule });
          });
          const kind = next(3);
          if (kind === 0) {
            const { allowed: isAllowed } = await engine.decide(names[0], checks[0]);
            if (isAllowed) add(names[0], checks[0].cost);
          } else if (kind === 1) {
            const { decisions } = await engine.decideEach(checks, false);
            for (const [at, { cost }] of checks.entries()) {
              if (decisions[at].allowed) add(names[at], cost);
            }
          } else {
            const batch = await engine.decideBatch(checks);
            expect(batch.allowed).toBe(batch.decisions.every((decision) => decision.allowed));
            if (!batch.allowed) deniedBatches++;
            for (const [at, { cost }] of checks.entries()) add(names[at], batch.allowed ? cost : 0);
          }
        }
      };
      await Promise.all(Array.from({ length: CLIENTS }, (_, seed) => client(seed + 1)));
      for (let number = 0; number < COUNTERS; number++) {
        const name = `counter_${number}`;
        const { identity } = one.check(name);
        const selector = { durationsMs: undefined, rule: undefined };
        const [counter] = await one.engine.inspect(identity, selector, confirm);
        expect([name, counter.current]).toEqual([name, allowed.get(name)]);
        expect(counter.current).toBeLessThanOrEqual(LIMIT);
        // The usage of others that a machine knows may be a few seconds old.
        const remaining = async () =>
          (await other.decide(name, { limit: LIMIT, cost: 0 })).remaining;
        await expect.poll(remaining).toBe(LIMIT - counter.current!);
      }
      expect(deniedBatches).toBeGreaterThan(0);
    },
  );

  test('explain what the other has counted, as an estimate', async () => {
    const [one, other] = await open(true);
    await one.decide('a', { limit: 100, cost: 30 });
    await other.decide('a', { limit: 100, cost: 20 });
    for (const [engine, cost, allowed] of [
      [one, 50, true],
      [other, 51, false],
    ] as const) {
      const check = engine.check('a', { limit: 100, cost });
      const { namespace, identity } = check;
      const explained = await engine.engine.explain(namespace, identity, [check], confirm);
      expect(explained).toMatchObject({
        ...{ isExact: false, allowed, counters: [{ current: 50 }] },
        predictions: [{ allowed, left: 50, cause: allowed ? 'within_limit' : 'limit_reached' }],
      });
    }
    expect((await other.decide('a', { limit: 100, cost: 51 })).allowed).toBe(false);
    expect((await other.decide('a', { limit: 100, cost: 50 })).allowed).toBe(true);
  });

  test('refund, reset and inspect what the other has counted', async () => {
    const [one, other] = await open(true);
    const { identity } = one.check('a');
    const selector = { durationsMs: undefined, rule: undefined };
    const { reset } = await one.decide('a', { limit: 100, cost: 30 });
    await other.decide('a', { limit: 100, cost: 20 });
    const [counter] = await other.engine.inspect(identity, selector, confirm);
    expect(counter.current).toBe(50);
    const { durationMs } = one.check('a');
    const window = reset / durationMs - 1;
    expect(await other.engine.refund(identity, RULE.fixed, durationMs, window, 40, confirm)).toBe(
      40,
    );
    expect(await one.decide('a', { limit: 100, cost: 91 })).toMatchObject({ allowed: false });
    // Redis tells the other machines, whose denials would be false: a moment later.
    const isAllowed = async (engine: TestEngine, cost: number) => {
      return (await engine.decide('a', { limit: 100, cost })).allowed;
    };
    await expect.poll(() => isAllowed(one, 90)).toBe(true);
    expect(await other.decide('a', { limit: 100 })).toMatchObject({ allowed: false });
    expect(await other.engine.reset(identity, selector, confirm)).toBe(1);
    await expect.poll(() => isAllowed(one, 60)).toBe(true);
    expect(await other.decide('a', { limit: 100, cost: 41 })).toMatchObject({ allowed: false });
    expect(await other.decide('a', { limit: 100, cost: 40 })).toMatchObject({ allowed: true });
  });

  test.each([true, false])(
    'a denied batch with a bucket under two limits leaves it no fuller (leases: %s)',
    async (leases) => {
      const [one, other] = await open(leases);
      const use = { rule: RULE.gcra, durationMs: 3_600_000 };
      const { allowed } = await one.decide('a', { ...use, limit: 1_000, cost: 50 });
      const terms = [300, 40, 40].map((limit) => ({ ...use, limit, cost: limit / 20 }));
      const denied = other.check('b', { limit: 1, cost: 2 });
      const batch = await other.decideBatch([...terms.map((of) => other.check('a', of)), denied]);
      expect([allowed, batch.allowed]).toEqual([true, false]);
      const isFree = async (cost: number) => {
        return (await one.decide('a', { ...use, limit: 1_000, cost })).allowed;
      };
      // Of 1 000 tokens 50 are missing; a second brings less than one back.
      await expect.poll(() => isFree(945)).toBe(true);
      expect(await isFree(10)).toBe(false);
    },
  );

  test.each([true, false])(
    'checks of a batch are decided in their order, whatever their limits (leases: %s)',
    async (leases) => {
      const [one] = await open(leases);
      await one.decide('a', { limit: 1_000, cost: 2 });
      // The lease of the first check serves the limit of 1 000, but not that of 7.
      const terms = [
        { limit: 7, cost: 3 },
        { limit: 1_000, cost: 6 },
      ];
      const batch = await one.decideBatch(terms.map((of) => one.check('a', of)));
      expect(batch.allowed).toBe(true);
      expect(batch.decisions.map(({ remaining }) => remaining)).toEqual([2, 989]);
    },
  );
});
