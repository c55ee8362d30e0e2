/** Reservations and leases of machines that share a Redis. */

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { ENDED_HOLD_MS } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import type { Lease, Reservation } from '../../../src/engine/hold-engine.ts';
import { HOLD_KIND, type HoldId } from '../../../src/engine/hold-id.ts';
import { nameOfHold, parseNameOfHold } from '../../../src/engine/redis/scripts/keys.ts';
import { KEPT_HOLD_MS } from '../../../src/engine/redis/scripts/protocol-constants.ts';
import { shardOf } from '../../../src/engine/table/shard.ts';
import { RedisError } from '../../../src/redis/errors.ts';
import { ACCEPTOR_STAT, WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { checkOf } from '../../support/engines.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import {
  identityOf,
  LONG_WINDOW_MS,
  machineGroup,
  moveClock,
  type TestMachine,
} from './redis-machines.ts';
import { restartEmpty } from './use-redis.ts';

const ID = identityOf('shared');
const TTL_MS = 60_000;
const MINUTE_MS = 60_000;

const group = machineGroup({ syncMs: 50 });
let pump: NodeJS.Timeout;

/** The workers of other threads read their queues by themselves. */
beforeEach(() => {
  pump = setInterval(() => {
    for (const { worker } of group.machines) worker.processEntries();
  }, 1);
});
afterEach(() => clearInterval(pump));

type Terms = Partial<Check>;

async function reserve(machine: TestMachine, cost: number, terms: Terms = {}, ttlMs = TTL_MS) {
  const check = checkOf('shared', { limit: 100, durationMs: LONG_WINDOW_MS, cost, ...terms });
  return await machine.engine.holds.reserve([check], machine.clock.monotonicMs(), ttlMs);
}

function idOf({ id }: Reservation | Lease): HoldId {
  if (id === undefined) throw new Error('there is no hold');
  return id;
}

async function acquire(machine: TestMachine, limit: number, ttlMs = TTL_MS): Promise<Lease> {
  const { namespace } = checkOf('shared');
  return await machine.engine.holds.acquire({ namespace, identity: ID, limit, cost: 1, ttlMs });
}

/** The usage that Redis knows after all machines have returned their leases. */
async function used(machine: TestMachine): Promise<number> {
  const all = { durationsMs: undefined, rule: undefined };
  const counters = await machine.engine.inspect(ID, all, () => {});
  return counters[0]?.usage.fixed?.used ?? 0;
}

/** The tokens that a machine shows as left, without a call of Redis if it knows the counter. */
async function remaining(machine: TestMachine): Promise<number> {
  const terms = { limit: 100, durationMs: LONG_WINDOW_MS, cost: 0 };
  return (await machine.decide(ID, terms)).remaining;
}

/** Counts the answers to calls of a script from now on. */
function countCalls(machine: TestMachine, name: string): () => number {
  let calls = 0;
  machine.interceptAnswer = async (script) => {
    if (script === name) calls++;
  };
  return () => calls;
}

const liveHolds = async (machine: TestMachine) => await machine.engine.holds.liveHolds(ID);

