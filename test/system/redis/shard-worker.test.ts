/** What shard workers of several machines guarantee, besides `lease-client.test.ts`. */

import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { CheckParameters } from '../../../src/core/decision.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import type { CounterSelector } from '../../../src/engine/engine.ts';
import {
  decodeListMembers,
  encodeListMembers,
  listMembers,
} from '../../../src/engine/redis/scripts/members.ts';
import { ENTRY_KIND } from '../../../src/engine/worker/layout.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { identityOf, machineGroup, TestMachine } from './redis-machines.ts';

/** The windows are long: no test sees the end of one. */
const DURATION_MS = 2_592_000_000;
const ALL: CounterSelector = { durationsMs: undefined, rule: undefined };
const ID = identityOf('shared');
const REFUND = { kind: 'refund', durationMs: DURATION_MS, limit: 0 } as const;

const group = machineGroup();
const { machines } = group;

/** Decides checks one after the other, on machines in turn. @returns how many were allowed */
async function use(checks: number, terms: Partial<CheckParameters> = {}): Promise<number> {
  let allowed = 0;
  for (let n = 0; n < checks; n++) {
    const machine = machines[n % machines.length];
    const decision = await machine.decide(ID, {
      ...{ limit: 1_000, durationMs: DURATION_MS },
      ...terms,
    });
    if (decision.allowed) allowed++;
  }
  return allowed;
}

describe.skipIf(isRedisMissing)('refunds, resets and inspections', () => {
  test('show what all machines have used together, though they hold leases', async () => {
    const [first] = await group.start(3);
    expect(await use(150)).toBe(150);
    expect(machines.some((machine) => machine.count(WORKER_STAT.leasesGranted) > 0)).toBe(true);
    const inspected = await first.request(ID, { kind: 'inspect', selector: ALL });
    expect(inspected).toMatchObject({
      kind: 'inspect',
      counters: [{ isGcra: false, durationMs: DURATION_MS, current: 150, limit: 1_000, lent: 0 }],
    });
  });

  test('refund no more than all machines have used', async () => {
    const [first, second] = await group.start(2);
    expect(await use(100)).toBe(100);
    const { reset } = await first.decide(ID, { limit: 1_000, durationMs: DURATION_MS, cost: 0 });
    const window = reset / DURATION_MS - 1;
    const refund = { ...REFUND, rule: RULE.fixed, window } as const;
    expect(await second.request(ID, { ...refund, cost: 30 })).toEqual({
      kind: 'refund',
      refunded: 30,
    });
    expect(await first.request(ID, { ...refund, cost: 500 })).toEqual({
      kind: 'refund',
      refunded: 70,
    });
    expect(await first.request(ID, { ...refund, window: window - 1, cost: 1 })).toEqual({
      kind: 'refund',
      refunded: 0,
    });
    expect(await use(1_100)).toBe(1_000);
  });

  test('reset a counter for all machines', async () => {
    const [first] = await group.start(3);
    expect(await use(1_100)).toBe(1_000);
    const action = { kind: 'reset', selector: ALL } as const;
    expect(await first.request(ID, action)).toEqual({ kind: 'reset', cleared: 1 });
    await delay(50);
    expect(await use(1_100)).toBe(1_000);
    const { remaining } = await first.decide(ID, {
      ...{ limit: 1_500, durationMs: DURATION_MS },
      cost: 0,
    });
    expect(remaining).toBe(500);
  });
});

