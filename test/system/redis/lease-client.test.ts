import { describe, expect, test } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import { WORKER_STAT } from '../../../src/shared-memory/stats.ts';
import { trialCount } from '../../support/guarantees.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { identityOf, machineGroup } from './redis-machines.ts';

/** The windows are long: no test sees the end of one. */
const DURATION_MS = 2_592_000_000;
/** Of each of 20 clients of a machine. */
const CHECKS = trialCount(300, 2_000);

const group = machineGroup();
const { machines } = group;

describe.skipIf(isRedisMissing)('a machine that shares limits through Redis', () => {
  test('allows exactly the limit, and counts what remains', async () => {
    const [machine] = await group.start(1);
    const id = identityOf('one');
    const allowed: number[] = [];
    for (let n = 0; n < 150; n++) {
      const decision = await machine.decide(id, { durationMs: DURATION_MS });
      if (decision.allowed) allowed.push(decision.remaining);
      else expect(decision.remaining).toBe(0);
    }
    expect(allowed).toEqual(Array.from({ length: 100 }, (_, n) => 99 - n));
  });
});

describe.skipIf(isRedisMissing)('several machines', () => {
  test('allow the limit together, and no token is left in a lease', async () => {
    await group.start(3);
    const id = identityOf('shared');
    let allowed = 0;
    for (let n = 0; n < 400; n++) {
      const decisions = await Promise.all(
        machines.map((machine) => machine.decide(id, { limit: 1_000, durationMs: DURATION_MS })),
      );
      allowed += decisions.filter((decision) => decision.allowed).length;
    }
    // A busy computer may answer a recall too late. That lease, at most 5 %, is written off.
    const writtenOff = machines.reduce((sum, machine) => {
      return sum + machine.count(WORKER_STAT.leasesWrittenOff);
    }, 0);
    expect(allowed).toBeLessThanOrEqual(1_000);
    expect(allowed).toBeGreaterThanOrEqual(1_000 - 50 * writtenOff);
  });

  test('never allow more than any limit, with random costs and limits', async () => {
    await group.start(3);
    const random = seededRandom(1);
    const used = new Map<string, Map<number, number>>();
    let decisions = 0;
    const clients = machines.flatMap((machine) =>
      Array.from({ length: 20 }, async () => {
        for (let n = 0; n < CHECKS; n++) {
          const name = `id-${random(8) * random(4)}`;
          const limit = [10, 50, 100, 1_000][random(4)];
          const cost = 1 + random(5);
          const rule = RULE.fixed;
          const terms = { limit, cost, rule, durationMs: 1_000 };
          const decision = await machine.decide(identityOf(name), terms);
          decisions++;
          if (!decision.allowed) continue;
          const key = `${name} ${decision.reset}`;
          const byLimit = used.get(key) ?? new Map<number, number>();
          used.set(key, byLimit);
          byLimit.set(limit, (byLimit.get(limit) ?? 0) + cost);
        }
      }),
    );
    await Promise.all(clients);
    expect(decisions).toBe(3 * 20 * CHECKS);
    for (const byLimit of used.values()) {
      let sum = 0;
      for (const limit of [10, 50, 100, 1_000]) {
        sum += byLimit.get(limit) ?? 0;
        expect(sum).toBeLessThanOrEqual(limit);
      }
    }
  });
});