describe.skipIf(isRedisMissing)('a reservation', () => {
  test.each([
    ['fixed', RULE.fixed],
    ['sliding', RULE.sliding],
  ])('with %s is committed on another machine, which then has the rest', async (_, rule) => {
    const [one, two] = await group.start(2);
    const reserved = await reserve(one, 90, { rule });
    expect(reserved).toMatchObject({ allowed: true });
    expect((await reserve(two, 20, { rule })).allowed).toBe(false);
    const commit = await two.engine.holds.commit(idOf(reserved), [30]);
    expect(commit).toEqual({ charged: 30, released: 60, isLate: false });
    await expect.poll(async () => (await reserve(two, 70, { rule })).allowed).toBe(true);
    expect((await reserve(one, 1, { rule })).allowed).toBe(false);
  });

  test('with gcra returns what has not refilled', async () => {
    const [one, two] = await group.start(2);
    const terms = { rule: RULE.gcra, durationMs: MINUTE_MS, limit: 60_000 };
    const reserved = await reserve(one, 60_000, terms);
    await moveClock(group.redis, 1_500);
    const commit = await two.engine.holds.commit(idOf(reserved), [10_000]);
    expect(commit?.charged).toBe(60_000 - (commit?.released ?? 0));
    expect(commit?.released).toBeLessThanOrEqual(60_000 - 10_000 - 1_500);
    expect(commit?.released).toBeGreaterThan(60_000 - 10_000 - 10_000);
  });

  test.each([
    ['fixed', RULE.fixed],
    ['gcra', RULE.gcra],
  ])('with %s charges more than it reserved, also beyond the limit', async (_, rule) => {
    const [one, two] = await group.start(2);
    const terms = { rule };
    const reserved = await reserve(one, 50, terms);
    const commit = await two.engine.holds.commit(idOf(reserved), [130]);
    expect(commit).toEqual({ charged: 130, released: 0, isLate: false });
    // Machines that have tokens return them.
    await expect.poll(async () => (await reserve(one, 1, terms)).allowed).toBe(false);
    expect((await reserve(two, 1, terms)).allowed).toBe(false);
  });

  test('is committed once: a repetition gets the same answer on every machine', async () => {
    const [one, two] = await group.start(2);
    const reserved = await reserve(one, 50);
    const first = await two.engine.holds.commit(idOf(reserved), [20]);
    expect(await one.engine.holds.commit(idOf(reserved), [40])).toEqual(first);
    expect(await one.engine.holds.cancel(idOf(reserved))).toBe(30);
    expect(await used(one)).toBe(20);
  });

  test('that Redis has not counted returns nothing, and its commit is counted', async () => {
    const timeouts = { timeoutMs: 20, callTimeoutMs: 2_000 };
    const [one, two] = await group.start(2, { onEngineDown: 'allow', ...timeouts });
    expect((await reserve(two, 50)).allowed).toBe(true);
    let resume = () => {};
    const resumed = new Promise<void>((resolve) => {
      resume = resolve;
    });
    one.interceptAnswer = (script) => (script === 'exchange' ? resumed : Promise.resolve());
    const reserved = await reserve(one, 90);
    expect(reserved.allowed).toBe(true);
    resume();
    expect(await one.engine.holds.commit(idOf(reserved), [20])).toMatchObject({ charged: 20 });
    await expect.poll(() => used(one)).toBe(70);
  });

  test('that was cancelled leaves nothing', async () => {
    const [one] = await group.start(1);
    const reserved = await reserve(one, 100);
    expect(await one.engine.holds.cancel(idOf(reserved))).toBe(100);
    expect(await used(one)).toBe(0);
    expect(await liveHolds(one)).toMatchObject({ count: 0, reservedTokens: 0 });
  });

  test('is taken off what its machine shows as left', async () => {
    const [one] = await group.start(1);
    const reserved = await reserve(one, 60);
    await one.engine.holds.commit(idOf(reserved), [10]);
    await expect.poll(() => remaining(one), { timeout: 300 }).toBe(90);
  });

  test('is not found by another id', async () => {
    const [one] = await group.start(1);
    const id = idOf(await reserve(one, 10));
    const [first, ...secret] = id.secret;
    const { holds } = one.engine;
    const wrong = { ...id, secret: [first ^ 1, ...secret] as unknown as HoldId['secret'] };
    expect(await holds.commit(wrong, [0])).toBeUndefined();
    expect(await holds.namespacesOf(wrong)).toBeUndefined();
    expect(await holds.commit({ ...id, record: 99 }, [0])).toBeUndefined();
    // Its id with the kind of a lease is that of no lease.
    expect(await holds.release({ ...id, kind: HOLD_KIND.lease })).toBeUndefined();
    expect(await used(one)).toBe(10);
  });

  test('shows the namespace of each check', async () => {
    const [one, two] = await group.start(2);
    const checks = ['a', 'b', 'c'].map((name) => checkOf(name, { limit: 10 }));
    const reserved = await one.engine.holds.reserve(checks, one.clock.monotonicMs(), TTL_MS);
    const [first, second] = checks[0].namespace.hashState;
    const expected = checks.map(() => [first, second]);
    expect(await two.engine.holds.namespacesOf(idOf(reserved))).toEqual(expected);
  });

  test('of a list is settled as a whole', async () => {
    const [one, two] = await group.start(2);
    const terms = { limit: 100, durationMs: LONG_WINDOW_MS };
    const checks = [
      checkOf('a', { ...terms, cost: 40 }),
      checkOf('b', { ...terms, cost: 50, rule: RULE.gcra }),
      checkOf('a', { ...terms, cost: 60 }),
    ];
    const reserved = await one.engine.holds.reserve(checks, one.clock.monotonicMs(), TTL_MS);
    expect(reserved.allowed).toBe(true);
    expect(await two.engine.holds.commit(idOf(reserved), [10, 50, 0])).toMatchObject({
      charged: 60,
      released: 90,
    });
    const left = await two.decide(checks[0].identity, { ...terms, cost: 0 });
    expect(left.remaining).toBe(90);
  });

  test('of a list is cancelled in part by a handle: its other checks stay live', async () => {
    const [one, two] = await group.start(2);
    const terms = { limit: 100, durationMs: LONG_WINDOW_MS };
    const checks = [
      checkOf('shared', { ...terms, cost: 40 }),
      checkOf('b', { ...terms, cost: 60 }),
    ];
    const reserved = await one.engine.holds.reserve(checks, one.clock.monotonicMs(), TTL_MS);
    const [{ handle }] = (await liveHolds(two)).listed;
    const ended = { kind: HOLD_KIND.reservation, released: 40 };
    expect(await two.engine.holds.endHold(ID, handle)).toEqual(ended);
    expect(await two.engine.holds.endHold(ID, handle)).toBeUndefined();
    expect(two.control.acceptorStats(0).get(ACCEPTOR_STAT.cancellations)).toBe(1);
    expect(await one.engine.holds.commit(idOf(reserved), [30, 50])).toMatchObject({
      charged: 50,
      released: 50,
    });
  });

  test('of a list that is denied counts nothing', async () => {
    const [one] = await group.start(1);
    const terms = { limit: 100, durationMs: LONG_WINDOW_MS };
    const checks = [checkOf('a', { ...terms, cost: 40 }), checkOf('b', { ...terms, cost: 101 })];
    const reserved = await one.engine.holds.reserve(checks, one.clock.monotonicMs(), TTL_MS);
    expect(reserved).toMatchObject({ allowed: false, id: undefined });
    const left = await one.decide(checks[0].identity, { ...terms, cost: 0 });
    expect(left.remaining).toBe(100);
  });

  test.each([
    ['release', 0],
    ['charge', 80],
  ] as const)('that expired by `%s` counts %d tokens', async (onHoldExpiry, expected) => {
    const [one, two] = await group.start(2, { onHoldExpiry });
    const reserved = await reserve(one, 80, {}, 1_000);
    await moveClock(group.redis, 1_100);
    const count = () => one.count(WORKER_STAT.holdsExpired) + two.count(WORKER_STAT.holdsExpired);
    await expect.poll(count, { timeout: 5_000 }).toBe(1);
    await expect.poll(() => used(two)).toBe(expected);
    const commit = await two.engine.holds.commit(idOf(reserved), [30]);
    expect(commit).toMatchObject({ charged: 30, isLate: true });
    await expect.poll(() => used(one)).toBe(30);
  });

  test('is kept for a day after its expiry, if no machine ends it before', async () => {
    const [one] = await group.start(1);
    const reserved = await reserve(one, 80);
    const name = nameOfHold(HOLD_KIND.reservation, idOf(reserved).secret, 0);
    const kept = [one.keys.hold(0, name), one.keys.holdSums(ID)];
    const keptMs = (key: string) => group.redis.command('PTTL', key);
    for (const key of [...kept, one.keys.holdsOf(ID)]) {
      expect(await keptMs(key)).toBeGreaterThan(KEPT_HOLD_MS);
    }
    await one.engine.holds.cancel(idOf(reserved));
    for (const key of kept) expect(await keptMs(key)).toBeLessThanOrEqual(ENDED_HOLD_MS);
  });

  test.each([
    ['fixed', RULE.fixed, 0],
    ['sliding', RULE.sliding, 90],
  ])('of the window before with %s returns %s', async (_, rule, released) => {
    const [one, two] = await group.start(2);
    const terms = { rule, durationMs: MINUTE_MS };
    const reserved = await reserve(one, 90, terms, 2 * MINUTE_MS);
    await moveClock(group.redis, MINUTE_MS);
    expect(await two.engine.holds.commit(idOf(reserved), [0])).toMatchObject({ released });
    expect((await reserve(two, 99, terms)).allowed).toBe(true);
    expect((await reserve(one, 2, terms)).allowed).toBe(false);
  });

  test('charges the current window, if its own has ended', async () => {
    const [one, two] = await group.start(2);
    const terms = { durationMs: MINUTE_MS };
    const reserved = await reserve(one, 50, terms, 2 * MINUTE_MS);
    await moveClock(group.redis, MINUTE_MS);
    const commit = await two.engine.holds.commit(idOf(reserved), [80]);
    expect(commit).toEqual({ charged: 80, released: 0, isLate: false });
    expect((await reserve(one, 71, terms)).allowed).toBe(false);
    expect((await reserve(two, 70, terms)).allowed).toBe(true);
  });

  test.each(['beginHold', 'endHold'])('is counted once, if %s is repeated', async (name) => {
    const [one, two] = await group.start(2);
    let lost = 0;
    one.interceptAnswer = async (script) => {
      if (script === name && ++lost <= 2) throw new Error('the answer is lost');
    };
    const reserved = await reserve(one, 90);
    const lease = await acquire(one, 1);
    lost = 0;
    expect(await liveHolds(two)).toMatchObject({ count: 2, inUse: 1, reservedTokens: 90 });
    expect(await one.engine.holds.commit(idOf(reserved), [30])).toMatchObject({ charged: 30 });
    lost = 0;
    await one.engine.holds.release(idOf(lease));
    expect(await liveHolds(two)).toMatchObject({ count: 0, inUse: 0, reservedTokens: 0 });
    expect(await used(two)).toBe(30);
  });

  test('of a dead machine is ended by another one', async () => {
    const [one, two] = await group.start(2);
    await reserve(one, 80, {}, 1_000);
    one.close();
    group.machines.shift();
    await moveClock(group.redis, 1_100);
    // The tokens that the dead machine has leased stay deducted.
    await expect.poll(() => used(two), { timeout: 5_000 }).toBeLessThanOrEqual(5);
  });

  test('returns nothing to a counter that was reset meanwhile', async () => {
    const [one, two] = await group.start(2);
    const reserved = await reserve(one, 60);
    await two.engine.reset(ID, { durationsMs: undefined, rule: undefined }, () => {});
    expect((await reserve(two, 30)).allowed).toBe(true);
    expect(await one.engine.holds.commit(idOf(reserved), [0])).toMatchObject({ released: 0 });
    await expect.poll(() => used(one)).toBe(30);
  });

  test('recorded after the second of two resets returns nothing', async () => {
    const [one] = await group.start(1);
    const all = { durationsMs: undefined, rule: undefined };
    await one.engine.reset(ID, all, () => {});
    // As if nearly all of the time had passed for which the first is known.
    const sums = one.keys.holdSums(ID);
    await group.redis.command('PEXPIRE', sums, '1000');
    const before = Number(await group.redis.command('PEXPIRETIME', sums));
    await one.engine.reset(ID, all, () => {});
    expect(Number(await group.redis.command('PEXPIRETIME', sums))).toBeGreaterThan(before);
  });

  test('made after a reset returns its tokens', async () => {
    const [one] = await group.start(1);
    await reserve(one, 10);
    await one.engine.reset(ID, { durationsMs: undefined, rule: undefined }, () => {});
    const reserved = await reserve(one, 60);
    expect(await one.engine.holds.cancel(idOf(reserved))).toBe(60);
  });
});

