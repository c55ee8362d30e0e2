/** What shard workers of several machines guarantee, besides `lease-client-faults.test.ts`. */

import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { Check } from '../../../src/core/check.ts';
import { REDIS_FAILURES_MAX, SYNC_INTERVAL_MAX_MS } from '../../../src/core/constants.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import type { CounterSelector } from '../../../src/engine/engine.ts';
import { LeaseTable, VERDICT } from '../../../src/engine/redis/lease-table.ts';
import {
  decodeListMembers,
  encodeListMembers,
  forgetMembers,
  listMembers,
} from '../../../src/engine/redis/scripts/members.ts';
import {
  EXPIRE_POLL_MS,
  LIVE_US,
  REPORT_PAUSE_MS,
} from '../../../src/engine/redis/scripts/protocol-constants.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { identityOf, LONG_WINDOW_MS, machineGroup, TestMachine } from './redis-machines.ts';
import { connectMember } from './script-member.ts';
import { restartEmpty } from './use-redis.ts';

const ALL: CounterSelector = { durationsMs: undefined, rule: undefined };
const ID = identityOf('shared');
const TERMS = { limit: 100, durationMs: LONG_WINDOW_MS };

const group = machineGroup();
const { machines } = group;

const decide = (machine: TestMachine, cost = 1, terms: Partial<Check> = {}) => {
  return machine.decide(ID, { ...TERMS, cost, ...terms });
};
const allows = async (machine: TestMachine, cost = 1) => (await decide(machine, cost)).allowed;

/** Refunds tokens of the present window. */
async function refund(machine: TestMachine, cost: number): Promise<void> {
  const window = (await decide(machine, 0)).reset / LONG_WINDOW_MS - 1;
  const of = { rule: RULE.fixed, durationMs: LONG_WINDOW_MS, limit: 0, window } as const;
  const result = await machine.request(ID, { kind: 'refund', ...of, cost });
  expect(result).toEqual({ kind: 'refund', refunded: cost });
}

describe.skipIf(isRedisMissing)('a machine that goes on from a process before it', () => {
  test('has Redis forget that process, again if there was no answer in time', async () => {
    const nothing = { workers: 1, epochs: [''], members: [[]], isComplete: true };
    const predecessor = { ...nothing, processId: 'd'.repeat(16) };
    let calls = 0;
    const options = { timeoutMs: 1_000, hasBreaker: false, predecessor, callTimeoutMs: 200 };
    const machine = new TestMachine(group.redis.url, options);
    machines.push(machine);
    machine.interceptAnswer = async (script) => {
      if (script === forgetMembers.name && ++calls === 1) await new Promise(() => {});
    };
    await expect.poll(() => calls).toBeGreaterThan(1);
  });
});

