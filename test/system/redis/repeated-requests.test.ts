/** Requests that a client repeats, of machines that share a Redis. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { RepeatableRequest, RequestAnswer } from '../../../src/engine/request-engine.ts';
import { checkOf } from '../../support/engines.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { identityOf, LONG_WINDOW_MS, machineGroup, type TestMachine } from './redis-machines.ts';

const TERMS = { limit: 100, durationMs: LONG_WINDOW_MS };
const REQUEST = { key: identityOf('request'), parameters: identityOf('cost 30') };

const group = machineGroup({ syncMs: 50 });
let pump: NodeJS.Timeout;

/** The workers of other threads read their queues by themselves. */
beforeEach(() => {
  pump = setInterval(() => {
    for (const { worker } of group.machines) worker.processEntries();
  }, 1);
});
afterEach(() => clearInterval(pump));

/** Decides a check, or gets the answer to an earlier request. */
async function request(machine: TestMachine, cost: number, of: RepeatableRequest = REQUEST) {
  const { requests } = machine.engine;
  const startedMs = machine.clock.monotonicMs();
  const check = checkOf('shared', { ...TERMS, cost, isAsync: true });
  return await requests.answer(of, startedMs, async (): Promise<RequestAnswer> => {
    const { allowed, remaining, reset } = await requests.decide(check, startedMs);
    return { allowed, limit: 100, remaining, reset, id: undefined, expiresAt: 0, inUse: 0 };
  });
}

/** Has a machine lose the answer to one of its next calls about requests. @param number from 1 */
function loseAnswer(machine: TestMachine, number: number): void {
  let calls = 0;
  machine.interceptAnswer = async (script) => {
    if (script === 'repeatRequest' && ++calls === number) throw new Error('the answer is lost');
  };
}

async function used(machine: TestMachine): Promise<number> {
  const all = { durationsMs: undefined, rule: undefined };
  const counters = await machine.engine.inspect(identityOf('shared'), all, () => {});
  return counters[0]?.usage.fixed?.used ?? 0;
}

describe.skipIf(isRedisMissing)('a repeated request', () => {
  test('gets the first answer from every machine, and is counted once', async () => {
    const machines = await group.start(3);
    const first = await request(machines[0], 30);
    expect(first).toMatchObject({ allowed: true, remaining: 70, isRepetition: false });
    for (const machine of machines) {
      expect(await request(machine, 30)).toEqual({ ...first, isRepetition: true });
    }
    expect(await used(machines[1])).toBe(30);
  });

  test('is decided once where repetitions come at the same time', async () => {
    const machines = await group.start(3);
    const answers = await Promise.all(
      Array.from({ length: 30 }, (_, n) => request(machines[n % 3], 30)),
    );
    expect(answers.filter((answer) => answer?.isRepetition === false)).toHaveLength(1);
    expect(new Set(answers.map((answer) => answer?.remaining))).toEqual(new Set([70]));
    expect(await used(machines[0])).toBe(30);
  });

  test('is decided anew after a denial', async () => {
    const [one, two] = await group.start(2);
    await one.decide(identityOf('shared'), { ...TERMS, cost: 80 });
    expect(await request(one, 30)).toMatchObject({ allowed: false });
    await one.engine.reset(
      identityOf('shared'),
      { durationsMs: undefined, rule: undefined },
      () => {},
    );
    await expect.poll(() => request(two, 30)).toMatchObject({ allowed: true, isRepetition: false });
  });

  test('with other parameters gets no answer, and is not counted', async () => {
    const [one, two] = await group.start(2);
    await request(one, 30);
    const other = { ...REQUEST, parameters: identityOf('cost 31') };
    expect(await request(two, 31, other)).toBeUndefined();
    expect(await used(one)).toBe(30);
  });

  test('may be decided again if the first one failed', async () => {
    const [one] = await group.start(1);
    const failing = one.engine.requests.answer(REQUEST, one.clock.monotonicMs(), () => {
      throw new Error('it failed');
    });
    await expect(failing).rejects.toThrow('it failed');
    expect(await request(one, 30)).toMatchObject({ allowed: true, isRepetition: false });
  });

  test('is decided if Redis did not answer to the claim of the first one', async () => {
    const [one, two] = await group.start(2);
    loseAnswer(one, 1);
    await expect(request(one, 30)).rejects.toThrow('the answer is lost');
    expect(await request(two, 30)).toMatchObject({ allowed: true, isRepetition: false });
    expect(await used(two)).toBe(30);
  });

  test('gets the first answer, also if Redis did not answer that it is stored', async () => {
    const [one, two] = await group.start(2);
    loseAnswer(one, 2);
    const first = await request(one, 30);
    expect(first).toMatchObject({ allowed: true, isRepetition: false });
    expect(await request(two, 30)).toEqual({ ...first, isRepetition: true });
    expect(await used(two)).toBe(30);
  });

  test('is not decided while Redis is full', async () => {
    const [one] = await group.start(1);
    await group.redis.command('CONFIG', 'SET', 'maxmemory', '1');
    try {
      await expect(request(one, 30)).rejects.toThrow('nothing was changed');
    } finally {
      await group.redis.command('CONFIG', 'SET', 'maxmemory', '0');
    }
    expect(await used(one)).toBe(0);
  });

  test('gets back the hold of the first answer', async () => {
    const [one, two] = await group.start(2);
    const reserve = async (machine: TestMachine) => {
      const startedMs = machine.clock.monotonicMs();
      return await machine.engine.requests.answer(REQUEST, startedMs, async () => {
        const check = checkOf('shared', { ...TERMS, cost: 30 });
        const { allowed, id, expiresAt } = await machine.engine.holds.reserve(
          [check],
          startedMs,
          60_000,
        );
        return { allowed, limit: 100, remaining: 70, reset: 1, id, expiresAt, inUse: 0 };
      });
    };
    const first = await reserve(one);
    expect(first?.id).toBeDefined();
    expect(await reserve(two)).toEqual({ ...first, isRepetition: true });
  });

  test('is refused if somebody has changed the answer in Redis', async () => {
    const [one] = await group.start(1);
    await request(one, 30);
    const key = one.keys.request(REQUEST.key);
    const stored = String(await group.redis.command('GET', key));
    await group.redis.command('SET', key, stored.replace(/[^ ]+$/, '1,2,3'));
    await expect(request(one, 30)).rejects.toThrow('invalid reply');
  });
});