describe.skipIf(isRedisMissing)('a lease', () => {
  test('of one machine is released on another', async () => {
    const [one, two, three] = await group.start(3);
    const lease = await acquire(one, 2);
    expect(lease).toMatchObject({ granted: true, inUse: 1, limit: 2 });
    expect(await acquire(two, 2)).toMatchObject({ granted: true, inUse: 2 });
    expect(await acquire(three, 2)).toMatchObject({ granted: false, inUse: 2, id: undefined });
    expect(await three.engine.holds.release(idOf(lease))).toBe(1);
    expect(await two.engine.holds.release(idOf(lease))).toBe(0);
    expect(await acquire(three, 2)).toMatchObject({ granted: true, inUse: 2 });
  });

  test('is renewed on another machine, and never after its end', async () => {
    const [one, two] = await group.start(2);
    const lease = await acquire(one, 1, 1_000);
    expect(await two.engine.holds.renew(idOf(lease), TTL_MS)).toMatchObject({ granted: true });
    await moveClock(group.redis, 2_000);
    expect((await acquire(one, 1)).granted).toBe(false);
    expect(await one.engine.holds.release(idOf(lease))).toBe(1);
    expect(await two.engine.holds.renew(idOf(lease), TTL_MS)).toMatchObject({ granted: false });
  });

  test('that has expired is in no sum, before anybody has ended it', async () => {
    const [one, two] = await group.start(2);
    for (let n = 0; n < 5; n++) await acquire(one, 5, 1_000);
    await moveClock(group.redis, 1_000);
    expect(await acquire(two, 5)).toMatchObject({ granted: true, inUse: 1 });
    expect(await liveHolds(one)).toMatchObject({ count: 1, inUse: 1 });
  });

  test('is listed by a handle of its own, the first to expire before the others', async () => {
    const [one, two] = await group.start(2);
    for (const ttlMs of [3_000, 2_000, 4_000]) await acquire(one, 5, ttlMs);
    await reserve(one, 7);
    const { listed, ...sums } = await liveHolds(two);
    expect(sums).toEqual({ count: 4, inUse: 3, reservedTokens: 7 });
    expect(listed.map(({ tokens }) => tokens)).toEqual([1, 1, 1, 7]);
    expect(listed.map(({ expiresAt }) => expiresAt)).toEqual(
      listed.map(({ expiresAt }) => expiresAt).toSorted((a, b) => a - b),
    );
    expect(new Set(listed.map(({ handle }) => handle)).size).toBe(4);
    expect(await two.engine.holds.endLeases(ID)).toBe(3);
    expect(await liveHolds(one)).toMatchObject({ count: 1, inUse: 0, reservedTokens: 7 });
  });

  test('is ended once by its handle, on another machine', async () => {
    const [one, two] = await group.start(2);
    const lease = await acquire(one, 1);
    const [{ handle }] = (await liveHolds(two)).listed;
    const ended = { kind: HOLD_KIND.lease, released: 1 };
    expect(await two.engine.holds.endHold(ID, handle)).toEqual(ended);
    expect(await two.engine.holds.endHold(ID, handle)).toBeUndefined();
    expect(await one.engine.holds.renew(idOf(lease), TTL_MS)).toMatchObject({ granted: false });
    expect(await acquire(two, 1)).toMatchObject({ granted: true, inUse: 1 });
  });

  test('is granted to as many as the limit, whichever machines they ask', async () => {
    const machines = await group.start(3);
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, n) => acquire(machines[n % 3], 20)),
    );
    expect(answers.filter(({ granted }) => granted)).toHaveLength(20);
    expect(await liveHolds(machines[0])).toMatchObject({ count: 20, inUse: 20 });
  });

  test('of many that expire at once leaves the sum 0', async () => {
    const [one] = await group.start(1);
    await Promise.all(Array.from({ length: 500 }, () => acquire(one, 500, 1_000)));
    expect(await liveHolds(one)).toMatchObject({ inUse: 500 });
    await moveClock(group.redis, 1_000);
    expect(await acquire(one, 1)).toMatchObject({ granted: true, inUse: 1 });
    expect(one.count(WORKER_STAT.holdsExpired)).toBe(500);
  });

  test('outlives the memory of Redis, also if another machine renewed it', async () => {
    const [one, two] = await group.start(2);
    const kept = await acquire(one, 2);
    const renewed = await acquire(one, 2, 5_000);
    await two.engine.holds.renew(idOf(renewed), TTL_MS);
    await restartEmpty(group.redis);
    const denied = { granted: false, inUse: 2 };
    await expect
      .poll(() => acquire(two, 2).catch(() => 'down'), { timeout: 10_000 })
      .not.toBe('down');
    await expect.poll(() => acquire(two, 2), { timeout: 10_000 }).toMatchObject(denied);
    expect(await two.engine.holds.release(idOf(kept))).toBe(1);
    expect(await one.engine.holds.renew(idOf(renewed), TTL_MS)).toMatchObject({ granted: true });
  });

  test('does not wait until expired ones of other identities are ended', async () => {
    const [one] = await group.start(1);
    const { namespace } = checkOf('shared');
    const others = Array.from({ length: 500 }, (_, n) => identityOf(`other ${n}`));
    await Promise.all(
      others.map((identity) => {
        return one.engine.holds.acquire({ namespace, identity, limit: 1, cost: 1, ttlMs: 1_000 });
      }),
    );
    const calls = countCalls(one, 'beginHold');
    await moveClock(group.redis, 1_000);
    expect(await acquire(one, 1)).toMatchObject({ granted: true, inUse: 1 });
    expect(calls()).toBe(1);
  });

  test('of many that are ended as a whole is ended in parts', async () => {
    const [one] = await group.start(1);
    await reserve(one, 7);
    await Promise.all(Array.from({ length: 500 }, () => acquire(one, 500)));
    const calls = countCalls(one, 'endHold');
    expect(await one.engine.holds.endLeases(ID)).toBe(500);
    expect(calls()).toBeGreaterThan(2);
    expect(await liveHolds(one)).toMatchObject({ count: 1, inUse: 0, reservedTokens: 7 });
  });

  test('is not granted while Redis is down', async () => {
    const [one] = await group.start(1);
    await group.redis.kill();
    await expect(acquire(one, 1)).rejects.toThrow('Redis');
    await expect(reserve(one, 1)).rejects.toThrow('Redis');
    expect(one.control.acceptorStats(0).get(ACCEPTOR_STAT.reservations)).toBe(0);
    await group.redis.restart();
  });
});