describe.skipIf(isRedisMissing)('denials that a machine decides by the use it knows', () => {
  /** Checks until a machine denies one without Redis. */
  const waitUntilAlone = async (machine: TestMachine) => {
    const deniesAlone = async () => {
      await decide(machine);
      const requests = machine.count(WORKER_STAT.tokenRequests);
      return !(await allows(machine)) && machine.count(WORKER_STAT.tokenRequests) === requests;
    };
    await expect.poll(deniesAlone).toBe(true);
  };
  /** Below the time for which such denials last without news. */
  const expectAllowedSoon = (machine: TestMachine, cost: number) => {
    return expect.poll(() => allows(machine, cost), { timeout: 4_000 }).toBe(true);
  };

  test('end when another machine refunds tokens, again and again', async () => {
    const [first, second] = await group.start(2);
    for (let n = 0; n < 120; n++) await allows(machines[n % 2]);
    for (const cost of [1, 2, 30]) {
      await waitUntilAlone(first);
      await refund(second, cost);
      await expectAllowedSoon(first, cost);
    }
  });

  test('of larger costs end too, where a smaller one was allowed last', async () => {
    const [first, second] = await group.start(2);
    expect(await allows(second, 60)).toBe(true);
    await second.request(ID, { kind: 'inspect', selector: ALL });
    expect([await allows(first, 20), await allows(first, 30)]).toEqual([true, false]);
    await refund(second, 10);
    await expectAllowedSoon(first, 30);
  });

  test('end when a machine that was written off returns its lease', async () => {
    const [holder, other] = await group.start(2);
    // As if it were suspended: messages to it wait.
    const late: (() => void)[] = [];
    const receive = holder.worker.receive.bind(holder.worker);
    holder.worker.receive = (...message) => late.push(() => receive(...message));
    expect(await allows(holder)).toBe(true);
    const lent = holder.count(WORKER_STAT.leasedTokens);
    expect(lent).toBeGreaterThan(0);
    expect(await allows(other, 99 - lent)).toBe(true);
    await waitUntilAlone(other);
    expect(other.count(WORKER_STAT.leasesWrittenOff)).toBe(1);
    for (const receiveNow of late.splice(0)) receiveNow();
    await expectAllowedSoon(other, lent);
  });

  test('end when another machine resets the counter', async () => {
    const [first, second] = await group.start(2);
    expect(await allows(second, 100)).toBe(true);
    await second.request(ID, { kind: 'inspect', selector: ALL });
    // It has used nothing itself.
    await waitUntilAlone(first);
    const action = { kind: 'reset', selector: ALL } as const;
    expect(await second.request(ID, action)).toEqual({ kind: 'reset', cleared: 1 });
    await expectAllowedSoon(first, 100);
  });
});

describe.skipIf(isRedisMissing)('a sliding window', () => {
  test('allows no more than the limit, also beside checks of fixed windows', async () => {
    await group.start(3);
    const random = seededRandom(3);
    const durationMs = 1_000;
    const limit = 200;
    const allowed = new Map<number, number>();
    const clients = [...machines, ...machines, ...machines].map(async (machine) => {
      while (allowed.size < 4) {
        const rule = random(10) === 0 ? RULE.fixed : RULE.sliding;
        const decision = await machine.decide(ID, { limit, durationMs, rule });
        const window = decision.reset / durationMs - 1;
        if (decision.allowed) allowed.set(window, (allowed.get(window) ?? 0) + 1);
        await delay(random(6));
      }
    });
    await Promise.all(clients);
    for (const count of allowed.values()) expect(count).toBeLessThanOrEqual(limit);
  });
});

describe.skipIf(isRedisMissing)('asynchronous usage', () => {
  test('that is an eighth of what is left is reported before the interval ends', async () => {
    const [first, second] = await group.start(2, { syncMs: 3_600_000 });
    const use = (machine: TestMachine, cost: number) => {
      return machine.decide(ID, { ...TERMS, limit: 90, cost, isAsync: true });
    };
    const reported = () => second.request(ID, { kind: 'inspect', selector: ALL });
    // 9 of 90 are less than an eighth of the other 81, and 10 are an eighth of 80.
    await use(first, 9);
    expect(await reported()).toMatchObject({ counters: [] });
    await use(first, 1);
    await expect.poll(reported).toMatchObject({ counters: [{ current: 10 }] });
    await use(second, 60);
    await expect.poll(reported).toMatchObject({ counters: [{ current: 70 }] });
    await expect.poll(async () => (await use(second, 20)).remaining).toBe(0);
  });
});

describe.skipIf(isRedisMissing)('an asynchronous check of a new counter', () => {
  /** The first decision is that of the acceptor, the second that of the worker. */
  const decideAsync = () => {
    return vi.spyOn(LeaseTable.prototype, 'decideAsync').mockReturnValueOnce(VERDICT.needsTokens);
  };
  afterEach(() => {
    vi.restoreAllMocks();
  });

  test('is decided by Redis, if another counter has taken the slot that it got', async () => {
    const [first] = await group.start(1);
    decideAsync().mockReturnValueOnce(VERDICT.needsTokens);
    expect(await decide(first, 1, { isAsync: true })).toMatchObject({
      allowed: true,
      remaining: 99,
    });
  });

  test('wants more tokens, if it has left few of a lease', async () => {
    const [first] = await group.start(1);
    decideAsync().mockReturnValueOnce(VERDICT.decidedPrefetch);
    await decide(first, 1, { isAsync: true });
    await expect.poll(() => first.count(WORKER_STAT.leasesGranted)).toBe(1);
  });
});

