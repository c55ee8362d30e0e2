/** What several machines allow while Redis or one of them has a fault. */

import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { identityOf, LONG_WINDOW_MS, machineGroup } from './redis-machines.ts';
import { restartEmpty } from './use-redis.ts';

const LIMIT = 1_000;
const TERMS = { limit: LIMIT, durationMs: LONG_WINDOW_MS };
const ID = identityOf('shared');

/** Answers that come late are ignored, and the checks are withdrawn. */
const group = machineGroup({ timeoutMs: 500, callTimeoutMs: 20 });
const { machines, redis } = group;

/** Checks of all machines. A decision may come late, or never. @returns how many are allowed */
async function useTokens(checks: number, seed = 1): Promise<number> {
  const random = seededRandom(seed);
  let allowed = 0;
  for (let n = 0; n < checks; n++) {
    const decision = machines[random(machines.length)].decide(ID, TERMS);
    const counted = decision.then((decided) => {
      if (decided.allowed) allowed++;
    });
    await Promise.race([counted, delay(500)]);
  }
  return allowed;
}

/** Checks until nothing is allowed any more. */
async function useUp(): Promise<number> {
  let allowed = 0;
  for (let denied = 0; denied < 3 * machines.length; ) {
    const more = await useTokens(machines.length * 3, allowed + denied);
    denied = more === 0 ? denied + 1 : 0;
    allowed += more;
  }
  return allowed;
}

const FAULTS: Record<string, () => Promise<unknown>> = {
  'a machine dies with a lease': async () => machines.pop()!.close(),
  'the scripts are lost': () => redis.command('SCRIPT', 'FLUSH'),
  'the connections are lost': async () => {
    await redis.command('CLIENT', 'KILL', 'TYPE', 'normal');
    await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await expect.poll(() => machines.every(({ link }) => link.isConnected())).toBe(true);
  },
  'the key of the counter is deleted': async () => {
    const keys = (await redis.command('KEYS', 'weir:{0}:c:*')) as string[];
    await redis.command('DEL', ...keys);
  },
  'Redis restarts empty': async () => {
    await restartEmpty(redis);
    await expect
      .poll(() => machines.every(({ state }) => state.hasJoined(0) && !state.isRecovering(0)))
      .toBe(true);
  },
  'their workers are replaced': async () => {
    for (const machine of machines) machine.replaceWorker();
  },
  'answers are lost, and others come late': async () => {
    const random = seededRandom(7);
    for (const machine of machines) {
      machine.interceptAnswer = async () => {
        const chance = random(20);
        if (chance === 0) throw new Error('the answer is lost');
        if (chance === 1) await delay(120);
      };
    }
  },
};

describe.skipIf(isRedisMissing)('several machines', () => {
  test.each(Object.keys(FAULTS))(
    'allow the limit together, and no more, when %s',
    async (fault) => {
      await group.start(3);
      const [dead] = machines.slice(-1);
      let allowed = 0;
      for (let n = 0; n < 3; n++) {
        allowed += await useTokens(100, n);
        if (n === 0 || fault !== 'a machine dies with a lease') await FAULTS[fault]();
      }
      allowed += await useTokens(100);
      for (const machine of machines) machine.interceptAnswer = undefined;
      await delay(500);
      allowed += await useUp();
      // On a busy computer a machine may answer a recall too late: its lease is written off, too.
      const lost = [...new Set([...machines, dead])].reduce((sum, machine) => {
        return sum + machine.count(WORKER_STAT.leasesWrittenOff);
      }, 0);
      expect(allowed).toBeLessThanOrEqual(LIMIT);
      // A lease is at most 5 % of the limit.
      expect(allowed).toBeGreaterThanOrEqual(LIMIT * (1 - 0.05 * lost));
    },
  );

  test('report asynchronous usage, and deny synchronous checks by it', async () => {
    await group.start(2, { syncMs: 50 });
    for (let n = 0; n < 400; n++) {
      for (const machine of machines) {
        expect((await machine.decide(ID, { ...TERMS, isAsync: true })).allowed).toBe(true);
      }
    }
    await delay(300);
    expect(await useUp()).toBe(200);
  });
});

describe.skipIf(isRedisMissing)('a GCRA bucket of a Redis that restarts empty', () => {
  test('is reported by the machines that have used it', async () => {
    await group.start(2);
    const bucket = { ...TERMS, limit: 100, rule: RULE.gcra };
    const use = async (checks: number) => {
      let allowed = 0;
      for (let n = 0; n < checks; n++) {
        if ((await machines[n % 2].decide(ID, bucket)).allowed) allowed++;
      }
      return allowed;
    };
    expect(await use(60)).toBeLessThanOrEqual(60);
    await restartEmpty(redis);
    let after = 0;
    const useMore = async () => {
      after += await use(20);
      return after;
    };
    // Nothing is allowed until all machines have reported.
    await expect.poll(useMore).toBeGreaterThan(0);
    for (let n = 0; n < 5; n++) await useMore();
    // On a busy computer an answer may come too late: such a check is counted, and denied here.
    const lost = machines.reduce((sum, { withdrawn }) => sum + withdrawn, 0);
    expect(after).toBeLessThanOrEqual(40 + lost);
  });
});
