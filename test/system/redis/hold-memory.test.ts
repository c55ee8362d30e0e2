/** Holds while Redis has no memory left (`maxmemory`, without eviction). */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import type { HoldId } from '../../../src/engine/hold-id.ts';
import { ACCEPTOR_STAT } from '../../../src/shared-memory/stats.ts';
import { checkOf } from '../../support/engines.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { LONG_WINDOW_MS, machineGroup, type TestMachine } from './redis-machines.ts';

const TTL_MS = 60_000;
const SHORT_TTL_MS = 500;
const { namespace, identity } = checkOf('full');
const confirm = () => {};

const group = machineGroup({ syncMs: 50 });
let pump: NodeJS.Timeout;

/** The workers of other threads read their queues by themselves. */
beforeEach(() => {
  pump = setInterval(() => {
    for (const { worker } of group.machines) worker.processEntries();
  }, 1);
});
afterEach(async () => {
  clearInterval(pump);
  if (!isRedisMissing) await setMaxmemory('0');
});

const setMaxmemory = (bytes: string) => group.redis.command('CONFIG', 'SET', 'maxmemory', bytes);

function reserve(
  { engine, clock }: TestMachine,
  cost: number,
  ttlMs = TTL_MS,
  rule: RuleNumber = RULE.fixed,
) {
  const check = checkOf('full', { limit: 100, durationMs: LONG_WINDOW_MS, cost, rule });
  return engine.holds.reserve([check], clock.monotonicMs(), ttlMs);
}

function acquire({ engine }: TestMachine, limit: number, ttlMs = TTL_MS) {
  return engine.holds.acquire({ namespace, identity, limit, cost: 1, ttlMs });
}

async function used({ engine }: TestMachine, rule: 'fixed' | 'gcra' = 'fixed'): Promise<number> {
  const counters = await engine.inspect(
    identity,
    { durationsMs: undefined, rule: undefined },
    confirm,
  );
  return counters.find(({ usage }) => usage[rule])?.usage[rule]?.used ?? 0;
}

const fullDecisions = ({ control }: TestMachine) => {
  return control.acceptorStats(0).get(ACCEPTOR_STAT.fullHoldDecisions);
};

describe.skipIf(isRedisMissing)('a full Redis', () => {
  test.each(['fixed', 'gcra'] as const)(
    'denies holds with WEIR_ON_FULL=deny, and counts nothing (%s)',
    async (rule) => {
      const [one, two] = await group.start(2, { fullTablePolicy: 'deny' });
      // The counter exists.
      expect((await reserve(one, 10, TTL_MS, RULE[rule])).allowed).toBe(true);
      expect(await acquire(one, 5)).toMatchObject({ granted: true, inUse: 1 });
      await setMaxmemory('1');
      for (const machine of [one, two]) {
        const denied = { allowed: false, id: undefined, expiresAt: 0 };
        expect(await reserve(machine, 10, TTL_MS, RULE[rule])).toMatchObject(denied);
        expect(await acquire(machine, 5)).toMatchObject({
          granted: false,
          id: undefined,
          inUse: 1,
        });
        expect(fullDecisions(machine)).toBe(2);
      }
      await expect.poll(() => used(one, rule)).toBe(10);
      expect(await two.engine.holds.liveHolds(identity)).toMatchObject({
        ...{ count: 2, inUse: 1, reservedTokens: 10 },
      });
      await setMaxmemory('0');
      expect(await acquire(two, 5)).toMatchObject({ granted: true, inUse: 2 });
      expect((await reserve(two, 90, TTL_MS, RULE[rule])).allowed).toBe(true);
    },
  );

  test('allows holds without a record with WEIR_ON_FULL=allow, within their limits', async () => {
    const [one, two] = await group.start(2, { fullTablePolicy: 'allow' });
    await reserve(one, 10);
    await acquire(one, 1);
    await setMaxmemory('1');
    const allowed = { allowed: true, id: undefined, expiresAt: 0 };
    expect(await reserve(one, 20)).toMatchObject(allowed);
    expect(await reserve(two, 30)).toMatchObject(allowed);
    expect(await acquire(two, 2)).toMatchObject({ granted: true, id: undefined, inUse: 1 });
    expect(await acquire(two, 1)).toMatchObject({ granted: false, id: undefined, inUse: 1 });
    expect([fullDecisions(one), fullDecisions(two)]).toEqual([1, 2]);
    // Their tokens stay counted, and the limit holds.
    expect(await used(one)).toBe(60);
    expect((await reserve(two, 41)).allowed).toBe(false);
    expect(await one.engine.holds.liveHolds(identity)).toMatchObject({
      ...{ count: 2, inUse: 1, reservedTokens: 10 },
    });
  });

  test('lets every hold that it has end: by its client, and by its ttl', async () => {
    const [one, two] = await group.start(2);
    const ids: HoldId[] = [];
    for (let i = 0; i < 3; i++) ids.push((await reserve(one, 10)).id!);
    for (let i = 0; i < 2; i++) ids.push((await acquire(one, 9)).id!);
    const [committed, exceeded, cancelled, renewed, released] = ids;
    const { holds } = two.engine;
    await setMaxmemory('1');
    expect(await holds.commit(committed, [4])).toMatchObject({ charged: 4, released: 6 });
    expect(await holds.commit(exceeded, [25])).toMatchObject({ charged: 25, released: 0 });
    expect(await holds.cancel(cancelled)).toBe(10);
    expect(await holds.renew(renewed, SHORT_TTL_MS)).toMatchObject({ granted: true, inUse: 2 });
    expect(await holds.release(released)).toBe(1);
    expect(await used(one)).toBe(29);
    await setMaxmemory('0');
    await reserve(one, 40, SHORT_TTL_MS);
    await acquire(one, 9, SHORT_TTL_MS);
    await setMaxmemory('1');
    await expect.poll(() => used(two)).toBe(29);
    expect(await holds.liveHolds(identity)).toMatchObject({ count: 0, inUse: 0 });
    expect(await holds.commit(committed, [7])).toMatchObject({ charged: 4, released: 6 });
  });
});
