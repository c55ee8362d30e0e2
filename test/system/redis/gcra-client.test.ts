/** What becomes of GCRA checks, refunds and reports when Redis or a worker fails. */

import { afterEach, describe, expect, test, vi } from 'vitest';
import { RULE } from '../../../src/core/window-rules.ts';
import type { CounterSelector } from '../../../src/engine/engine.ts';
import { CheckQueueConsumer } from '../../../src/engine/queue/check-queue-consumer.ts';
import { RedisError } from '../../../src/redis/errors.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { identityOf, LONG_WINDOW_MS, machineGroup, type TestMachine } from './redis-machines.ts';

const ID = identityOf('bucket');
const TERMS = { limit: 100, durationMs: LONG_WINDOW_MS, rule: RULE.gcra } as const;
const ALL: CounterSelector = { durationsMs: undefined, rule: undefined };

const group = machineGroup({ timeoutMs: 200, syncMs: 3_600_000, hasBreaker: false });

afterEach(() => {
  vi.restoreAllMocks();
});

const refund = (machine: TestMachine, cost: number) => {
  return machine.request(ID, { kind: 'refund', ...TERMS, window: 0, cost });
};

/** The tokens that a next check sees in Redis. */
async function used(machine: TestMachine): Promise<number> {
  return TERMS.limit - (await machine.decide(ID, { ...TERMS, cost: 0 })).remaining;
}

describe.skipIf(isRedisMissing)('a GCRA check over which a worker died', () => {
  test.each([
    ['is not answered', true],
    ['is answered', false],
  ])('does not keep its queue from being emptied when its repetition %s', async (_, isLost) => {
    const [machine] = await group.start(1);
    vi.spyOn(CheckQueueConsumer.prototype, 'reply').mockImplementationOnce(() => {});
    const lost = machine.decide(ID, TERMS).catch((error: Error) => error.message);
    await expect.poll(() => used(machine)).toBe(1);
    machine.interceptAnswer = async () => {
      if (isLost) throw new Error('the answer is lost');
    };
    machine.replaceWorker();
    machine.worker.processEntries();
    await expect.poll(() => machine.worker.isIdle()).toBe(true);
    if (isLost) expect(await lost).toContain('the check may have been counted');
    else expect(await lost).toMatchObject({ allowed: true, remaining: 98 });
  });
});

describe.skipIf(isRedisMissing)('a GCRA refund', () => {
  test('that cannot be sent is sent when Redis is connected again', async () => {
    const [machine] = await group.start(1);
    await machine.decide(ID, { ...TERMS, cost: 60 });
    const call = vi.spyOn(machine.link, 'call');
    call.mockImplementation(() => Promise.reject(new RedisError('unreachable', 'it is cut off')));
    const refunded = refund(machine, 20);
    await expect.poll(() => call.mock.calls.length).toBeGreaterThan(2);
    call.mockRestore();
    expect(await refunded).toEqual({ kind: 'refund', refunded: 20 });
    expect(await used(machine)).toBe(40);
  });

  test('changes nothing while Redis recovers, and says so', async () => {
    const [machine, dead] = await group.start(2);
    await machine.decide(ID, { ...TERMS, cost: 60 });
    dead.close();
    await group.redis.command('FLUSHALL');
    await expect
      .poll(() => refund(machine, 20))
      .toMatchObject({
        kind: 'failure',
        isUnchanged: true,
        reason: 'Redis has lost counters, and recovers',
      });
  });
});

describe.skipIf(isRedisMissing)('GCRA tokens that were allowed without Redis', () => {
  /** Uses tokens while calls are lost. */
  const useAlone = async (machine: TestMachine, cost: number) => {
    const call = vi.spyOn(machine.link, 'call').mockImplementation(() => new Promise(() => {}));
    expect(await machine.decide(ID, { ...TERMS, cost })).toMatchObject({ allowed: true });
    return call;
  };

  test('are reported by the next worker, if theirs died while it reported them', async () => {
    const [machine, other] = await group.start(2, { onEngineDown: 'local' });
    await machine.decide(ID, { ...TERMS, cost: 10 });
    const call = await useAlone(machine, 30);
    await other.decide(ID, { ...TERMS, cost: 50 });
    const calls = call.mock.calls.length;
    machine.worker.tick();
    await expect.poll(() => call.mock.calls.length).toBeGreaterThan(calls);
    call.mockRestore();
    machine.replaceWorker();
    await machine.request(ID, { kind: 'inspect', selector: ALL });
    expect(await used(other)).toBe(90);
  });

  test('are reported once by reports at the same time', async () => {
    const [machine, other] = await group.start(2, { onEngineDown: 'local' });
    await machine.decide(ID, { ...TERMS, cost: 10 });
    (await useAlone(machine, 30)).mockRestore();
    machine.worker.tick();
    const inspect = () => machine.request(ID, { kind: 'inspect', selector: ALL });
    await Promise.all([inspect(), inspect()]);
    expect(await used(other)).toBe(40);
  });
});
