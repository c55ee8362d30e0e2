/** Windows that end: the clock of the bucket is moved, as by a member that has seen a later one. */

import { describe, expect, it } from 'vitest';
import { MESSAGE_STATUS, SERVED } from '../../../../src/engine/redis/scripts/protocol.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { costs, newIdentity, useMembers } from '../script-member.ts';

const { allowed, denied, unproven } = SERVED;
/**
 * So long that the share of the window before stays the same while a case runs; and so short that
 * no case moves the clock by a day, after which members are removed.
 */
const DURATION_MS = 8 * 3_600_000;
const sliding = (cost: number, limit: number) => costs(cost, limit, { isSliding: true });
const newCounter = () => ({ identity: newIdentity(), durationMs: DURATION_MS });

describe.skipIf(isRedisMissing)('the exchange script at the end of a window', () => {
  const [a, b] = useMembers(2).members;

  /** Moves the clock to a quarter of a window: three quarters of the one before are carried. */
  const enter = async (window: number) => {
    a.header.clockUs = (window + 0.25) * DURATION_MS * 1_000;
    await a.call([]);
    await b.call([]);
  };
  const begin = async () => {
    const { window } = await a.send(newCounter());
    await enter(window + 1);
    return window + 1;
  };

  it('carries the share of the window before into a sliding window only', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window, checks: [costs(100, 100)] });
    await a.send({ ...of, window, spent: 100 });
    await enter(window + 1);
    const next = { ...of, window: window + 1, previousSpent: 100 };
    const answer = await a.send({ ...next, checks: [sliding(27, 100), sliding(24, 100)] });
    expect(answer).toMatchObject({ served: [denied, allowed], previousUse: 100 });
    const rest = await a.send({ ...next, spent: 24, checks: [costs(77, 100), costs(76, 100)] });
    expect(rest.served).toEqual([denied, allowed]);
    await enter(window + 3);
    expect((await b.send({ ...of, checks: [sliding(100, 100)] })).served).toEqual([allowed]);
  });

  it('takes late usage of the window before, and what is left of its lease', async () => {
    const of = newCounter();
    const window = await begin();
    const wanted = { wantsLease: true, rate: 1_000 };
    await a.send({ ...of, ...wanted, window, checks: [costs(1, 1_000)] });
    await enter(window + 1);
    // The lease counts as used as long as nothing else is known.
    const before = await b.send({ ...of, isSliding: true });
    expect(before).toMatchObject({ previousUse: 51, previousKnownUse: 0 });
    const late = await a.send({ ...of, window, spent: 11, kept: 0, isSliding: true });
    expect(late).toMatchObject({ window: window + 1, previousUse: 11, previousKnownUse: 11 });
    // Usage without tokens, as of asynchronous checks, is late too.
    const message = { ...of, window: window + 1, previousSpent: 40, hasPrevious: true };
    expect(await a.send(message)).toMatchObject({ previousUse: 40, previousKnownUse: 40 });
  });

  it('counts a lease as used that its holder may still use by an earlier message', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window, wantsLease: true, rate: 1_000, checks: [costs(1, 1_000)] });
    await enter(window + 1);
    const answer = await a.send({ ...of, window, spent: 11, kept: 40 });
    expect(answer).toMatchObject({ previousUse: 51, previousKnownUse: 11 });
  });

  it('takes nothing from a message that is older than what the window before knows', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window, checks: [costs(10, 100)] });
    const old = a.message({ ...of, window, spent: 10, isSliding: true });
    await a.send({ ...of, window, spent: 30 });
    await enter(window + 1);
    const { counters } = await a.call([old]);
    expect(counters[0].status).toBe(MESSAGE_STATUS.stale);
    expect((await b.send({ ...of, isSliding: true })).previousUse).toBe(30);
  });

  it('leaves the usage of a former slot in the window before', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window, checks: [costs(10, 100)] });
    await a.send({ ...of, window, spent: 10 });
    await enter(window + 1);
    const firstSequence = a.message({}).sequence + 1;
    for (const checks of [[sliding(1, 100)], [sliding(2, 100)]]) {
      const answer = await a.send({ ...of, firstSequence, checks });
      expect(answer).toMatchObject({ previousUse: 10, previousKnownUse: 10, others: 0 });
    }
  });

  it('grants a lease for sliding windows from what the window before leaves', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window, checks: [costs(1_000, 1_000)] });
    await a.send({ ...of, window, spent: 1_000 });
    await enter(window + 1);
    const next = { ...of, window: window + 1, previousSpent: 1_000 };
    const wanted = { ...next, wantsLease: true, rate: 1_000 };
    const first = await a.send({ ...wanted, checks: [sliding(200, 1_000)] });
    expect(first.lent).toBe(50);
    const second = await a.send({ ...wanted, spent: 245, checks: [sliding(1, 1_000)] });
    // 250 are left; floor rounds the carried share down, by less than a token.
    expect([4, 5]).toContain(second.lent);
    const prefetch = { ...wanted, spent: 246, lastLimit: 1_000 };
    expect([4, 5]).toContain((await a.send({ ...prefetch, isSliding: true })).lent);
    expect((await a.send(prefetch)).lent).toBe(50);
  });

  it('recalls what is left of leases of the window before for a sliding check', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window, wantsLease: true, rate: 1_000, checks: [costs(950, 1_000)] });
    await enter(window + 1);
    const waiting = await b.send({ ...of, checks: [sliding(270, 1_000)] });
    expect(waiting.served).toEqual([unproven]);
    expect(await a.receives('recall', of.identity)).toMatchObject([{ recall: 1 }]);
    await a.send({ ...of, window: window + 1, previousSpent: 950, hasPrevious: true });
    await b.receives('wake', of.identity);
    expect((await b.send({ ...of, checks: [sliding(270, 1_000)] })).served).toEqual([allowed]);
  });

  it('returns in the new window what an answer granted that was lost', async () => {
    const of = newCounter();
    const window = await begin();
    await a.send({ ...of, window: window - 1, checks: [costs(90, 100)] });
    const answer = await a.send({ ...of, window: window - 1, checks: [costs(100, 100)] });
    expect(answer).toMatchObject({ window, served: [allowed] });
  });
});
