import { describe, expect, it } from 'vitest';
import { DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import type { Identity } from '../../../../src/core/hash.ts';
import { exchange, exchangeAtMaxmemory } from '../../../../src/engine/redis/scripts/exchange.ts';
import {
  decodeExchange,
  encodeExchange,
} from '../../../../src/engine/redis/scripts/exchange-codec.ts';
import { hexOf } from '../../../../src/engine/redis/scripts/keys.ts';
import {
  CALL_STATUS,
  type CounterAnswer,
  type CounterMessage,
  MESSAGE_STATUS,
  SERVED,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { waitUntil } from '../../../support/server.ts';
import {
  connectMember,
  costs,
  newIdentity,
  PREFIX,
  type ScriptMember,
  useMembers,
} from '../script-member.ts';

const { allowed, denied, unproven } = SERVED;
/** One window that lasts until the year 2070: no test sees its end. */
const CENTURY = DURATION_MAX_MS;

const newCounter = (durationMs = CENTURY) => ({ identity: newIdentity(), durationMs, window: 0 });

describe.skipIf(isRedisMissing)('the exchange script', () => {
  const { redis, members } = useMembers(3);
  const [a, b, c] = members;

  const keyOf = (of: { identity: Identity; durationMs: number }, window = 0) => {
    return `${a.context.keys.counter(of.identity, of.durationMs)}:${window}`;
  };

  describe('checks', () => {
    it('are served in order while tokens are left', async () => {
      const of = newCounter();
      const answer = await a.send({ ...of, checks: [costs(3, 10), costs(8, 10), costs(7, 10)] });
      expect(answer.served).toEqual([allowed, denied, allowed]);
      expect(answer).toMatchObject({ status: MESSAGE_STATUS.done, window: 0, isStored: true });
      expect(answer).toMatchObject({ others: 0, lent: 0, recall: 0, refunded: 0 });
      expect(answer.leftUs).toBeGreaterThan(0);
    });

    it('of another member see the tokens that are gone, proven once they are reported', async () => {
      const of = newCounter();
      await a.send({ ...of, checks: [costs(6, 10)] });
      const before = await b.send({ ...of, checks: [costs(5, 10), costs(4, 10), costs(11, 10)] });
      expect(before.served).toEqual([unproven, allowed, denied]);
      expect(before).toMatchObject({ others: 0, othersDeducted: 6 });
      await a.send({ ...of, spent: 6 });
      const after = await b.send({ ...of, spent: 4, checks: [costs(1, 10)] });
      expect(after.served).toEqual([denied]);
      expect(after).toMatchObject({ others: 6, othersDeducted: 6 });
    });

    it('of cost 0 are always served, and make no counter', async () => {
      const of = newCounter();
      const answer = await a.send({ ...of, wantsLease: true, checks: [costs(0, 100)] });
      expect(answer).toMatchObject({ served: [allowed], isStored: false, lent: 0 });
      expect(await redis.command('EXISTS', keyOf(of))).toBe(0);
      await a.send({ ...of, checks: [costs(10, 10), costs(0, 10), costs(0, 1)] });
      expect((await b.send({ ...of, checks: [costs(0, 1)] })).served).toEqual([allowed]);
    });

    it('that are denied make no counter', async () => {
      const of = newCounter();
      const answer = await a.send({ ...of, checks: [costs(11, 10)] });
      expect(answer).toMatchObject({ served: [denied], isStored: false });
      expect(await redis.command('EXISTS', keyOf(of))).toBe(0);
    });

    it('that are denied are counted if they say so', async () => {
      const of = newCounter();
      const counted = costs(8, 10, { countsDenied: true });
      expect((await a.send({ ...of, checks: [costs(5, 10), counted] })).served).toEqual([1, 0]);
      const answer = await a.send({ ...of, spent: 13, checks: [costs(7, 20), costs(1, 20)] });
      expect(answer.served).toEqual([allowed, denied]);
    });

    it('with the largest limit and cost are exact', async () => {
      const of = newCounter();
      const limit = Number.MAX_SAFE_INTEGER;
      const first = await a.send({ ...of, checks: [costs(limit - 1, limit), costs(2, limit)] });
      expect(first.served).toEqual([allowed, denied]);
      const spent = limit - 1;
      const second = await a.send({ ...of, spent, checks: [costs(1, limit), costs(1, limit)] });
      expect(second.served).toEqual([allowed, denied]);
      const other = await b.send({ ...of, checks: [costs(1, limit)] });
      expect(other).toMatchObject({ served: [unproven], others: spent });
    });

    it('see limits of their own', async () => {
      const of = newCounter();
      const answer = await a.send({ ...of, checks: [costs(8, 10), costs(1, 5), costs(2, 10)] });
      expect(answer.served).toEqual([allowed, denied, allowed]);
    });
  });

  describe('messages', () => {
    it('that are repeated or late change nothing', async () => {
      const of = newCounter();
      const first = a.message({ ...of, checks: [costs(3, 10)] });
      const second = a.message({ ...of, spent: 3, checks: [costs(3, 10)] });
      const { counters: answers } = await a.call([second]);
      expect(answers[0].served).toEqual([allowed]);
      for (const message of [first, second]) {
        const { counters } = await a.call([message]);
        expect(counters[0]).toMatchObject({ status: MESSAGE_STATUS.stale, served: [] });
      }
      const answer = await a.send({ ...of, spent: 6, checks: [costs(4, 10), costs(1, 10)] });
      expect(answer.served).toEqual([allowed, denied]);
    });

    it('return the tokens of an answer that was lost', async () => {
      const of = newCounter();
      const wanted = { ...of, rate: 1_000, wantsLease: true };
      await a.send({ ...wanted, checks: [costs(60, 100)] });
      const answer = await a.send({ ...of, checks: [costs(100, 100)] });
      expect(answer.served).toEqual([allowed]);
    });

    it('of a new slot leave what an earlier slot used, however often the first is sent', async () => {
      const of = newCounter();
      await a.send({ ...of, checks: [costs(4, 10)] });
      await a.send({ ...of, spent: 4 });
      const { sequence } = a.message({});
      const slot = { ...of, firstSequence: sequence + 1 };
      // The answer to the first is lost.
      await a.send({ ...slot, checks: [costs(5, 10)] });
      const answer = await a.send({ ...slot, checks: [costs(6, 10), costs(1, 10)] });
      expect(answer).toMatchObject({ served: [allowed, denied], others: 4 });
    });

    it('of many counters are answered in one call', async () => {
      const counters = Array.from({ length: 16 }, () => newCounter());
      const messages = counters.map((of, i) => a.message({ ...of, checks: [costs(i, 10)] }));
      const answer = await a.call(messages);
      expect(answer.counters.map(({ served }) => served[0])).toEqual(
        messages.map((_, i) => (i > 10 ? denied : allowed)),
      );
    });

    it('about a window that Redis has not reached wait for its clock', async () => {
      const of = newCounter(60_000);
      const { window } = await a.send(of);
      const ahead = await a.send({ ...of, window: window + 2, checks: [costs(1, 10)] });
      expect(ahead.status).toBe(MESSAGE_STATUS.recovering);
    });
  });

  describe('leases', () => {
    const wants = (of: Partial<CounterMessage>, more: Partial<CounterMessage> = {}) => {
      return { ...of, wantsLease: true, rate: 1_000, ...more };
    };

    it('are at most 5 % of the limit, and are deducted', async () => {
      const of = newCounter();
      const answer = await a.send(wants(of, { checks: [costs(1, 1_000)] }));
      expect(answer).toMatchObject({ lent: 50, lentLimit: 1_000 });
      expect((await b.send({ ...of, checks: [costs(950, 1_000)] })).served).toEqual([unproven]);
      expect((await b.send({ ...of, checks: [costs(949, 1_000)] })).served).toEqual([allowed]);
    });

    it('are divided by rate and machines', async () => {
      const of = newCounter();
      const large = await a.send(wants(of, { checks: [costs(9_880, 10_000)] }));
      // 120 tokens are left for the only rate; rate * 15 s and 5 % are more.
      expect(large.lent).toBe(120);
      const other = newCounter();
      await b.send(wants(other, { rate: 3_000, checks: [costs(1, 10_000)] }));
      const fair = await a.send(wants(other, { spent: 0, checks: [costs(9_399, 10_000)] }));
      // b has 1 and 500; of the 100 that are left a has a quarter of the rate, more than 100 / 4 / 3.
      expect(fair.lent).toBe(25);
      const idle = await c.send({ ...newCounter(), wantsLease: true, checks: [costs(1, 121)] });
      // Without a rate: 120 / 4 / 3 is more than 5 % of the limit.
      expect(idle.lent).toBe(6);
    });

    it('are none below a limit of 20, after a denial, or without being wanted', async () => {
      for (const checks of [[costs(1, 19)], [costs(1, 100), costs(100, 100)], [costs(0, 100)]]) {
        expect((await a.send(wants(newCounter(), { checks }))).lent).toBe(0);
      }
      expect((await a.send({ ...newCounter(), checks: [costs(1, 100)] })).lent).toBe(0);
      expect((await a.send(wants(newCounter(), { checks: [costs(1, 20)] }))).lent).toBe(1);
    });

    it('are for the smallest limit of the checks', async () => {
      const of = newCounter();
      const answer = await a.send(wants(of, { checks: [costs(1, 1_000), costs(1, 100)] }));
      expect(answer).toMatchObject({ lent: 5, lentLimit: 100 });
    });

    it('grow by a message without checks by what is missing', async () => {
      const of = newCounter();
      await a.send(wants(of, { checks: [costs(1, 1_000)] }));
      const message = { spent: 31, kept: 20, lastLimit: 1_000 };
      expect(await a.send(wants(of, message))).toMatchObject({ lent: 30, lentLimit: 1_000 });
      // The tokens are u = 31 + 20 + 30.
      expect((await b.send({ ...of, checks: [costs(920, 1_000)] })).served).toEqual([unproven]);
      expect((await b.send({ ...of, checks: [costs(919, 1_000)] })).served).toEqual([allowed]);
    });

    it('that are returned serve others', async () => {
      const of = newCounter();
      await a.send(wants(of, { checks: [costs(50, 1_000)] }));
      await a.send({ ...of, spent: 60, kept: 0 });
      const rest = await b.send({ ...of, checks: [costs(941, 1_000), costs(940, 1_000)] });
      expect(rest.served).toEqual([denied, allowed]);
    });
  });

  describe('recalls', () => {
    const lend = async (holder: ScriptMember, of: ReturnType<typeof newCounter>) => {
      const message = { ...of, wantsLease: true, rate: 1_000, checks: [costs(900, 1_000)] };
      const { lent } = await holder.send(message);
      expect(lent).toBe(50);
    };
    it('go to holders when a check could be served with their leases', async () => {
      const of = newCounter();
      await lend(a, of);
      const waiting = await b.send({ ...of, checks: [costs(90, 1_000)] });
      expect(waiting).toMatchObject({ served: [unproven], recall: 1, lent: 0 });
      const [recall] = await a.receives('recall', of.identity);
      expect(recall).toEqual({ ...of, kind: 'recall', recall: 1 });
      await a.send({ ...of, spent: 905 });
      await b.receives('wake', of.identity);
      const served = await b.send({ ...of, checks: [costs(90, 1_000)] });
      expect(served.served).toEqual([allowed]);
      expect(
        c.received.filter((one) => 'identity' in one && one.identity.h0 === of.identity.h0),
      ).toEqual([]);
    });

    it('are not caused by a check that fits in no case', async () => {
      const of = newCounter();
      await lend(a, of);
      await a.send({ ...of, spent: 901, kept: 49 });
      const answer = await b.send({ ...of, checks: [costs(100, 1_000)] });
      expect(answer).toMatchObject({ served: [denied], recall: 0, others: 901 });
    });

    it('wake the waiting member with a proof when the lease was used up', async () => {
      const of = newCounter();
      await lend(a, of);
      await b.send({ ...of, checks: [costs(60, 1_000)] });
      await a.send({ ...of, spent: 950 });
      await b.receives('wake', of.identity);
      const answer = await b.send({ ...of, checks: [costs(60, 1_000)] });
      expect(answer).toMatchObject({ served: [denied], others: 950 });
    });

    it('write a silent holder off: its tokens count as used until it is heard again', async () => {
      const of = newCounter();
      await lend(a, of);
      let answer: CounterAnswer | undefined;
      let writtenOff = 0;
      await waitUntil('the holder is written off', async () => {
        answer = await b.send({ ...of, checks: [costs(60, 1_000)] });
        writtenOff += answer.writtenOff;
        return answer.served[0] === denied;
      });
      expect(answer).toMatchObject({ served: [denied], others: 950 });
      expect(writtenOff).toBe(1);
      await a.send({ ...of, spent: 910 });
      const served = await b.send({ ...of, checks: [costs(90, 1_000)] });
      expect(served).toMatchObject({ served: [allowed], others: 910 });
    });

    it('write a holder off at once if nobody has its channel', async () => {
      const of = newCounter();
      const gone = await connectMember(redis.port, `${'f'.repeat(16)}.0`);
      await waitUntil('it has joined', async () => {
        for (const other of members) await other.call([]);
        return (await gone.call([])).status === CALL_STATUS.done;
      });
      await lend(gone, of);
      gone.close();
      await waitUntil('the server has noticed', async () => {
        const channel = a.context.keys.channel(0, gone.name);
        const [, receivers] = (await redis.command('PUBSUB', 'NUMSUB', channel)) as [
          string,
          number,
        ];
        return receivers === 0;
      });
      const answer = await b.send({ ...of, checks: [costs(60, 1_000)] });
      expect(answer).toMatchObject({ served: [denied], others: 950 });
    });

    it('are caused by a message that says so, without a check', async () => {
      const of = newCounter();
      await lend(a, of);
      await b.send({ ...of, recalls: true });
      await a.receives('recall', of.identity);
      await a.send({ ...of, spent: 900 });
      await b.receives('wake', of.identity);
      expect((await b.send(of)).others).toBe(900);
    });

    it('keep new leases back for a while', async () => {
      await waitUntil('both messages are answered within that time', async () => {
        const of = newCounter();
        await lend(a, of);
        await b.send({ ...of, checks: [costs(60, 1_000)] });
        const recalledAt = b.header.clockUs;
        const message = { ...of, spent: 900, wantsLease: true, rate: 1_000 };
        const answer = await a.send({ ...message, checks: [costs(1, 1_000)] });
        if (a.header.clockUs - recalledAt >= 12_000) return false;
        expect(answer).toMatchObject({ served: [allowed], lent: 0 });
        return true;
      });
    });
  });

  describe('refunds', () => {
    it('return used tokens of the current window, at most all', async () => {
      const of = newCounter();
      await a.send({ ...of, checks: [costs(8, 10)] });
      await a.send({ ...of, spent: 8 });
      const refund = await b.send({ ...of, refund: 5, refundWindow: 0 });
      expect(refund).toMatchObject({ refunded: 5, others: 8, status: MESSAGE_STATUS.done });
      const spent = -5;
      const next = await b.send({ ...of, spent, checks: [costs(8, 10), costs(7, 10)] });
      expect(next).toMatchObject({ served: [denied, allowed], others: 8 });
      const all = await b.send({ ...of, spent: spent + 7, refund: 100, refundWindow: 0 });
      expect(all.refunded).toBe(10);
      expect((await a.send({ ...of, spent: 8 })).others).toBe(-8);
    });

    it('of another window return nothing', async () => {
      const of = newCounter(60_000);
      const { window } = await a.send({ ...of, checks: [costs(8, 10)] });
      const message = { ...of, window, spent: 8, refund: 5, refundWindow: window - 1 };
      expect((await a.send(message)).refunded).toBe(0);
    });

    it('recall leases first if too little is known to be used', async () => {
      const of = newCounter();
      await a.send({ ...of, wantsLease: true, rate: 1_000, checks: [costs(1, 1_000)] });
      const message = { ...of, refund: 20, refundWindow: 0 };
      const early = await b.send(message);
      expect(early).toMatchObject({ status: MESSAGE_STATUS.retryRefund, refunded: 0, recall: 1 });
      await a.send({ ...of, spent: 31 });
      expect(await b.send(message)).toMatchObject({ status: MESSAGE_STATUS.done, refunded: 20 });
    });
  });

  describe('denials by the known use', () => {
    const full = async () => {
      const of = newCounter();
      await a.send({ ...of, checks: [costs(10, 10)] });
      await a.send({ ...of, spent: 10 });
      return of;
    };

    it('may be repeated by the member, which is told when that use falls, once', async () => {
      const of = await full();
      expect(await b.send(of)).toMatchObject({ mayDeny: false, isStored: false });
      const answer = await b.send({ ...of, checks: [costs(1, 10)] });
      expect(answer).toMatchObject({ served: [denied], mayDeny: true, isStored: true });
      expect((await b.send(of)).mayDeny).toBe(true);
      await a.send({ ...of, spent: 10, refund: 2, refundWindow: 0 });
      await b.receives('wake', of.identity);
      expect((await b.send(of)).mayDeny).toBe(false);
      const { length } = b.received;
      await a.send({ ...of, spent: 8, refund: 2, refundWindow: 0 });
      await c.send({ ...of, checks: [costs(7, 10)] });
      await a.send({ ...of, spent: 6, refund: 1, refundWindow: 0 });
      await c.receives('wake', of.identity);
      expect(b.received.length).toBe(length);
    });

    it('may be repeated by a member that only knows that nothing is used', async () => {
      const of = newCounter();
      const answer = await a.send({ ...of, checks: [costs(11, 10)] });
      expect(answer).toMatchObject({ served: [denied], mayDeny: true, isStored: false });
    });

    it('are those of a member of checks with cost 0 too', async () => {
      const of = await full();
      expect(await b.send({ ...of, checks: [costs(0, 10)] })).toMatchObject({ mayDeny: true });
      await a.send({ ...of, spent: 10, refund: 2, refundWindow: 0 });
      await b.receives('wake', of.identity);
    });

    it('end for the member that makes the use fall without a message to it', async () => {
      const of = await full();
      await b.send({ ...of, checks: [costs(1, 10)] });
      const { length } = b.received;
      const answer = await b.send({ ...of, refund: 2, refundWindow: 0 });
      expect(answer).toMatchObject({ mayDeny: true, others: 10, refunded: 2 });
      await a.send({ ...of, spent: 10, refund: 1, refundWindow: 0 });
      await b.receives('wake', of.identity);
      expect(b.received.length).toBe(length + 1);
    });
  });

  describe('the keys', () => {
    it('expire with the next window, and are in the index of their identity', async () => {
      const of = newCounter(60_000);
      const { window } = await a.send({ ...of, checks: [costs(8, 10)] });
      const expiry = (window + 2) * 60_000;
      expect(await redis.command('PEXPIRETIME', keyOf(of, window))).toBe(expiry);
      const index = `${PREFIX}:{0}:i:${hexOf(of.identity)}`;
      expect(await redis.command('HGETALL', index)).toEqual(['w:60000', String(expiry)]);
      expect(await redis.command('PEXPIRETIME', index)).toBe(expiry);
      const longer = { ...of, durationMs: CENTURY, window: 0 };
      await a.send({ ...longer, checks: [costs(8, 10)] });
      expect(await redis.command('PEXPIRETIME', index)).toBe(2 * CENTURY);
    });

    it('are not made at maxmemory, while counters that exist go on', async () => {
      const old = newCounter();
      await a.send({ ...old, checks: [costs(8, 10)] });
      const limit = String(await redis.command('CONFIG', 'GET', 'maxmemory')).split(',')[1];
      await redis.command('CONFIG', 'SET', 'maxmemory', '1');
      try {
        const messages = [old, newCounter()].map((of) =>
          a.message({ ...of, checks: [costs(1, 10)] }),
        );
        const call = encodeExchange(a.context, 0, a.header, messages);
        await expect(a.run(exchange, call)).rejects.toThrow(/^OOM/);
        const answer = decodeExchange(messages, await a.run(exchangeAtMaxmemory, call));
        expect(answer.counters.map(({ status }) => status)).toEqual([
          MESSAGE_STATUS.done,
          MESSAGE_STATUS.full,
        ]);
      } finally {
        await redis.command('CONFIG', 'SET', 'maxmemory', limit);
      }
    });
  });
});
