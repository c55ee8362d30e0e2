/** Sliding windows that several machines share, when some of these machines hold tokens idly. */

import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from 'vitest';
import type { Identity } from '../../../src/core/hash.ts';
import { RULE } from '../../../src/core/window-rules.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { identityOf, machineGroup, moveClock, type TestMachine } from './redis-machines.ts';

const TERMS = { limit: 100, durationMs: 3_600_000, rule: RULE.sliding };
/** What the window before has used. At the start of this one, nearly all of it counts. */
const BEFORE = 40;
const IDLE = 6;
const START_MS = 1_000;

const leasedTokens = (machine: TestMachine) => machine.count(WORKER_STAT.leasedTokens);

describe.skipIf(isRedisMissing)('a sliding window of which idle machines hold tokens', () => {
  const group = machineGroup();
  let id: Identity;
  let idle: TestMachine[];
  let busy: TestMachine;
  /** What the machines had leased of other counters. */
  let leasedBefore: Map<TestMachine, number>;

  /** Of a machine that has used none of its lease. */
  const heldTokens = (machine: TestMachine) => {
    return leasedTokens(machine) - (leasedBefore.get(machine) ?? 0);
  };

  /** Has the idle machines lease tokens of a new counter. @returns how many */
  async function lease(first: TestMachine, counter: number): Promise<number> {
    id = identityOf(`shared ${counter}`);
    leasedBefore = new Map(idle.map((machine) => [machine, leasedTokens(machine)]));
    await first.decide(id, { ...TERMS, cost: BEFORE });
    const nowMs = await moveClock(group.redis, 0);
    await moveClock(group.redis, TERMS.durationMs - (nowMs % TERMS.durationMs) + START_MS);
    // All at once: Redis recalls what a machine has held for a second when another one asks.
    const decided = await Promise.all(idle.map((machine) => machine.decide(id, TERMS)));
    expect(decided.every(({ allowed }) => allowed)).toBe(true);
    return idle.reduce((sum, each) => sum + heldTokens(each), 0);
  }

  beforeEach(async () => {
    const [first, ...others] = await group.start(IDLE + 2);
    [busy, ...idle] = others;
    // A machine that the others do not know yet gets no lease. On a busy computer a second passes.
    let counter = 0;
    await waitUntil('each machine holds tokens', async () => {
      return (await lease(first, ++counter)) > 2 * IDLE;
    });
  });

  test('serves a costly check that fits beside what is used', async () => {
    const cost = TERMS.limit - BEFORE - IDLE;
    expect(await busy.decide(id, { ...TERMS, cost })).toMatchObject({ allowed: true });
  });

  /** Asks for one token after the other, also when the pauses of the machine are over. */
  async function useUp(): Promise<number> {
    let used = 0;
    for (let denied = 0; denied < 20; ) {
      if ((await busy.decide(id, TERMS)).allowed) used++;
      else {
        denied++;
        await sleep(50);
      }
    }
    return used;
  }

  test('is used up by a machine that asks for one token at a time', async () => {
    const left = TERMS.limit - BEFORE - IDLE;
    const used = await useUp();
    expect(used).toBeGreaterThanOrEqual(left);
    expect(used).toBeLessThanOrEqual(left + 1);
  });

  test('is used up but for what a machine held that is gone', async () => {
    const [gone] = idle;
    group.machines.splice(group.machines.indexOf(gone), 1);
    gone.close();
    const left = TERMS.limit - BEFORE - IDLE - heldTokens(gone);
    const used = await useUp();
    expect(used).toBeGreaterThanOrEqual(left);
    expect(used).toBeLessThanOrEqual(left + 1);
  });

  test('denies with a time to try again that is near', async () => {
    let denied = await busy.decide(id, TERMS);
    while (denied.allowed) denied = await busy.decide(id, TERMS);
    const nowMs = await moveClock(group.redis, 0);
    // A token of the window before comes free in 90 s.
    expect(denied.passesAt - nowMs).toBeLessThan(TERMS.durationMs / BEFORE + START_MS);
  });
});