describe.skipIf(isRedisMissing)('denials that a machine decides by the use it knows', () => {
  const terms = { limit: 100, durationMs: DURATION_MS };
  /** Below the time for which such denials last without news. */
  const soon = { timeout: 4_000 };

  /** Checks until a machine denies one without Redis. */
  const deniesAlone = async (machine: TestMachine) => {
    await machine.decide(ID, terms);
    const requests = machine.count(WORKER_STAT.tokenRequests);
    const { allowed } = await machine.decide(ID, terms);
    return !allowed && machine.count(WORKER_STAT.tokenRequests) === requests;
  };

  test('end when another machine refunds tokens, again and again', async () => {
    const [first, second] = await group.start(2);
    expect(await use(120, terms)).toBe(100);
    const { reset } = await first.decide(ID, { ...terms, cost: 0 });
    const window = reset / DURATION_MS - 1;
    const refund = { ...REFUND, rule: RULE.fixed, window } as const;
    for (const cost of [1, 2, 30]) {
      await expect.poll(() => deniesAlone(first)).toBe(true);
      const result = await second.request(ID, { ...refund, cost });
      expect(result).toEqual({ kind: 'refund', refunded: cost });
      const isAllowed = async () => (await first.decide(ID, { ...terms, cost })).allowed;
      await expect.poll(isAllowed, soon).toBe(true);
    }
  });

  test('of larger costs end too, where a smaller one was allowed last', async () => {
    const [first, second] = await group.start(2);
    expect((await second.decide(ID, { ...terms, cost: 60 })).allowed).toBe(true);
    await second.request(ID, { kind: 'inspect', selector: ALL });
    expect((await first.decide(ID, { ...terms, cost: 20 })).allowed).toBe(true);
    const decision = await first.decide(ID, { ...terms, cost: 30 });
    expect(decision.allowed).toBe(false);
    const window = decision.reset / DURATION_MS - 1;
    const refund = { ...REFUND, rule: RULE.fixed, window } as const;
    expect(await second.request(ID, { ...refund, cost: 10 })).toMatchObject({ refunded: 10 });
    const isAllowed = async () => (await first.decide(ID, { ...terms, cost: 30 })).allowed;
    await expect.poll(isAllowed, soon).toBe(true);
  });

  test('end when a machine that was written off returns its lease', async () => {
    const [holder, other] = await group.start(2);
    // As if it were suspended: messages to it wait.
    const late: (() => void)[] = [];
    const receive = holder.worker.receive.bind(holder.worker);
    holder.worker.receive = (...message) => late.push(() => receive(...message));
    expect((await holder.decide(ID, terms)).allowed).toBe(true);
    const lent = holder.count(WORKER_STAT.leasedTokens);
    expect(lent).toBeGreaterThan(0);
    expect((await other.decide(ID, { ...terms, cost: 99 - lent })).allowed).toBe(true);
    await expect.poll(() => deniesAlone(other)).toBe(true);
    expect(other.count(WORKER_STAT.leasesWrittenOff)).toBe(1);
    for (const receiveNow of late.splice(0)) receiveNow();
    const isAllowed = async () => (await other.decide(ID, { ...terms, cost: lent })).allowed;
    await expect.poll(isAllowed, soon).toBe(true);
  });

  test('end when another machine resets the counter', async () => {
    const [first, second] = await group.start(2);
    expect((await second.decide(ID, { ...terms, cost: 100 })).allowed).toBe(true);
    await second.request(ID, { kind: 'inspect', selector: ALL });
    // It has used nothing itself.
    await expect.poll(() => deniesAlone(first)).toBe(true);
    const action = { kind: 'reset', selector: ALL } as const;
    expect(await second.request(ID, action)).toEqual({ kind: 'reset', cleared: 1 });
    const isAllowed = async () => (await first.decide(ID, { ...terms, cost: 100 })).allowed;
    await expect.poll(isAllowed, soon).toBe(true);
  });
});

describe.skipIf(isRedisMissing)('a GCRA bucket', () => {
  test('is one for all machines', async () => {
    await group.start(3);
    const terms = { limit: 100, rule: RULE.gcra, durationMs: DURATION_MS };
    // On a busy computer an answer may come too late: such a check is counted, and denied here.
    const lost = () => machines.reduce((sum, { withdrawn }) => sum + withdrawn, 0);
    const allowed = await use(150, terms);
    expect(allowed).toBeLessThanOrEqual(100);
    expect(allowed).toBeGreaterThanOrEqual(100 - lost());
    const refund = { ...REFUND, rule: RULE.gcra, window: 0 } as const;
    const refunded = await machines[1].request(ID, { ...refund, cost: 10 });
    expect(refunded).toEqual({ kind: 'refund', refunded: 10 });
    const again = await use(20, terms);
    expect(again).toBeLessThanOrEqual(10);
    expect(again).toBeGreaterThanOrEqual(10 - lost());
  });
});

