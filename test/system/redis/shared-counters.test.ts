/**
 * Two engines that share counters through a real Redis, as two machines do: single checks, batches
 * and lists of checks on the same counters at the same time.
 */

import { afterEach, describe, expect, test } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { batchOf, TestEngine } from '../../support/engines.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { useRedis } from './use-redis.ts';

const confirm = () => {};
const COUNTERS = 6;
/** A check has any of them. Those with the same limit or a lower one never exceed it together. */
const LIMITS = [50, 100, 300];
const CLIENTS = 8;
const REQUESTS = 60;

describe.skipIf(isRedisMissing)('two machines with one Redis', () => {
  const redis = useRedis();
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
      const allowed: Record<string, number>[] = LIMITS.map(() => ({}));
      const add = (name: string, { limit, cost }: Check) => {
        const of = allowed[LIMITS.indexOf(limit)];
        of[name] = (of[name] ?? 0) + cost;
      };
      let deniedBatches = 0;
      const client = async (seed: number) => {
        const next = seededRandom(seed);
        const engine = seed % 2 === 0 ? one : other;
        for (let i = 0; i < REQUESTS; i++) {
          const names = Array.from({ length: 1 + next(4) }, () => `counter_${next(COUNTERS)}`);
          const checks = names.map((name) => {
            const rule = next(3) === 0 ? RULE.sliding : RULE.fixed;
            return engine.check(name, { limit: LIMITS[next(LIMITS.length)], cost: next(6), rule });
          });
          const kind = next(3);
          if (kind === 0) {
            if ((await engine.decide(names[0], checks[0])).allowed) add(names[0], checks[0]);
          } else if (kind === 1) {
            const { decisions } = await engine.decideEach(checks, false);
            for (const [at, check] of checks.entries()) {
              if (decisions[at].allowed) add(names[at], check);
            }
          } else {
            const batch = await engine.decideBatch(checks);
            expect(batch.allowed).toBe(batch.decisions.every((decision) => decision.allowed));
            if (!batch.allowed) deniedBatches++;
            else for (const [at, check] of checks.entries()) add(names[at], check);
          }
        }
      };
      await Promise.all(Array.from({ length: CLIENTS }, (_, seed) => client(seed + 1)));
      for (let number = 0; number < COUNTERS; number++) {
        const name = `counter_${number}`;
        let used = 0;
        for (const [i, limit] of LIMITS.entries()) {
          used += allowed[i][name] ?? 0;
          expect(used).toBeLessThanOrEqual(limit);
        }
        const selector = { durationsMs: undefined, rule: undefined };
        const [counter] = await one.engine.inspect(one.check(name).identity, selector, confirm);
        expect([name, counter.current]).toEqual([name, used]);
        // The usage of others that a machine knows may be a few seconds old.
        const remaining = async () => {
          return (await other.decide(name, { limit: 1_000, cost: 0 })).remaining;
        };
        await expect.poll(remaining).toBe(1_000 - used);
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
      const explained = await engine.engine.explain(namespace, identity, batchOf([check]), confirm);
      expect(explained).toMatchObject({
        ...{ isExact: false, allowed, counters: [{ current: 50 }] },
        predictions: [{ allowed, left: 50, cause: allowed ? 'within_limit' : 'limit_reached' }],
      });
    }
    expect((await other.decide('a', { limit: 100, cost: 51 })).allowed).toBe(false);
    expect((await other.decide('a', { limit: 100, cost: 50 })).allowed).toBe(true);
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