describe.skipIf(isRedisMissing)('the number of holds', () => {
  const keys = async (pattern: string) => (await group.redis.command('KEYS', pattern)) as string[];

  test.each([
    ['deny', false],
    ['allow', true],
  ] as const)('is bounded: `%s` decides those without room', async (fullTablePolicy, granted) => {
    const [one] = await group.start(1, { holds: 3, fullTablePolicy });
    for (let n = 0; n < 3; n++) expect((await acquire(one, 10)).granted).toBe(true);
    expect(await acquire(one, 10)).toMatchObject({ granted, id: undefined, inUse: 3 });
    expect(await reserve(one, 60)).toMatchObject({ allowed: granted, id: undefined });
    expect(await used(one)).toBe(granted ? 60 : 0);
    const full = one.control.acceptorStats(0).get(ACCEPTOR_STAT.fullHoldDecisions);
    expect(full).toBe(2);
  });

  test('is bounded with those that have ended, of which the first are forgotten', async () => {
    const [one] = await group.start(1, { holds: 4 });
    const leases: Lease[] = [];
    for (let n = 0; n < 8; n++) {
      leases.push(await acquire(one, 10));
      await one.engine.holds.release(idOf(leases[n]));
    }
    expect(await keys('weir:{0}:h:*')).toHaveLength(4);
    expect(await one.engine.holds.release(idOf(leases[0]))).toBeUndefined();
    expect(await one.engine.holds.release(idOf(leases[7]))).toBe(0);
  });
});