describe.skipIf(isRedisMissing)('a GCRA bucket of a Redis that restarts empty', () => {
  test('is reported by the machines that have used it', async () => {
    await group.start(2);
    const terms = { limit: 100, rule: RULE.gcra, durationMs: DURATION_MS };
    expect(await use(60, terms)).toBeLessThanOrEqual(60);
    await group.redis.kill();
    await group.redis.restart({ isEmpty: true });
    let after = 0;
    const useMore = async () => {
      after += await use(20, terms);
      return after;
    };
    // Nothing is allowed until all machines have reported.
    await expect.poll(useMore).toBeGreaterThan(0);
    for (let n = 0; n < 5; n++) await useMore();
    const lost = machines.reduce((sum, { withdrawn }) => sum + withdrawn, 0);
    expect(after).toBeLessThanOrEqual(40 + lost);
  });
});

describe.skipIf(isRedisMissing)('a sliding window', () => {
  test('allows no more than the limit, also beside checks of fixed windows', async () => {
    await group.start(3);
    const random = seededRandom(3);
    const durationMs = 1_000;
    const limit = 200;
    const allowed = new Map<number, number>();
    const endMs = performance.now() + 4_500;
    const clients = machines.flatMap((machine) =>
      Array.from({ length: 3 }, async () => {
        while (performance.now() < endMs) {
          const rule = random(10) === 0 ? RULE.fixed : RULE.sliding;
          const decision = await machine.decide(ID, { limit, durationMs, rule });
          const window = decision.reset / durationMs - 1;
          if (decision.allowed) allowed.set(window, (allowed.get(window) ?? 0) + 1);
          await delay(random(6));
        }
      }),
    );
    await Promise.all(clients);
    for (const count of allowed.values()) expect(count).toBeLessThanOrEqual(limit);
    expect(allowed.size).toBeGreaterThan(2);
  });
});

describe.skipIf(isRedisMissing)('asynchronous usage', () => {
  test('that is an eighth of what is left is reported before the interval ends', async () => {
    const { url } = group.redis;
    const [first, second] = [0, 1].map(() => new TestMachine(url, { syncMs: 3_600_000 }));
    machines.push(first, second);
    for (const machine of machines) {
      await expect
        .poll(() => {
          machine.worker.probe();
          return machine.state.hasJoined(0);
        })
        .toBe(true);
    }
    const terms = { limit: 90, durationMs: DURATION_MS };
    const decide = (machine: TestMachine, cost: number) => {
      return machine.decide(ID, { ...terms, cost }, ENTRY_KIND.asyncNew);
    };
    const reported = () => second.request(ID, { kind: 'inspect', selector: ALL });
    // 9 of 90 are less than an eighth of the other 81, and 10 are an eighth of 80.
    await decide(first, 9);
    expect(await reported()).toMatchObject({ counters: [] });
    await decide(first, 1);
    await expect.poll(reported).toMatchObject({ counters: [{ current: 10 }] });
    await decide(second, 60);
    await expect.poll(reported).toMatchObject({ counters: [{ current: 70 }] });
    await expect.poll(async () => (await decide(second, 20)).remaining).toBe(0);
  });
});

describe.skipIf(isRedisMissing)('without leases', () => {
  test('every check is a round trip, and decided in the order of its arrival', async () => {
    const [first] = await group.start(2, { leases: false });
    const decisions = await Promise.all(
      Array.from({ length: 120 }, () => first.decide(ID, { limit: 100, durationMs: DURATION_MS })),
    );
    expect(decisions.map(({ allowed }) => allowed)).toEqual(
      Array.from({ length: 120 }, (_, n) => n < 100),
    );
    expect(first.count(WORKER_STAT.leasesGranted)).toBe(0);
  });
});