describe.skipIf(isRedisMissing)('without leases', () => {
  test('every check is a round trip, and decided in the order of its arrival', async () => {
    const [first] = await group.start(2, { leases: false });
    const numbers = Array.from({ length: 120 }, (_, n) => n);
    const allowed = await Promise.all(numbers.map(() => allows(first)));
    expect(allowed).toEqual(numbers.map((n) => n < 100));
    expect(first.count(WORKER_STAT.leasesGranted)).toBe(0);
  });
});

describe.skipIf(isRedisMissing)('a lease', () => {
  test('is recalled for a check of another machine', async () => {
    const [holder, other] = await group.start(2);
    // On a busy computer the holder may be too late; only a recall makes the second check pass.
    for (let n = 0, isAllowed = false; !isAllowed; n++) {
      const id = identityOf(`recalled ${n}`);
      const leased = holder.count(WORKER_STAT.leasedTokens);
      expect((await holder.decide(id, TERMS)).allowed).toBe(true);
      expect(holder.count(WORKER_STAT.leasedTokens)).toBeGreaterThan(leased);
      isAllowed = (await other.decide(id, { ...TERMS, cost: 99 })).allowed;
      expect((await holder.decide(id, TERMS)).allowed).toBe(!isAllowed);
    }
    expect(holder.count(WORKER_STAT.leasesRecalled)).toBeGreaterThan(0);
    const returned = holder.count(WORKER_STAT.leasesReturned);
    expect(returned).toBeGreaterThan(0);
    expect(returned).toBeLessThanOrEqual(holder.count(WORKER_STAT.leasesGranted));
    const tokens = holder.count(WORKER_STAT.returnedTokens);
    expect(tokens).toBeGreaterThanOrEqual(returned);
    expect(tokens).toBeLessThanOrEqual(holder.count(WORKER_STAT.leasedTokens));
  });

  test('is returned when the machine was suspended', async () => {
    const [holder, other] = await group.start(2);
    expect(await allows(holder)).toBe(true);
    const returned = holder.count(WORKER_STAT.returnedTokens);
    // Only the clock of the system goes on while a machine is suspended.
    holder.systemOffsetMs = 60_000;
    await expect
      .poll(() => holder.count(WORKER_STAT.returnedTokens) - returned)
      .toBe(holder.count(WORKER_STAT.leasedTokens));
    await expect.poll(() => allows(other, 99)).toBe(true);
    expect(await allows(holder)).toBe(false);
  });

  test('is returned when the machine stops', async () => {
    const [holder, other] = await group.start(2);
    expect(await allows(holder)).toBe(true);
    expect(await holder.worker.drain()).toBe(0);
    holder.close();
    machines.shift();
    expect(await allows(other, 99)).toBe(true);
    expect(other.count(WORKER_STAT.leasesWrittenOff)).toBe(0);
    // Nobody waits for the machine any more.
    const call = encodeListMembers({ keys: other.keys, isAvailable: false }, 0);
    const reply = await other.link.call(listMembers, call.keys, call.args);
    const silent = decodeListMembers(reply).members.filter(({ silentMs }) => silentMs > 3_000);
    expect(silent.map(({ member }) => member)).toEqual([holder.member]);
    // Its window is long: it is not removed until it has been silent for a day.
    expect(silent[0].silentMs).toBeLessThan(3_600_000);
  });

  test('is the last thing that a machine returns: it calls Redis no more', async () => {
    const [holder] = await group.start(1);
    expect(await holder.worker.drain()).toBe(0);
    const calls = holder.count(WORKER_STAT.redisCalls);
    await delay(EXPIRE_POLL_MS + 200);
    expect(holder.count(WORKER_STAT.redisCalls)).toBe(calls);
  });

  test('is returned when it comes while the machine stops', async () => {
    const [holder, other] = await group.start(2);
    let release = () => {};
    const late = new Promise<void>((resolve) => {
      release = resolve;
    });
    holder.interceptAnswer = () => late;
    const allowed = allows(holder);
    const drained = holder.worker.drain();
    await delay(20);
    release();
    expect([await allowed, await drained]).toEqual([true, 0]);
    holder.close();
    machines.shift();
    expect(holder.count(WORKER_STAT.leasesGranted)).toBe(1);
    expect(await allows(other, 99)).toBe(true);
    expect(other.count(WORKER_STAT.leasesWrittenOff)).toBe(0);
  });

  test('is missed by nobody but this machine when Redis is gone at its stop', async () => {
    const [holder] = await group.start(1);
    expect(await allows(holder)).toBe(true);
    await group.redis.kill();
    expect(await holder.worker.drain()).toBe(1);
  });
});

