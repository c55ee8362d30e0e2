/** The work of long reads in one turn of the event loop. */

import { describe, expect, test } from 'vitest';
import { TurnBudget } from '../../src/core/turn-budget.ts';

const PER_TURN = 4_096;
const STEP = 1_000;
const STEPS = 4;
const READS = 500;

/** The most work of a turn, and the work of all turns. */
async function workByTurn(read: (work: (units: number) => void) => Promise<void>) {
  let current = 0;
  let total = 0;
  let most = 0;
  let timer: NodeJS.Immediate;
  const endTurn = () => {
    most = Math.max(most, current);
    current = 0;
    timer = setImmediate(endTurn);
  };
  endTurn();
  const work = (units: number) => {
    current += units;
    total += units;
  };
  await Promise.all(Array.from({ length: READS }, () => read(work)));
  clearImmediate(timer!);
  return { most: Math.max(most, current), total };
}

describe('500 reads at a time exceed the budget of a turn by one step at most', () => {
  test('if they know the work of a step before it', async () => {
    const turns = new TurnBudget(PER_TURN, READS);
    const { most, total } = await workByTurn(async (work) => {
      for (let i = 0; i < STEPS; i++) {
        await turns.spend(STEP);
        work(STEP);
      }
    });
    expect(total).toBe(READS * STEPS * STEP);
    expect(most).toBeLessThan(PER_TURN + STEP);
  });

  test('if they know it only after the step', async () => {
    const turns = new TurnBudget(PER_TURN, READS);
    const { most, total } = await workByTurn(async (work) => {
      for (let i = 0; i < STEPS; i++) {
        await turns.run(
          () => work(STEP),
          () => STEP,
        );
      }
    });
    expect(total).toBe(READS * STEPS * STEP);
    expect(most).toBeLessThan(PER_TURN + STEP);
  });
});

test('a search over the maximum is rejected, and a place is free after one that has failed', async () => {
  const turns = new TurnBudget(PER_TURN, 2);
  const fail = () => turns.runSearch(() => turns.spend(PER_TURN).then(() => Promise.reject('x')));
  const results = await Promise.allSettled([fail(), fail(), fail()]);
  expect(results).toMatchObject([
    { reason: 'x' },
    { reason: 'x' },
    { reason: { code: 'SERVICE_UNAVAILABLE', message: expect.stringMatching(/^2 searches are/) } },
  ]);
  expect(await turns.runSearch(async () => 'found')).toBe('found');
});
