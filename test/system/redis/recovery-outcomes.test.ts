/**
 * Tests the counts of a machine about recoveries of a Redis that has lost its memory, with a real
 * server that is killed and restarted empty, and a machine that does not return.
 */

import { afterEach, describe, expect, test, vi } from 'vitest';
import { RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import {
  decodeForgetMembers,
  encodeForgetMembers,
  forgetMembers,
} from '../../../src/engine/redis/scripts/members.ts';
import { REDIS_ERROR_KINDS } from '../../../src/redis/errors.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { identityOf, type MachineOptions, TestMachine } from './redis-machines.ts';
import { connectMember } from './script-member.ts';
import { restartEmpty, useEmptyRedis } from './use-redis.ts';

vi.setConfig({ testTimeout: 120_000 });

/** The windows are long: no test sees the end of one. */
const TERMS = { limit: 100, durationMs: 2_592_000_000 };
const ID = identityOf('lost');

const redis = useEmptyRedis();
let machines: TestMachine[] = [];
afterEach(() => {
  for (const machine of machines.splice(0)) machine.close();
});

async function startMachines(count: number, options: MachineOptions): Promise<TestMachine[]> {
  for (let n = 0; n < count; n++) {
    const machine = new TestMachine(redis.url, options);
    machines.push(machine);
    await expect.poll(() => machine.state.hasJoined(0)).toBe(true);
  }
  return machines;
}

/** Uses what a machine gets. @returns how many tokens that were */
async function useUp(machine: TestMachine, rule: RuleNumber = RULE.fixed): Promise<number> {
  let allowed = 0;
  for (let n = 0; n < 2 * TERMS.limit; n++) {
    if ((await machine.decide(ID, { ...TERMS, rule })).allowed) allowed++;
  }
  return allowed;
}

const recoveries = (machine: TestMachine) => {
  const { recoveriesComplete, recoveriesAvailable, recoveriesForgotten } = WORKER_STAT;
  return [recoveriesComplete, recoveriesAvailable, recoveriesForgotten].map((stat) => {
    return machine.count(stat);
  });
};

describe.skipIf(isRedisMissing)('a recovery', () => {
  test('that is complete is counted as such, and opens no window too early', async () => {
    const [first, second] = await startMachines(2, { isAvailable: true });
    for (const machine of [first, second]) {
      expect((await machine.decide(ID, { ...TERMS, cost: 30 })).allowed).toBe(true);
    }
    await restartEmpty(redis);
    await expect
      .poll(() => machines.map(recoveries), { timeout: 20_000 })
      .toEqual([
        [1, 0, 0],
        [1, 0, 0],
      ]);
    await first.decide(ID, { ...TERMS, cost: 20 });
    expect(machines.map((machine) => machine.count(WORKER_STAT.openedWindowTokens))).toEqual([
      0, 0,
    ]);
  });

  test.each([RULE.fixed, RULE.gcra])(
    'that does not wait for a dead machine counts at least the tokens over the limit (rule %i)',
    async (rule) => {
      const [dead, live] = await startMachines(2, { isAvailable: true });
      // In this order: an answer about a GCRA bucket shows what all machines have used.
      expect((await live.decide(ID, { ...TERMS, rule, cost: 20 })).allowed).toBe(true);
      expect((await dead.decide(ID, { ...TERMS, rule, cost: 60 })).allowed).toBe(true);
      dead.kill();
      machines = [live];
      await restartEmpty(redis);
      await expect.poll(() => live.state.isRecovering(0), { timeout: 20_000 }).toBe(true);
      // Denied for the recovery, which is another reason than an unproven denial.
      const unproven = live.count(WORKER_STAT.unprovenDenials);
      const isDenied = async () => {
        await live.decide(ID, { ...TERMS, rule, cost: 1 });
        return live.count(WORKER_STAT.recoveryDenials) > 0;
      };
      await expect.poll(isDenied).toBe(true);
      expect(live.count(WORKER_STAT.unprovenDenials)).toBe(unproven);
      await expect.poll(() => recoveries(live), { timeout: 30_000 }).toEqual([0, 1, 0]);
      const before = live.count(WORKER_STAT.openedWindowTokens);
      const allowed = await useUp(live, rule);
      // The use of the dead machine is forgotten.
      const over = 60 + 20 + allowed - TERMS.limit;
      expect(over).toBeGreaterThan(0);
      const counted = live.count(WORKER_STAT.openedWindowTokens);
      expect(counted).toBeGreaterThanOrEqual(over);
      expect(counted - before).toBeLessThanOrEqual(2 * TERMS.limit);
      // Windows that begin later are not affected.
      const later = identityOf('later');
      const short = { limit: 1_000, durationMs: 1_000, rule };
      const start = live.count(WORKER_STAT.openedWindowTokens);
      for (let n = 0; n < 10; n++) await live.decide(later, short);
      expect(live.count(WORKER_STAT.openedWindowTokens)).toBe(start);
    },
  );

  test('that waited until a machine was forgotten is counted as such', async () => {
    const [dead, live] = await startMachines(2, {});
    expect((await dead.decide(ID, { ...TERMS, cost: 60 })).allowed).toBe(true);
    expect((await live.decide(ID, { ...TERMS, cost: 20 })).allowed).toBe(true);
    dead.kill();
    machines = [live];
    await restartEmpty(redis);
    await expect.poll(() => live.state.isRecovering(0), { timeout: 20_000 }).toBe(true);
    const context = { keys: live.keys, isAvailable: false };
    const forget = async () => {
      const { keys, args } = encodeForgetMembers(context, 0, dead.member);
      return decodeForgetMembers(await live.link.call(forgetMembers, keys, args));
    };
    await expect.poll(forget, { timeout: 30_000 }).toBe(1);
    await expect.poll(() => recoveries(live), { timeout: 30_000 }).toEqual([0, 0, 1]);
    const over = 60 + 20 + (await useUp(live)) - TERMS.limit;
    expect(over).toBeGreaterThan(0);
    expect(live.count(WORKER_STAT.openedWindowTokens)).toBeGreaterThanOrEqual(over);
  });
});

describe.skipIf(isRedisMissing)('a call to Redis that fails', () => {
  test('is counted by the kind of its error', async () => {
    const [machine] = await startMachines(1, { timeoutMs: 50 });
    const stats = machine.control.workerStats(0);
    const counts = () => REDIS_ERROR_KINDS.filter((kind) => stats.callErrors(kind) > 0);
    let counters = 0;
    const hasFailed = async () => {
      await machine.decide(identityOf(`counter ${counters++}`), TERMS);
      return counts();
    };
    // Calls before the first connection.
    expect(counts().filter((kind) => kind !== 'unreachable')).toEqual([]);
    redis.suspend();
    await expect.poll(hasFailed, { timeout: 10_000 }).toContain('timeout');
    redis.resume();
    await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await expect.poll(hasFailed, { timeout: 10_000 }).toContain('misconfigured');
    const before = stats.callErrors('unreachable');
    await redis.kill();
    const hasMore = async () => {
      await hasFailed();
      return stats.callErrors('unreachable') > before;
    };
    await expect.poll(hasMore, { timeout: 10_000 }).toBe(true);
  });
});

describe.skipIf(isRedisMissing)('the clock of the windows', () => {
  test('is shown as far ahead of the clocks of Redis and of the machine as it is', async () => {
    const [machine] = await startMachines(1, {});
    const lagMs = () => machine.count(WORKER_STAT.clockLagMs);
    expect(lagMs()).toBeLessThan(1_000);
    // A member that has seen a later time, on a server that is gone.
    const member = await connectMember(redis.port, `${'e'.repeat(16)}.0`);
    try {
      const { clockUs } = await member.call([]);
      member.header.clockUs = clockUs + 3_600_000_000;
      await member.call([]);
    } finally {
      member.close();
    }
    await expect.poll(lagMs).toBeGreaterThan(3_500_000);
    expect(lagMs()).toBeLessThan(3_600_000);
    const offsetMs = () => machine.count(WORKER_STAT.clockOffsetMs);
    await expect.poll(offsetMs).toBeGreaterThan(3_500_000);
    machine.systemOffsetMs = 10_000_000;
    await expect.poll(offsetMs).toBeLessThan(-6_000_000);
  });
});