describe.skipIf(isRedisMissing)('a notice of a kind that only a later version knows', () => {
  test('does not end the connection', async () => {
    const { redis } = group;
    const [machine] = await group.start(1, { syncMs: 3_600_000 });
    const channel = machine.keys.channel(0, machine.member);
    const subscribers = async () => {
      const clients = String(await redis.command('CLIENT', 'LIST', 'TYPE', 'pubsub'));
      return clients.match(/^id=\d+/gm);
    };
    await expect.poll(async () => (await subscribers())?.length).toBe(1);
    const before = await subscribers();
    expect(await redis.command('PUBLISH', channel, 'later 1 2 3')).toBe(1);
    // It has read the first when it follows the second.
    const receive = vi.spyOn(machine.worker, 'receive');
    await redis.command('PUBLISH', channel, `epoch ${'0'.repeat(40)}.1`);
    await expect.poll(() => receive).toHaveBeenCalledOnce();
    expect(await subscribers()).toEqual(before);
  });
});

describe.skipIf(isRedisMissing)('an idle machine with the longest interval', () => {
  test('counts as live all the time', async () => {
    const { redis } = group;
    await group.start(1, { syncMs: SYNC_INTERVAL_MAX_MS, isAvailable: true });
    const other = await connectMember(redis.port, `${'e'.repeat(16)}.0`, { isAvailable: true });
    try {
      const { clockUs } = await other.call([]);
      let answer = await other.call([]);
      while (answer.clockUs < clockUs + 2 * LIVE_US) {
        expect(answer.machineCount).toBe(2);
        await delay(20);
        answer = await other.call([]);
      }
    } finally {
      other.close();
    }
  });
});

describe.skipIf(isRedisMissing)('a worker', () => {
  const heartbeat = (machine: TestMachine) =>
    machine.worker.receive(0, { kind: 'epoch', epoch: '' });

  test('that is closed shows acceptors no state of Redis, whatever becomes of its calls', async () => {
    const [machine] = await group.start(1);
    let fail = (_: Error) => {};
    const failure = new Promise<void>((_, reject) => {
      fail = reject;
    });
    machine.interceptAnswer = () => failure;
    for (let n = 0; n < REDIS_FAILURES_MAX; n++) heartbeat(machine);
    machine.worker.close();
    await delay(20);
    fail(new Error('the connection is closed'));
    await delay(20);
    expect(machine.state.isDown(0)).toBe(false);
  });

  test('pauses between reports of which Redis does not get all', async () => {
    // Reports of usage at intervals would be counted, too.
    const [machine] = await group.start(1, { syncMs: 10_000 });
    expect(await allows(machine)).toBe(true);
    let reports = 0;
    machine.worker.client.sync = () => {
      reports++;
      return Promise.resolve(false);
    };
    await restartEmpty(group.redis);
    await expect.poll(() => reports).toBeGreaterThan(0);
    const [before, startMs] = [reports, machine.clock.monotonicMs()];
    for (let n = 0; n < 100; n++) {
      heartbeat(machine);
      await delay(1);
    }
    const passedMs = machine.clock.monotonicMs() - startMs;
    expect(reports - before).toBeLessThanOrEqual(1 + Math.ceil(passedMs / REPORT_PAUSE_MS));
  });
});
