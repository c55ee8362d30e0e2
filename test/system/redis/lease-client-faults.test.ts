/** What several machines allow while Redis or one of them has a fault. */

import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import { ENTRY_KIND } from '../../../src/engine/worker/layout.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { identityOf, machineGroup } from './redis-machines.ts';

/** The windows are long: no test sees the end of one. */
const DURATION_MS = 2_592_000_000;
const LIMIT = 1_000;

/** Answers that come late are ignored, and the checks are withdrawn. */
const group = machineGroup({ timeoutMs: 20, withdrawMs: 500 });
const { machines } = group;

beforeEach(() => {
  allowed = 0;
});

/** Tokens that all checks together were allowed. */
let allowed = 0;

/** Checks of all machines. A decision may come late, or never. */
async function useTokens(checks: number, id = identityOf('shared'), seed = 1): Promise<void> {
  const random = seededRandom(seed);
  for (let n = 0; n < checks; n++) {
    const machine = machines[random(machines.length)];
    const decision = machine.decide(id, { limit: LIMIT, durationMs: DURATION_MS });
    const counted = decision.then((decided) => {
      if (decided.allowed) allowed++;
    });
    await Promise.race([counted, delay(500)]);
  }
}

/** Checks until nothing is allowed any more. */
async function useUp(id = identityOf('shared')): Promise<void> {
  for (let denied = 0; denied < 3 * machines.length; ) {
    const before = allowed;
    await useTokens(machines.length * 3, id, allowed + denied);
    denied = allowed === before ? denied + 1 : 0;
  }
}

/**
 * Expects that the limit was allowed, and no more. On a busy computer a machine may answer a recall
 * too late: then its lease, at most 5 % of the limit, is written off.
 */
function expectUsedUp(): void {
  const writtenOff = machines.reduce((sum, machine) => {
    return sum + machine.count(WORKER_STAT.leasesWrittenOff);
  }, 0);
  expect(allowed).toBeLessThanOrEqual(LIMIT);
  expect(allowed).toBeGreaterThanOrEqual(LIMIT * (1 - 0.05 * writtenOff));
}

describe.skipIf(isRedisMissing)('several machines', () => {
  test('allow the limit together when one of them dies with a lease, less that lease', async () => {
    await group.start(3);
    await useTokens(300);
    machines[2].kill();
    machines.pop();
    await useUp();
    expect(allowed).toBeLessThanOrEqual(LIMIT);
    // A lease is at most 5 % of the limit.
    expect(allowed).toBeGreaterThanOrEqual(LIMIT * 0.95);
  });

  test('allow no more when scripts and connections are lost', async () => {
    await group.start(3);
    await useTokens(200);
    await group.redis.command('SCRIPT', 'FLUSH');
    await useTokens(200);
    await group.redis.command('CLIENT', 'KILL', 'TYPE', 'normal');
    await group.redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await expect.poll(() => machines.every(({ link }) => link.isConnected())).toBe(true);
    await useTokens(200);
    await useUp();
    expectUsedUp();
  });

  test('allow no more when the key of the counter is deleted', async () => {
    await group.start(3);
    await useTokens(300);
    for (const key of (await group.redis.command('KEYS', 'weir:{0}:c:*')) as string[]) {
      await group.redis.command('DEL', key);
    }
    await useTokens(300);
    await delay(500);
    await useUp();
    expectUsedUp();
  });

  test('allow no more when Redis restarts empty', async () => {
    await group.start(3);
    await useTokens(300);
    await group.redis.kill();
    await group.redis.restart({ isEmpty: true });
    await expect
      .poll(() => machines.every(({ state }) => state.hasJoined(0) && !state.isRecovering(0)))
      .toBe(true);
    await useTokens(300);
    await delay(500);
    await useUp();
    expectUsedUp();
  });

  test('allow no more when workers are replaced', async () => {
    await group.start(2);
    for (let n = 0; n < 10; n++) {
      await useTokens(50, identityOf('shared'), n);
      machines[n % 2].replaceWorker();
    }
    await useUp();
    expectUsedUp();
  });

  test('allow no more when answers are lost or come late', async () => {
    await group.start(3);
    const random = seededRandom(7);
    for (const machine of machines) {
      machine.runner.interceptAnswer = async () => {
        const chance = random(20);
        if (chance === 0) throw new Error('the answer is lost');
        if (chance === 1) await delay(120);
      };
    }
    await useTokens(600);
    for (const machine of machines) machine.runner.interceptAnswer = undefined;
    await delay(300);
    await useUp();
    expectUsedUp();
  });

  test('report asynchronous usage, and deny synchronous checks by it', async () => {
    await group.start(2, { syncMs: 50 });
    const id = identityOf('async');
    const terms = { limit: LIMIT, durationMs: DURATION_MS, rule: RULE.fixed };
    for (let n = 0; n < 400; n++) {
      for (const machine of machines) {
        expect((await machine.decide(id, terms, ENTRY_KIND.asyncNew)).allowed).toBe(true);
      }
    }
    await delay(300);
    await useUp(id);
    expect(allowed).toBe(200);
  });
});
