/**
 * Tests the counts of a machine about recoveries of a Redis that has lost its memory, with a real
 * server that is killed and restarted empty, and a machine that does not return.
 */

import { describe, expect, test } from 'vitest';
import { RULE, type RuleNumber } from '../../../src/core/window-rules.ts';
import {
  decodeListMembers,
  encodeForgetMembers,
  encodeListMembers,
  forgetMembers,
  listMembers,
} from '../../../src/engine/redis/scripts/members.ts';
import { REDIS_ERROR_KINDS } from '../../../src/redis/errors.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
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

const TERMS = { limit: 100, durationMs: LONG_WINDOW_MS };
const ID = identityOf('lost');

const group = machineGroup();
const { machines, redis } = group;

/** Uses what a machine gets. @returns how many tokens that were */
async function useUp(machine: TestMachine, rule: RuleNumber = RULE.fixed): Promise<number> {
  let allowed = 0;
  for (let n = 0; n < 2 * TERMS.limit; n++) {
    if ((await machine.decide(ID, { ...TERMS, rule })).allowed) allowed++;
  }
  return allowed;
}

const recoveries = (machine: TestMachine) => {
  const { recoveriesComplete, recoveriesIncomplete } = WORKER_STAT;
  return [recoveriesComplete, recoveriesIncomplete].map((stat) => machine.count(stat));
};

/** The list tells whether Redis has forgotten the member, because an answer may be lost. */
async function forget({ keys, link }: TestMachine, member: string): Promise<void> {
  const context = { keys, isAvailable: false };
  const isListed = async () => {
    const call = encodeListMembers(context, 0);
    const list = decodeListMembers(await link.call(listMembers, call.keys, call.args));
    return list.members.some((listed) => listed.member === member);
  };
  const isListedAfterCall = async () => {
    const call = encodeForgetMembers(context, 0, member);
    await link.call(forgetMembers, call.keys, call.args);
    return await isListed();
  };
  const message = `whether Redis lists ${member}`;
  await expect.poll(isListed, { message: `${message} when it is to be forgotten` }).toBe(true);
  await expect.poll(isListedAfterCall, { message: `${message} when it is forgotten` }).toBe(false);
}

describe.skipIf(isRedisMissing)('a recovery', () => {
  test('that is complete is counted as such, and opens no window too early', async () => {
    const [first, second] = await group.start(2, { isAvailable: true });
    for (const machine of [first, second]) {
      expect((await machine.decide(ID, { ...TERMS, cost: 30 })).allowed).toBe(true);
    }
    await restartEmpty(redis);
    const both = [1, 0];
    await expect.poll(() => machines.map(recoveries)).toEqual([both, both]);
    await first.decide(ID, { ...TERMS, cost: 20 });
    expect(machines.map((each) => each.count(WORKER_STAT.openedWindowTokens))).toEqual([0, 0]);
  });

  test.each([
    ['goes on without a dead machine', RULE.fixed, true],
    ['goes on without a dead machine', RULE.gcra, true],
    ['waited until a machine was forgotten', RULE.fixed, false],
  ])(
    'that %s counts at least the tokens over the limit (rule %i)',
    async (_, rule, isAvailable) => {
      const [dead, live] = await group.start(2, { isAvailable });
      // In this order: an answer about a GCRA bucket shows what all machines have used.
      expect((await live.decide(ID, { ...TERMS, rule, cost: 20 })).allowed).toBe(true);
      expect((await dead.decide(ID, { ...TERMS, rule, cost: 60 })).allowed).toBe(true);
      dead.close();
      machines.shift();
      await restartEmpty(redis);
      if (!isAvailable) {
        await expect.poll(() => live.state.isRecovering(0)).toBe(true);
        // Denied for the recovery, which is another reason than an unproven denial.
        const unproven = live.count(WORKER_STAT.unprovenDenials);
        const isDenied = async () => {
          await live.decide(ID, { ...TERMS, rule, cost: 1 });
          return live.count(WORKER_STAT.recoveryDenials) > 0;
        };
        await expect.poll(isDenied).toBe(true);
        expect(live.count(WORKER_STAT.unprovenDenials)).toBe(unproven);
        await forget(live, dead.member);
      }
      await expect.poll(() => recoveries(live)).toEqual([0, 1]);
      const before = live.count(WORKER_STAT.openedWindowTokens);
      // The use of the dead machine is forgotten.
      const over = 60 + 20 + (await useUp(live, rule)) - TERMS.limit;
      expect(over).toBeGreaterThan(0);
      const counted = live.count(WORKER_STAT.openedWindowTokens);
      expect(counted).toBeGreaterThanOrEqual(over);
      expect(counted - before).toBeLessThanOrEqual(2 * TERMS.limit);
      const [tag] = checkOf('').namespace.hashState;
      expect(live.control.workerStats(0).openedTokensOf(tag)).toBe(counted);
      // Windows that begin later are not affected.
      await moveClock(redis, 5_000);
      const later = identityOf('later');
      for (let n = 0; n < 10; n++) {
        await live.decide(later, { limit: 1_000, durationMs: 1_000, rule });
      }
      expect(live.count(WORKER_STAT.openedWindowTokens)).toBe(counted);
    },
  );
});

describe.skipIf(isRedisMissing)('a call to Redis that fails', () => {
  test('is counted by the kind of its error', async () => {
    const [machine] = await group.start(1, { timeoutMs: 50 });
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
    await expect.poll(hasFailed).toContain('timeout');
    redis.resume();
    await redis.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
    await expect.poll(hasFailed).toContain('misconfigured');
    const before = stats.callErrors('unreachable');
    await redis.kill();
    const hasMore = async () => {
      await hasFailed();
      return stats.callErrors('unreachable') > before;
    };
    await expect.poll(hasMore).toBe(true);
  });
});

describe.skipIf(isRedisMissing)('the clock of the windows', () => {
  test('is shown as far ahead of the clocks of Redis and of the machine as it is', async () => {
    const [machine] = await group.start(1);
    const lagMs = () => machine.count(WORKER_STAT.clockLagMs);
    expect(lagMs()).toBeLessThan(1_000);
    await moveClock(redis, 3_600_000);
    await expect.poll(lagMs).toBeGreaterThan(3_500_000);
    expect(lagMs()).toBeLessThan(3_600_000);
    const offsetMs = () => machine.count(WORKER_STAT.clockOffsetMs);
    await expect.poll(offsetMs).toBeGreaterThan(3_500_000);
    machine.systemOffsetMs = 10_000_000;
    await expect.poll(offsetMs).toBeLessThan(-6_000_000);
  });
});
