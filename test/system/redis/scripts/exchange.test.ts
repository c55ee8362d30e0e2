/** What `model.test.ts` does not compare: keys and their expiry, a full Redis, the largest numbers. */

import { describe, expect, it } from 'vitest';
import { DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import {
  decodeExchange,
  encodeExchange,
  exchange,
  exchangeAtMaxmemory,
} from '../../../../src/engine/redis/scripts/exchange.ts';
import { hexOf } from '../../../../src/engine/redis/scripts/keys.ts';
import {
  CALL_STATUS,
  MESSAGE_STATUS,
  SERVED,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { QUIET_US, WRITE_OFF_US } from '../../../../src/engine/redis/scripts/protocol-constants.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { waitUntil } from '../../../support/server.ts';
import { connectMember, costs, newIdentity, PREFIX, useMembers } from '../script-member.ts';

const { allowed, denied, unproven } = SERVED;
/** One window that lasts until the year 2070: no test sees its end. */
const CENTURY = DURATION_MAX_MS;
const SECOND_US = 1_000_000;

const newCounter = () => ({ identity: newIdentity(), durationMs: CENTURY, window: 0 });

describe.skipIf(isRedisMissing)('the exchange script', () => {
  const { redis, members } = useMembers(2);
  const [a, b] = members;

  it('is exact with the largest limit and cost', async () => {
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

  it('takes over the record of the process before, again where a server has only that', async () => {
    const of = newCounter();
    b.context.predecessor = a.name.split('.')[0];
    await a.send({ ...of, checks: [costs(20, 100)] });
    await a.send({ ...of, spent: 20 });
    const key = `${a.context.keys.counter(of.identity, CENTURY)}:0`;
    await a.command('COPY', key, 'replica');
    const inherited = { ...of, isStored: true, inherits: 1 };
    await b.send({ ...inherited, spent: 20, checks: [costs(5, 100)] });
    expect(await b.send({ ...inherited, spent: 25 })).toMatchObject({ others: 0 });
    await a.command('COPY', 'replica', key, 'REPLACE');
    expect(await b.send({ ...inherited, spent: 25 })).toMatchObject({ others: 0 });
    const checks = [costs(75, 100), costs(1, 100)];
    const { served } = await b.send({ ...inherited, spent: 25, checks });
    expect(served).toEqual([allowed, denied]);
  });

  it('serves a sliding window that began in 1970: no recovery is later than the one before', async () => {
    const of = { ...newCounter(), isSliding: true };
    const answer = await a.send({ ...of, checks: [{ ...costs(4, 5), isSliding: true }] });
    expect(answer).toMatchObject({ window: 0, served: [allowed] });
    const other = await b.send({ ...of, checks: [{ ...costs(2, 5), isSliding: true }] });
    expect(other.served).toEqual([unproven]);
  });

  it('grants a lease of at most 5 % of the limit, and of the rate in 15 s', async () => {
    const of = newCounter();
    const wanted = { ...of, wantsLease: true, checks: [costs(1, 10_000)] };
    expect((await a.send({ ...wanted, rate: 1_000 })).lent).toBe(500);
    expect((await b.send({ ...of, checks: [costs(9_500, 10_000)] })).served).toEqual([unproven]);
    expect((await b.send({ ...of, checks: [costs(9_499, 10_000)] })).served).toEqual([allowed]);
    const slow = { ...wanted, ...newCounter(), checks: [costs(1, 1_000_000)] };
    // A rate of 9 000 gets 135 000 in 15 s, more than 5 %; without a rate it is an eighth.
    expect((await a.send({ ...slow, rate: 9_000 })).lent).toBe(50_000);
    // Of 200 000 tokens an eighth is 25 000.
    const used = { ...wanted, ...newCounter(), checks: [costs(800_000, 1_000_000)] };
    expect((await a.send({ ...used, rate: 2_000 })).lent).toBe(30_000);
    const rest = { ...wanted, ...newCounter(), checks: [costs(999_201, 1_000_000)] };
    expect((await a.send(rest)).lent).toBe(99);
  });

  it('writes a holder off at once if nobody has its channel', async () => {
    const of = newCounter();
    const gone = await connectMember(redis.port, `${'f'.repeat(16)}.0`);
    await waitUntil('it has joined', async () => {
      for (const other of members) await other.call([]);
      return (await gone.call([])).status === CALL_STATUS.done;
    });
    const message = { ...of, wantsLease: true, rate: 1_000, checks: [costs(900, 1_000)] };
    expect((await gone.send(message)).lent).toBe(50);
    gone.close();
    await waitUntil('the server has noticed', async () => {
      const channel = a.context.keys.channel(0, gone.name);
      const [, receivers] = (await redis.command('PUBSUB', 'NUMSUB', channel)) as [string, number];
      return receivers === 0;
    });
    const answer = await b.send({ ...of, checks: [costs(60, 1_000)] });
    expect(answer).toMatchObject({ served: [denied], others: 950 });
  });

  it('recalls a lease before it writes it off, also after a recall of another', async () => {
    const of = newCounter();
    const large = { ...of, checks: [costs(960, 1_000)] };
    const wanted = { ...of, wantsLease: true, rate: 1_000, checks: [costs(1, 1_000)] };
    expect((await a.send(wanted)).lent).toBe(50);
    expect((await b.send(large)).served).toEqual([unproven]);
    await a.send({ ...of, kept: 1 });
    a.header.clockUs += QUIET_US;
    expect((await a.send({ ...wanted, kept: 1 })).lent).toBe(49);
    b.header.clockUs = a.header.clockUs + SECOND_US;
    expect(await b.send(large)).toMatchObject({ served: [unproven], writtenOff: 0 });
    b.header.clockUs += WRITE_OFF_US;
    expect(await b.send(large)).toMatchObject({ served: [denied], writtenOff: 1 });
  });

  it('makes keys that expire with the next window, and are in the index', async () => {
    const of = { ...newCounter(), durationMs: 60_000 };
    const { window } = await a.send({ ...of, checks: [costs(8, 10)] });
    const expiry = (window + 2) * 60_000;
    const key = `${a.context.keys.counter(of.identity, of.durationMs)}:${window}`;
    expect(await redis.command('PEXPIRETIME', key)).toBe(expiry);
    const index = `${PREFIX}:{0}:i:${hexOf(of.identity)}`;
    expect(await redis.command('HGETALL', index)).toEqual(['w:60000', String(expiry)]);
    expect(await redis.command('PEXPIRETIME', index)).toBe(expiry);
    await a.send({ ...of, durationMs: CENTURY, window: 0, checks: [costs(8, 10)] });
    expect(await redis.command('PEXPIRETIME', index)).toBe(2 * CENTURY);
  });

  it('makes no key at maxmemory, while counters that exist go on', async () => {
    const old = newCounter();
    await a.send({ ...old, checks: [costs(8, 10)] });
    await redis.command('CONFIG', 'SET', 'maxmemory', '1');
    try {
      const messages = [old, newCounter()].map((of) => {
        return a.message({ ...of, checks: [costs(1, 10)] });
      });
      const call = encodeExchange(a.context, 0, a.header, messages);
      await expect(a.run(exchange, call)).rejects.toThrow(/^OOM/);
      const answer = decodeExchange(messages, await a.run(exchangeAtMaxmemory, call));
      const { done, full } = MESSAGE_STATUS;
      expect(answer.counters.map(({ status }) => status)).toEqual([done, full]);
    } finally {
      await redis.command('CONFIG', 'SET', 'maxmemory', '0');
    }
  });
});