describe.skipIf(isRedisMissing)('a hold that nobody gets', () => {
  test('is not made by a call that Redis runs after it was given up', async () => {
    const [one] = await group.start(1);
    const late: (() => Promise<unknown>)[] = [];
    const names: string[] = [];
    const { link } = one;
    const call = link.call.bind(link);
    const spy = vi.spyOn(link, 'call').mockImplementation((script, ...rest) => {
      if (script.name !== 'beginHold') return call(script, ...rest);
      late.push(() => call(script, ...rest));
      names.push(String(rest[1][3]));
      return Promise.reject(new RedisError('timeout', 'no answer'));
    });
    await expect(acquire(one, 1)).rejects.toThrow('it may have been done');
    await expect.poll(() => keysOf('weir:{0}:y')).toBe(1);
    for (const run of late) await run();
    spy.mockRestore();
    expect(await liveHolds(one)).toMatchObject({ count: 0, inUse: 0 });
    expect((await acquire(one, 1)).granted).toBe(true);
    const { secret } = parseNameOfHold(names[0]);
    const id = { kind: HOLD_KIND.lease, shard: shardOf(ID), record: 0, secret };
    expect(await one.engine.holds.release(id)).toBeUndefined();
    expect(await one.engine.holds.namespacesOf(id)).toBeUndefined();
  });

  test('is not reported to a Redis that has lost its memory', async () => {
    const [one] = await group.start(1, { holds: 1, fullTablePolicy: 'deny' });
    const checks = [checkOf('shared', { limit: 10 }), checkOf('b', { limit: 10 })];
    const reserved = await one.engine.holds.reserve(checks, one.clock.monotonicMs(), TTL_MS);
    expect(reserved).toMatchObject({ allowed: false, id: undefined });
    await restartEmpty(group.redis);
    // A reported hold would leave no room for it.
    await expect
      .poll(() => acquire(one, 1).catch(() => 'down'), { timeout: 10_000 })
      .toMatchObject({ granted: true, inUse: 1 });
  });
});

async function keysOf(key: string): Promise<number> {
  return Number(await group.redis.command('ZCARD', key));
}
