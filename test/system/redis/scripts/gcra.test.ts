import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AMOUNT_MAX, DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import type { Decision } from '../../../../src/core/decision.ts';
import type { Identity } from '../../../../src/core/hash.ts';
import { NO_BURST, RULE } from '../../../../src/core/window-rules.ts';
import {
  decodeGcra,
  encodeGcra,
  gcra,
  gcraAtMaxmemory,
} from '../../../../src/engine/redis/scripts/gcra.ts';
import { hexOf } from '../../../../src/engine/redis/scripts/keys.ts';
import {
  type GcraAnswer,
  type GcraMessage,
  type GcraReport,
  type GcraState,
  MESSAGE_STATUS,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { countGcra, refundGcra, gcra as rule } from '../../../../src/engine/windows/gcra.ts';
import { type Cells, newCells } from '../../../../src/engine/windows/rule.ts';
import { trialCount } from '../../../support/guarantees.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { newIdentity, PREFIX, useMembers } from '../script-member.ts';

const DAY = 86_400_000;

describe.skipIf(isRedisMissing)('the GCRA script', () => {
  const { redis, members } = useMembers(1);
  const [member] = members;

  const send = async (messages: readonly (GcraMessage | GcraReport)[], script = gcra) => {
    const call = encodeGcra(member.context, 0, member.header, messages);
    return decodeGcra(messages, await member.run(script, call)).counters;
  };
  const check = (identity: Identity, cost: number, more: Partial<GcraMessage> = {}) => {
    const base = { identity, durationMs: DAY, limit: 10, burst: NO_BURST, countsDenied: false };
    return { ...base, cost, ...more };
  };
  const allowed = async (messages: readonly GcraMessage[]) => {
    return (await send(messages)).map(({ isAllowed }) => isAllowed);
  };

  it('keeps a bucket until it is full, and tells the index', async () => {
    const id = newIdentity();
    const [answer] = await send([check(id, 5)]);
    const key = member.context.keys.gcra(id, DAY);
    expect(await redis.command('PEXPIRETIME', key)).toBe(answer.state.newest + 1_000);
    const index = `${PREFIX}:{0}:i:${hexOf(id)}`;
    const [[name], expiry] = await Promise.all([
      redis.command('HKEYS', index) as Promise<string[]>,
      redis.command('PEXPIRETIME', index) as Promise<number>,
    ]);
    expect(name).toBe(`g:${DAY}`);
    expect(expiry).toBeGreaterThan(answer.state.newest + 1_000);
  });

  it('restores a bucket from the newest report', async () => {
    const id = newIdentity();
    const [, latest] = await send([check(id, 3), check(id, 4)]);
    await redis.command('DEL', member.context.keys.gcra(id, DAY));
    await send([{ identity: id, durationMs: DAY, ...latest.state }]);
    await send([{ identity: id, durationMs: DAY, ...latest.state, newest: 5 }]);
    expect(await allowed([check(id, 4), check(id, 3)])).toEqual([false, true]);
  });

  it('keeps what was used when the limit changes', async () => {
    const raised = newIdentity();
    const used = await send([check(raised, 2, { limit: 2 })]);
    const more = [check(raised, 98, { limit: 100 }), check(raised, 1, { limit: 100 })];
    expect(await allowed(more)).toEqual([true, false]);
    // The bucket of the larger limit is full earlier, but misses more.
    const [full] = await send([check(raised, 0, { limit: 100 })]);
    await redis.command('DEL', member.context.keys.gcra(raised, DAY));
    const reports = [full, ...used].map(({ state }) => ({
      identity: raised,
      durationMs: DAY,
      ...state,
    }));
    await send(reports);
    expect(await allowed([check(raised, 1, { limit: 100 })])).toEqual([false]);

    const lowered = newIdentity();
    const [, denied] = await send([
      check(lowered, 50, { limit: 100 }),
      check(lowered, 1, { limit: 2 }),
    ]);
    expect(denied).toMatchObject({ isAllowed: false, remaining: 0 });
    expect(denied.reset - denied.window).toBe(0.49 * DAY);
  });

  it('makes no bucket at maxmemory, while those that exist go on', async () => {
    const id = newIdentity();
    await send([check(id, 3)]);
    await redis.command('CONFIG', 'SET', 'maxmemory', '1');
    try {
      const messages = [check(id, 3), check(newIdentity(), 3)];
      await expect(send(messages)).rejects.toThrow(/^OOM/);
      const statuses = (await send(messages, gcraAtMaxmemory)).map(({ status }) => status);
      expect(statuses).toEqual([MESSAGE_STATUS.done, MESSAGE_STATUS.full]);
    } finally {
      await redis.command('CONFIG', 'SET', 'maxmemory', '0');
    }
  });

  it('is fenced in a recovery, until a bucket would be full', async () => {
    const id = newIdentity();
    const short = check(id, 3, { durationMs: 5_000 });
    const [before] = await send([short]);
    expect(before.status).toBe(MESSAGE_STATUS.done);
    await redis.command('FLUSHALL');
    expect(await member.present([`${'f'.repeat(16)}.0`])).toBe(0);
    member.finishReport();
    const [during] = await send([short]);
    expect(during.status).toBe(MESSAGE_STATUS.recovering);
    member.header.clockUs += 7_000_000;
    const [after] = await send([short]);
    expect(after).toMatchObject({ status: MESSAGE_STATUS.done, isAllowed: true });
    await redis.command('FLUSHALL');
    expect(await member.present()).toBe(0);
    member.finishReport();
    await member.call([]);
  });

  const steps = (limits: fc.Arbitrary<number>, costs: fc.Arbitrary<number>) => {
    const step = fc.record({
      limit: limits,
      burst: fc.oneof(fc.constant(NO_BURST), limits),
      cost: costs,
      countsDenied: fc.boolean(),
      action: fc.constantFrom('check', 'check', 'refund'),
    });
    return fc.array(step, { minLength: 1, maxLength: 16 });
  };
  type Step = ReturnType<typeof steps> extends fc.Arbitrary<(infer T)[]> ? T : never;
  const messagesOf = (list: readonly Step[], identity: Identity, durationMs: number) => {
    return list.map(({ action, cost, ...step }) => {
      return { ...step, identity, durationMs, cost: action === 'check' ? cost : -cost };
    });
  };
  /** What the rule of the memory engine makes of the same messages at the same time. */
  const expected = (cells: Cells, message: GcraMessage, nowMs: number) => {
    const decision = { allowed: false, remaining: 0, reset: 0, window: 0 } as Decision;
    let refunded = 0;
    const { cost, countsDenied } = message;
    const parameters = { ...message, rule: RULE.gcra };
    if (cost < 0) {
      refunded = refundGcra(cells, nowMs, message.durationMs, -cost);
    } else {
      rule.judge(cells, nowMs, parameters, decision);
      const { limit, durationMs } = message;
      if (cost > 0 && decision.allowed) countGcra(cells, nowMs, cost, parameters);
      else if (cost > 0 && countsDenied && limit > 0 && decision.reset - nowMs < durationMs) {
        countGcra(cells, nowMs, Math.min(cost, limit), parameters);
        rule.judge(cells, nowMs, parameters, decision);
        decision.remaining = 0;
      }
    }
    const { allowed: isAllowed, remaining, reset } = decision;
    return { isAllowed, remaining, refunded, reset };
  };
  /** What a bucket misses, in tokens times the duration. */
  const missing = ({ newest, current, limit }: GcraState, nowMs: number) => {
    return BigInt(newest - nowMs) * BigInt(limit) - BigInt(current);
  };
  const cellsOf = ({ state }: GcraAnswer): Cells => ({ ...state, previous: state.current });

  it('decides as the memory engine', async () => {
    const amounts = fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 1e7 }));
    const durations = fc.oneof(fc.integer({ min: 1_000, max: 1e6 }), fc.constant(DURATION_MAX_MS));
    const costs = fc.oneof(fc.constant(0), amounts);
    const property = fc.asyncProperty(
      steps(amounts, costs),
      durations,
      async (list, durationMs) => {
        const messages = messagesOf(list, newIdentity(), durationMs);
        const answers = await send(messages);
        const cells = newCells();
        for (const [i, message] of messages.entries()) {
          const { isAllowed, remaining, refunded, window, state } = answers[i];
          // A refund has no reset.
          const reset = message.cost < 0 ? 0 : answers[i].reset;
          expect({ isAllowed, remaining, refunded, reset }).toEqual(
            expected(cells, message, window),
          );
          // Beyond the largest time the script rounds; a denial has counted more than ages.
          if (cells.newest >= AMOUNT_MAX) return;
          if (cells.newest > window) expect(state).toMatchObject({ newest: cells.newest });
        }
      },
    );
    await fc.assert(property, { numRuns: trialCount(100, 1_000) });
  });

  it('never allows more than the memory engine, with numbers of any size', async () => {
    const amounts = fc.oneof(
      fc.integer({ min: 1, max: AMOUNT_MAX }),
      fc.integer({ min: 0, max: 52 }).map((bits) => 2 ** bits),
    );
    const property = fc.asyncProperty(
      steps(amounts, amounts),
      fc.integer({ min: 1_000, max: DURATION_MAX_MS }),
      async (list, durationMs) => {
        const messages = messagesOf(list, newIdentity(), durationMs);
        const answers = await send(messages);
        let cells = newCells();
        for (const [i, message] of messages.entries()) {
          const answer = answers[i];
          const most = expected(cells, message, answer.window);
          if (answer.isAllowed) expect(most.isAllowed).toBe(true);
          expect(answer.remaining).toBeLessThanOrEqual(most.remaining);
          // The next step begins where the script is, which has allowed less if anything.
          if (answer.isAllowed === most.isAllowed && message.cost > 0) {
            expect(missing(answer.state, answer.window) >= missing(cells, answer.window)).toBe(
              true,
            );
          }
          cells = cellsOf(answer);
        }
      },
    );
    await fc.assert(property, { numRuns: trialCount(100, 1_000) });
  });
});
