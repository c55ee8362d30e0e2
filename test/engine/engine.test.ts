/** The common guarantees of all engines, through the engine interface, in one process. */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Check } from '../../src/core/check.ts';
import { AMOUNT_MAX, CHECK_DEADLINE_MS, CHECK_QUEUE_ENTRIES } from '../../src/core/constants.ts';
import { RULE } from '../../src/core/window-rules.ts';
import type { CounterState } from '../../src/engine/engine.ts';
import { ACCEPTOR_STAT } from '../../src/shared-memory/stats.ts';
import { describeEngines, type EngineMode } from '../support/engine-modes.ts';
import { batchOf, DURATION_MS, skipMonotonicTime, TestEngine } from '../support/engines.ts';
import { type RedisServer, startRedis } from '../support/programs/redis.ts';

const confirm = () => {};
/** The default, 1 s, may pass on a busy machine. */
const POLL = { timeout: 30_000 };

/** All counters of an identity. */
const ALL = { durationsMs: undefined, rule: undefined };

describeEngines('an engine that decides %s', (mode) => engineCases(mode));
describeEngines('an engine that decides %s without leases', (mode) => engineCases(mode, false), [
  'redis',
]);

function engineCases(mode: EngineMode, leases = true): void {
  const hasQueuedDeductions = mode === 'in-place';
  let redis: RedisServer | undefined;
  beforeAll(async () => {
    if (mode === 'redis') redis = await startRedis();
  });
  afterAll(async () => {
    await redis?.close();
  });
  /** The engine of the running test. */
  let engine: TestEngine;
  const open = async (policy?: 'deny' | 'allow') => {
    engine = await TestEngine.open(
      mode === 'redis' ? { redis: redis!, leases } : mode,
      1_024,
      policy,
    );
  };
  beforeEach(() => open());
  afterEach(() => {
    engine.close();
    vi.restoreAllMocks();
  });

  const remaining = async (identifier: string, terms = {}) => {
    return (await engine.decide(identifier, { cost: 0, ...terms })).remaining;
  };
  const inspect = async (identifier: string, durationsMs?: number[]) => {
    const { identity } = engine.check(identifier);
    return await engine.engine.inspect(identity, { durationsMs, rule: undefined }, confirm);
  };

  test('decides checks, and counts those that it allows', async () => {
    expect(await engine.decide('a', { cost: 4 })).toMatchObject({ allowed: true, remaining: 6 });
    expect(await engine.decide('a', { cost: 7 })).toMatchObject({ allowed: false, remaining: 6 });
    const { reset, ...rest } = await engine.decide('a', { cost: 6 });
    expect(rest).toMatchObject({ allowed: true, remaining: 0 });
    expect(reset % DURATION_MS).toBe(0);
    expect(await remaining('b')).toBe(10);
    expect(await remaining('a', { durationMs: DURATION_MS - 1 })).toBe(10);
  });

  test('completes a later decision with the context and parameters of its own check', async () => {
    const limits: number[] = [];
    const completion = {
      complete: (context: number, _startedMs: number, check: { limit: number }) => {
        expect(check.limit).toBe(context);
        limits.push(context);
      },
      fail: (_context: number, error: unknown) => {
        throw error;
      },
    };
    const check = engine.check('a');
    for (const limit of [1, 2, 3]) {
      // Like a transport, reuse one object for all requests.
      check.limit = limit;
      const startedMs = engine.clock.monotonicMs();
      const decision = engine.engine.decide(check, startedMs, limit, completion);
      if (decision !== undefined) limits.push(limit);
    }
    engine.runWorker();
    await expect.poll(() => limits, POLL).toEqual([1, 2, 3]);
    expect(await remaining('a', { limit: 3 })).toBe(0);
  });

  test('decides an asynchronous check by its counter, and counts it once', async () => {
    const isAsync = true;
    expect(await engine.decide('a', { cost: 4, isAsync })).toMatchObject({ remaining: 6 });
    expect(await engine.decide('a', { cost: 0, isAsync })).toMatchObject({ allowed: true });
    engine.runWorker();
    expect(await engine.decide('a', { cost: 7, isAsync })).toMatchObject({
      allowed: false,
      remaining: 6,
    });
    engine.runWorker();
    expect(await remaining('a')).toBe(6);
  });

  test.runIf(mode === 'in-place')(
    'counts an asynchronous check of the end of a window in that window',
    async () => {
      const { reset } = await engine.decide('a', { cost: 1 });
      const completion = { complete: () => {}, fail: () => {} };
      const check = engine.check('a', { cost: 4, isAsync: true });
      engine.engine.decide(check, engine.clock.monotonicMs(), undefined, completion);
      await engine.moveClockTo(reset + 10);
      expect(engine.runWorker()).toBe(1);
      expect(await remaining('a')).toBe(10);
      const [counter] = await inspect('a');
      expect(counter).toMatchObject({ windowStart: reset - DURATION_MS, current: 5 });
    },
  );

  // The redis engine has cases of its own: its table evicts what Redis knows, and its queue is
  // decided without Redis.
  const memoryTest = test.skipIf(mode === 'redis');

  memoryTest('decides checks in place when the queue is full', async () => {
    let later = 0;
    const completion = { complete: () => later++, fail: () => {} };
    const check = engine.check('a', { limit: AMOUNT_MAX, isAsync: hasQueuedDeductions });
    for (let i = 0; i <= CHECK_QUEUE_ENTRIES; i++) {
      engine.engine.decide(check, engine.clock.monotonicMs(), undefined, completion);
    }
    expect(engine.count(ACCEPTOR_STAT.queueFull)).toBe(1);
    expect(engine.runWorker()).toBe(CHECK_QUEUE_ENTRIES);
    if (mode === 'worker') await expect.poll(() => later, POLL).toBe(CHECK_QUEUE_ENTRIES);
    const used = CHECK_QUEUE_ENTRIES + 1;
    expect(await remaining('a', { limit: AMOUNT_MAX })).toBe(AMOUNT_MAX - used);
  });

  describe('of a batch', () => {
    test('counts all checks, or none', async () => {
      const both = [engine.check('a', { cost: 4 }), engine.check('b', { cost: 6 })];
      const allowed = await engine.decideBatch(both);
      expect(allowed).toMatchObject({ allowed: true, decisions: [{ remaining: 6 }, {}] });
      const denied = await engine.decideBatch(both);
      expect(denied.allowed).toBe(false);
      expect(denied.decisions.map((one) => one.allowed)).toEqual([true, false]);
      expect([await remaining('a'), await remaining('b')]).toEqual([6, 4]);
    });

    test('decides each check after the costs of the earlier ones', async () => {
      const checks = [4, 4, 4].map((cost) => engine.check('a', { cost }));
      expect(await engine.decideBatch(checks)).toMatchObject({ allowed: false });
      expect(await engine.decideBatch(checks.slice(1))).toMatchObject({ allowed: true });
      expect(await remaining('a')).toBe(2);
    });
  });

  describe('of independent checks', () => {
    test('counts those that are allowed, and no other', async () => {
      const checks = [4, 7, 6].map((cost) => engine.check('a', { cost }));
      const { allowed, decisions } = await engine.decideEach(checks, false);
      expect(allowed).toBe(false);
      expect(decisions.map((one) => [one.allowed, one.remaining])).toEqual([
        [true, 6],
        [false, 6],
        [true, 0],
      ]);
      expect(await engine.decideEach([engine.check('b')], false)).toMatchObject({ allowed: true });
    });

    test.each(['fixed', 'sliding'] as const)(
      'counts denied costs if the caller sets that option, %s',
      async (name) => {
        const rule = RULE[name];
        const checks = [4, 7, 1].map((cost) => engine.check('a', { cost, rule }));
        const { decisions } = await engine.decideEach(checks, true);
        expect(decisions.map((one) => [one.allowed, one.remaining])).toEqual([
          [true, 6],
          [false, name === 'fixed' ? 6 : 0],
          [false, 0],
        ]);
        // This includes a single cost above the limit, for which a counter is inserted.
        await engine.decideEach([engine.check('b', { cost: 11, rule })], true);
        expect((await inspect('a'))[0].current).toBe(12);
        expect((await inspect('b'))[0].current).toBe(11);
        expect((await engine.decide('b', { rule })).allowed).toBe(false);
      },
    );

    test('counts denied costs of GCRA for about a duration at most, and none of a limit of 0', async () => {
      const terms = { rule: RULE.gcra, cost: 10 };
      const deny = async (cost: number) => {
        const { decisions } = await engine.decideEach(
          [engine.check('a', { ...terms, cost })],
          true,
        );
        expect(decisions[0]).toMatchObject({ allowed: false, remaining: 0 });
        return decisions[0].reset;
      };
      await engine.decide('a', terms);
      const first = await deny(1);
      expect(await deny(1)).toBeGreaterThan(first);
      for (let i = 0; i < 5; i++) await deny(AMOUNT_MAX);
      const [{ fullAt = 0 }] = await inspect('a');
      expect(fullAt - engine.clock.nowMs()).toBeLessThanOrEqual(3 * DURATION_MS);
      await engine.decideEach([engine.check('b', { ...terms, limit: 0 })], true);
      expect(await inspect('b')).toEqual([]);
      expect((await engine.decide('b', terms)).allowed).toBe(true);
    });

    test('carries a denied cost into the next sliding window, as an allowed one', async () => {
      const terms = { rule: RULE.sliding, limit: 1_000 };
      const { decisions } = await engine.decideEach(
        [engine.check('a', { ...terms, cost: 2_000 })],
        true,
      );
      await engine.moveClockTo(decisions[0].reset + 10);
      const [counter] = await inspect('a');
      expect(counter.usage.fixed?.used).toBe(0);
      expect(counter.usage.sliding?.used).toBeGreaterThan(0);
    });
  });

  test('a refund returns no more than the window used', async () => {
    const { reset } = await engine.decide('a', { cost: 3 });
    const window = reset / DURATION_MS - 1;
    const refund = async (cost: number, of = window) => {
      const { identity } = engine.check('a');
      return await engine.engine.refund(identity, RULE.fixed, DURATION_MS, of, cost, confirm);
    };
    expect(await refund(2)).toBe(2);
    expect(await remaining('a')).toBe(9);
    expect(await refund(2)).toBe(1);
    expect(await refund(2)).toBe(0);
    expect(await refund(2, window - 1)).toBe(0);
    expect(engine.count(ACCEPTOR_STAT.refundedTokens)).toBe(3);
  });

  test('a reset removes the counters of the given durations, or of all', async () => {
    const durations = [DURATION_MS, DURATION_MS - 1, DURATION_MS - 2];
    for (const durationMs of durations) await engine.decide('a', { durationMs });
    await engine.decide('b');
    const { identity } = engine.check('a');
    const reset = async (durationsMs?: number[]) => {
      return await engine.engine.reset(identity, { durationsMs, rule: undefined }, confirm);
    };
    expect(await reset([DURATION_MS, 5_000])).toBe(1);
    expect(await remaining('a')).toBe(10);
    expect(await reset()).toBe(2);
    expect(await reset()).toBe(0);
    expect(await remaining('b')).toBe(9);
    expect(engine.count(ACCEPTOR_STAT.countersReset)).toBe(3);
  });

  describe('an inspection', () => {
    test('returns the cells and the usage by each rule, and changes nothing', async () => {
      const { reset } = await engine.decide('a', { cost: 3, limit: 5 });
      await engine.decide('a', { cost: 4, limit: 6 });
      await engine.decide('a', { cost: 2, durationMs: 60_000, limit: 7 });
      const usage = { used: 3, remaining: 2, reset };
      const state: CounterState = {
        ...{ durationMs: DURATION_MS, limit: 5, windowStart: reset - DURATION_MS },
        ...{ current: 3, previous: 0, usage: { fixed: usage, sliding: usage } },
      };
      for (let i = 0; i < 3; i++) {
        expect(await inspect('a', [DURATION_MS])).toEqual([state]);
        const all = await inspect('a');
        expect(all.map(({ durationMs, limit }) => [durationMs, limit])).toEqual([
          [60_000, 7],
          [DURATION_MS, 5],
        ]);
        expect(all[1]).toEqual(state);
      }
      expect(await remaining('a', { limit: 5 })).toBe(2);
    });

    test('finds no counter of an unknown identity, and inserts none', async () => {
      expect(await inspect('unknown')).toEqual([]);
      expect(await inspect('unknown', [DURATION_MS])).toEqual([]);
      const { identity } = engine.check('unknown');
      expect(await engine.engine.reset(identity, ALL, confirm)).toBe(0);
    });

    test('returns usage above the limit unchanged, and 0 remaining tokens', async () => {
      await engine.decideEach([engine.check('a', { cost: AMOUNT_MAX })], true);
      const [{ current, usage }] = await inspect('a');
      expect([current, usage.fixed?.used, usage.fixed?.remaining]).toEqual([
        AMOUNT_MAX,
        AMOUNT_MAX,
        0,
      ]);
    });
  });

  describe('an explanation', () => {
    const explain = async (...checks: Check[]) => {
      const [{ namespace, identity }] = checks;
      return await engine.engine.explain(namespace, identity, batchOf(checks), confirm);
    };

    test.each(Object.entries(RULE))(
      'predicts the next check by the %s rule, and changes nothing',
      async (_name, rule) => {
        await engine.decide('a', { rule, cost: 4 });
        for (const [cost, allowed, cause] of [
          [3, true, 'within_limit'],
          [4, false, 'limit_reached'],
          [11, false, 'cost_above_limit'],
          [0, true, 'within_limit'],
        ] as const) {
          const explained = await explain(engine.check('a', { rule, cost }));
          const again = await explain(engine.check('a', { rule, cost }));
          expect({ ...again, nowMs: 0 }).toEqual({ ...explained, nowMs: 0 });
          const decision = await engine.decide('a', { rule, cost });
          const { remaining, reset } = decision;
          expect(explained.predictions).toMatchObject([{ allowed, remaining, reset, cause }]);
          expect([explained.allowed, decision.allowed]).toEqual([allowed, allowed]);
        }
        expect(await remaining('a', { rule })).toBe(3);
      },
    );

    test('predicts several windows as one batch, beside all counters', async () => {
      const windows = () => [
        engine.check('a', { cost: 4 }),
        engine.check('a', { cost: 4, limit: 6, durationMs: DURATION_MS - 1 }),
      ];
      for (const allowed of [true, false]) {
        const explained = await explain(...windows());
        const decided = await engine.decideBatch(windows());
        expect([explained.allowed, decided.allowed]).toEqual([allowed, allowed]);
        expect(explained.predictions).toMatchObject(
          decided.decisions.map(({ allowed, remaining, reset }) => ({ allowed, remaining, reset })),
        );
      }
      const { counters } = await explain(...windows());
      expect(counters).toEqual(await inspect('a'));
      expect(counters.map(({ durationMs }) => durationMs)).toEqual([DURATION_MS - 1, DURATION_MS]);
    });

    test('shows the counters where there is no check to predict', async () => {
      await engine.decide('a', { cost: 4 });
      const { namespace, identity } = engine.check('a');
      const explained = await engine.engine.explain(namespace, identity, batchOf([]), confirm);
      expect(explained).toMatchObject({ counters: [{ current: 4 }], predictions: [] });
    });
  });

  describe('with deferred work in the queue', () => {
    const defer = (identifier: string) => {
      const terms = { cost: 3, isAsync: hasQueuedDeductions };
      const check = engine.check(identifier, terms);
      const completion = { complete: () => {}, fail: () => {} };
      engine.engine.decide(check, engine.clock.monotonicMs(), undefined, completion);
    };

    test('corrects, inspects and explains counters after that work', async () => {
      for (const identifier of ['a', 'b', 'c', 'd']) defer(identifier);
      const reset = (Math.floor(engine.clock.nowMs() / DURATION_MS) + 1) * DURATION_MS;
      const window = reset / DURATION_MS - 1;
      const d = engine.check('d');
      const [a, b, c] = ['a', 'b', 'c'].map((identifier) => engine.check(identifier).identity);
      let confirmed = 0;
      const count = () => confirmed++;
      const results = Promise.all([
        engine.engine.refund(a, RULE.fixed, DURATION_MS, window, 2, count),
        engine.engine.reset(b, ALL, count),
        engine.engine.inspect(c, ALL, count),
        engine.engine.explain(d.namespace, d.identity, batchOf([d]), count),
      ]);
      expect(confirmed).toBe(0);
      engine.runWorker();
      const [refunded, cleared, [counter], { predictions }] = await results;
      expect([confirmed, refunded, cleared, counter.current]).toEqual([4, 2, 1, 3]);
      expect(predictions).toMatchObject([{ allowed: true, remaining: 6 }]);
    });

    test('does nothing for a call whose confirmation was withdrawn', async () => {
      defer('a');
      const { identity } = engine.check('a');
      const cleared = engine.engine.reset(identity, ALL, () => {
        throw new Error('revoked');
      });
      engine.runWorker();
      await expect(cleared).rejects.toThrow('revoked');
      expect(await remaining('a')).toBe(7);
    });

    test('gives up after the deadline, and changes nothing', async () => {
      defer('a');
      const { identity } = engine.check('a');
      const cleared = Promise.resolve(engine.engine.reset(identity, ALL, confirm));
      skipMonotonicTime(CHECK_DEADLINE_MS);
      await expect(cleared).rejects.toMatchObject({
        code: 'SERVICE_UNAVAILABLE',
        message:
          `a shard worker did not finish earlier checks within ${CHECK_DEADLINE_MS} ms;` +
          ' nothing was changed',
      });
    });
  });

  memoryTest.each(['deny', 'allow'] as const)(
    'with a full table answers as the policy says: %s',
    async (policy) => {
      engine.close();
      await open(policy);
      const isFull = () => engine.count(ACCEPTOR_STAT.fullTableDecisions) > 0;
      // Counters that have denied a check are evicted last, and not for one that has not.
      for (let i = 0; i < 200_000 && !isFull(); i++) {
        const identifier = `id_${i}`;
        await engine.decideEach(
          [engine.check(identifier, { limit: 1 }), engine.check(identifier, { limit: 1 })],
          false,
        );
      }
      expect(isFull()).toBe(true);
      const full = engine.count(ACCEPTOR_STAT.fullTableDecisions);
      let decided = 0;
      for (let i = 0; i < 500; i++) {
        const before = engine.count(ACCEPTOR_STAT.fullTableDecisions);
        const { decisions } = await engine.decideEach([engine.check(`new_${i}`)], true);
        if (engine.count(ACCEPTOR_STAT.fullTableDecisions) === before) continue;
        decided++;
        expect(decisions[0].allowed).toBe(policy === 'allow');
        expect(await inspect(`new_${i}`)).toEqual([]);
      }
      expect(decided).toBeGreaterThan(0);
      expect(engine.count(ACCEPTOR_STAT.fullTableDecisions)).toBe(full + decided);
    },
  );
}
