/** Requests that a client repeats, on machines that share a Redis. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { RequestAnswer } from '../../../src/engine/request-engine.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { identityOf, machineGroup, type TestMachine } from './redis-machines.ts';

const REQUEST = { key: identityOf('request'), parameters: identityOf('parameters') };
const ALLOWED: RequestAnswer = {
  ...{ allowed: true, limit: 10, remaining: 9, reset: 1_000, id: undefined },
  ...{ expiresAt: 0, inUse: 0 },
};

const group = machineGroup({ syncMs: 50 });
let decided = 0;
let pump: NodeJS.Timeout;

beforeEach(() => {
  decided = 0;
  pump = setInterval(() => {
    for (const { worker } of group.machines) worker.processEntries();
  }, 1);
});
afterEach(() => clearInterval(pump));

function decide(): RequestAnswer {
  decided++;
  return ALLOWED;
}

async function answer({ engine, clock }: TestMachine) {
  return await engine.requests.answer(REQUEST, clock.monotonicMs(), decide);
}

/** Has a machine lose the answer to one of its next calls about requests. @param number from 1 */
function loseAnswer(machine: TestMachine, number: number): void {
  let calls = 0;
  machine.interceptAnswer = async (script) => {
    if (script === 'repeatRequest' && ++calls === number) throw new Error('the answer is lost');
  };
}

describe.skipIf(isRedisMissing)('a repeated request', () => {
  test('gets the first answer on every machine', async () => {
    const [one, two] = await group.start(2);
    expect(await answer(one)).toEqual({ ...ALLOWED, isRepetition: false });
    expect(await answer(two)).toEqual({ ...ALLOWED, isRepetition: true });
    expect(decided).toBe(1);
  });

  test('is decided, if Redis did not answer to the first that it is to be decided', async () => {
    const [one, two] = await group.start(2);
    loseAnswer(one, 1);
    await expect(answer(one)).rejects.toThrow('the answer is lost');
    expect(await answer(two)).toEqual({ ...ALLOWED, isRepetition: false });
    expect(decided).toBe(1);
  });
});

describe.skipIf(isRedisMissing)('a request that may be repeated', () => {
  test('gets its answer, if Redis did not answer that it is stored', async () => {
    const [one, two] = await group.start(2);
    loseAnswer(one, 2);
    expect(await answer(one)).toEqual({ ...ALLOWED, isRepetition: false });
    expect(await answer(two)).toEqual({ ...ALLOWED, isRepetition: true });
    expect(decided).toBe(1);
  });

  test('is not decided while Redis is full', async () => {
    const [one] = await group.start(1);
    await group.redis.command('CONFIG', 'SET', 'maxmemory', '1');
    try {
      await expect(answer(one)).rejects.toThrow('nothing was changed');
    } finally {
      await group.redis.command('CONFIG', 'SET', 'maxmemory', '0');
    }
    expect(decided).toBe(0);
  });
});