describe.skipIf(isRedisMissing)('a lease', () => {
  test('is recalled for a check of another machine', async () => {
    const [holder, other] = await group.start(2);
    const terms = { limit: 100, durationMs: DURATION_MS };
    // On a busy computer the holder may be too late; only a recall makes the second check pass.
    for (let n = 0, isAllowed = false; !isAllowed; n++) {
      const id = identityOf(`recalled ${n}`);
      const leased = holder.count(WORKER_STAT.leasedTokens);
      expect((await holder.decide(id, terms)).allowed).toBe(true);
      expect(holder.count(WORKER_STAT.leasedTokens)).toBeGreaterThan(leased);
      isAllowed = (await other.decide(id, { ...terms, cost: 99 })).allowed;
      expect((await holder.decide(id, terms)).allowed).toBe(!isAllowed);
    }
    expect(holder.count(WORKER_STAT.leasesRecalled)).toBeGreaterThan(0);
    const returned = holder.count(WORKER_STAT.leasesReturned);
    expect(returned).toBeGreaterThan(0);
    expect(returned).toBeLessThanOrEqual(holder.count(WORKER_STAT.leasesGranted));
    const tokens = holder.count(WORKER_STAT.returnedTokens);
    expect(tokens).toBeGreaterThanOrEqual(returned);
    expect(tokens).toBeLessThanOrEqual(holder.count(WORKER_STAT.leasedTokens));
  });

  test('of a machine that does not answer is written off', async () => {
    const [holder, other] = await group.start(2);
    const terms = { limit: 100, durationMs: DURATION_MS };
    expect((await holder.decide(ID, terms)).allowed).toBe(true);
    const lent = holder.count(WORKER_STAT.leasedTokens);
    expect(lent).toBeGreaterThan(0);
    holder.close();
    machines.shift();
    // At once, because Redis finds nobody on the channel; or after the time that holders have.
    expect((await other.decide(ID, { ...terms, cost: 99 })).allowed).toBe(false);
    expect((await other.decide(ID, { ...terms, cost: 99 - lent })).allowed).toBe(true);
    expect((await other.decide(ID, terms)).allowed).toBe(false);
    expect(other.count(WORKER_STAT.leasesWrittenOff)).toBe(1);
  });

  test('is returned when the machine was suspended', async () => {
    const [holder, other] = await group.start(2);
    const terms = { limit: 100, durationMs: DURATION_MS };
    expect((await holder.decide(ID, terms)).allowed).toBe(true);
    const returned = holder.count(WORKER_STAT.returnedTokens);
    // Only the clock of the system goes on while a machine is suspended.
    holder.systemOffsetMs = 60_000;
    await expect
      .poll(() => holder.count(WORKER_STAT.returnedTokens) - returned)
      .toBe(holder.count(WORKER_STAT.leasedTokens));
    await expect
      .poll(async () => (await other.decide(ID, { ...terms, cost: 99 })).allowed)
      .toBe(true);
    expect((await holder.decide(ID, terms)).allowed).toBe(false);
  });

  test('is returned when the machine stops', async () => {
    const [holder, other] = await group.start(2);
    const terms = { limit: 100, durationMs: DURATION_MS };
    expect((await holder.decide(ID, terms)).allowed).toBe(true);
    expect(await holder.worker.drain()).toBe(0);
    holder.close();
    machines.shift();
    expect((await other.decide(ID, { ...terms, cost: 99 })).allowed).toBe(true);
    expect(other.count(WORKER_STAT.leasesWrittenOff)).toBe(0);
    // Nobody waits for the machine any more.
    const call = encodeListMembers({ keys: other.keys, isAvailable: false }, 0);
    const reply = await other.runner.call(listMembers, call.keys, call.args);
    const silent = decodeListMembers(reply).members.filter(({ silentMs }) => silentMs > 3_000);
    expect(silent.map(({ member }) => member)).toEqual([holder.member]);
    // Its window is long: it is not removed until it has been silent for a day.
    expect(silent[0].silentMs).toBeLessThan(3_600_000);
  });

  test('is missed by nobody but this machine when Redis is gone at its stop', async () => {
    const [holder] = await group.start(1);
    expect((await holder.decide(ID, { limit: 100, durationMs: DURATION_MS })).allowed).toBe(true);
    await group.redis.kill();
    expect(await holder.worker.drain()).toBe(1);
  });

  test('is not lost when tokens are reserved for a batch', async () => {
    const [first, other] = await group.start(2);
    const terms = { limit: 100, durationMs: DURATION_MS };
    const reserved = await first.decide(ID, { ...terms, cost: 40 }, ENTRY_KIND.reserve);
    expect(reserved.allowed).toBe(true);
    expect((await other.decide(ID, { ...terms, cost: 60 })).allowed).toBe(true);
    expect((await other.decide(ID, { ...terms, cost: 1 })).allowed).toBe(false);
    const window = reserved.reset / DURATION_MS - 1;
    first.table(ID).abort(ID, DURATION_MS, window, 40);
    expect((await first.decide(ID, { ...terms, cost: 41 })).allowed).toBe(false);
    expect((await first.decide(ID, { ...terms, cost: 40 })).allowed).toBe(true);
  });
});
