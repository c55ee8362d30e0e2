/** What `members-model.test.ts` does not compare: the usage of counters, and real losses of memory. */

import { afterEach, describe, expect, it } from 'vitest';
import { DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import {
  decodeExchange,
  encodeExchange,
  exchangeAtMaxmemory,
} from '../../../../src/engine/redis/scripts/exchange.ts';
import { KeySpace } from '../../../../src/engine/redis/scripts/keys.ts';
import {
  decodeForgetMembers,
  decodeListMembers,
  encodeForgetMembers,
  encodeListMembers,
  forgetMembers,
  listMembers,
} from '../../../../src/engine/redis/scripts/members.ts';
import {
  CALL_STATUS,
  type CounterMessage,
  MESSAGE_STATUS,
  SERVED,
} from '../../../../src/engine/redis/scripts/protocol.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { waitUntil } from '../../../support/server.ts';
import {
  connectMember,
  costs,
  IDENTITY,
  joinMembers,
  PREFIX,
  type ScriptMember,
} from '../script-member.ts';
import { restartEmpty, useEmptyRedis } from '../use-redis.ts';

/** One window that lasts until the year 2070: no test sees its end. */
const OF = { identity: IDENTITY, durationMs: DURATION_MAX_MS, window: 0 };
const context = { keys: new KeySpace(PREFIX, false), isAvailable: false };
const KEY = `${context.keys.counter(IDENTITY, OF.durationMs)}:0`;
const SECOND_US = 1_000_000;

describe.skipIf(isRedisMissing)('the members of a bucket', () => {
  // Redis writes its file at each change. The kernel keeps it when the process is killed.
  const redis = useEmptyRedis({ config: ['appendonly yes', 'appendfsync no'] });
  let members: ScriptMember[] = [];
  afterEach(() => {
    for (const member of members.splice(0)) member.close();
  });

  const connect = async (name: string, isAvailable = false) => {
    const member = await connectMember(redis.port, `${name.repeat(16)}.0`, { isAvailable });
    members.push(member);
    return member;
  };
  const join = async (count: number) => {
    members = await joinMembers(redis.port, count);
    return members;
  };
  const statusOf = async (member: ScriptMember) => (await member.call([])).status;
  const list = async (member: ScriptMember) => {
    return decodeListMembers(await member.run(listMembers, encodeListMembers(context, 0)));
  };
  const forget = async (member: ScriptMember, name: string) => {
    return decodeForgetMembers(
      await member.run(forgetMembers, encodeForgetMembers(context, 0, name)),
    );
  };
  /** What happens in a recovery: the member presents what it knows, and reports its counter. */
  const report = async (
    member: ScriptMember,
    spent: number,
    kept: number,
    known: string[] = [],
  ) => {
    expect(await member.present(known)).toBe(CALL_STATUS.done);
    const answer = await member.send({ ...OF, spent, kept, lastLimit: 100 });
    expect(answer.status).toBe(MESSAGE_STATUS.done);
    member.finishReport();
    expect(await statusOf(member)).toBe(CALL_STATUS.done);
  };
  /** Reports the counter too, if Redis requests it. */
  const check = async (
    member: ScriptMember,
    spent: number,
    cost: number,
    more: Partial<CounterMessage> = {},
  ) => {
    const isStored = spent > 0;
    const message = { ...OF, spent, isStored, checks: [costs(cost, 100)], ...more };
    const answer = await member.send(message);
    return answer.report === 0 ? answer : member.send({ ...message, report: answer.report });
  };
  const waits = { isUnknown: true, served: [SERVED.unproven] };

  it('that know no others do not open a server that has just started', async () => {
    const a = await connect('a');
    expect(await a.present([], 1_000_000)).toBe(CALL_STATUS.joining);
    expect(await redis.command('DBSIZE')).toBe(0);
    a.header.reportedEpoch = `${'0'.repeat(40)}.1`;
    expect(await a.present([], 1_000_000)).toBe(CALL_STATUS.done);
  });

  it.each([true, false])('open a Redis that is at maxmemory (empty: %s)', async (isEmpty) => {
    const [a] = await join(1);
    await redis.kill();
    await redis.restart({ isEmpty });
    await redis.command('CONFIG', 'SET', 'maxmemory', '1');
    try {
      const call = encodeExchange(context, 0, a.header, []);
      const status = async () => {
        return decodeExchange([], await a.run(exchangeAtMaxmemory, call)).status;
      };
      expect(await status()).toBe(CALL_STATUS.needsMembers);
      expect(await a.present([a.name])).toBe(CALL_STATUS.done);
      expect(await status()).toBe(CALL_STATUS.done);
    } finally {
      await redis.command('CONFIG', 'SET', 'maxmemory', '0');
    }
  });

  it('count as machines while they have called within 3 s', async () => {
    await join(2);
    const c = await connect('c');
    expect(await statusOf(c)).toBe(CALL_STATUS.joining);
    c.header.clockUs += 4 * SECOND_US;
    const answer = await c.call([]);
    expect(answer).toMatchObject({ status: CALL_STATUS.done, machineCount: 1 });
  });

  it('are listed, and can be forgotten', async () => {
    const [a, b] = await join(2);
    const before = await list(a);
    expect(before.members.map(({ member }) => member).sort()).toEqual([a.name, b.name]);
    expect(before.members.every(({ hasJoined, isAwaited }) => hasJoined && !isAwaited)).toBe(true);
    expect(await forget(a, b.name.split('.')[0])).toBe(1);
    const after = await list(a);
    expect(after.members.map(({ member }) => member)).toEqual([a.name]);
    expect(after.version).toBeGreaterThan(before.version);
    expect(await forget(a, b.name)).toBe(0);
    // It is alive after all: it joins again, and no recovery begins.
    await waitUntil('it has joined', async () => {
      await a.call([]);
      return (await statusOf(b)) === CALL_STATUS.done;
    });
    expect((await list(a)).isRecovering).toBe(false);
  });

  it.each([true, false])(
    'restore all usage after a restart of Redis (empty: %s)',
    async (isEmpty) => {
      const [a, b] = await join(2);
      expect((await check(a, 0, 30)).served).toEqual([SERVED.allowed]);
      expect((await check(b, 0, 20)).served).toEqual([SERVED.allowed]);
      await redis.kill();
      await redis.restart({ isEmpty });
      await waitUntil('recalls reach both', async () => {
        const channels = [a, b].map(({ name }) => context.keys.channel(0, name));
        const reply = (await redis.command('PUBSUB', 'NUMSUB', ...channels)) as unknown[];
        return reply.filter((count) => count === 1).length === 2;
      });
      expect(await statusOf(a)).toBe(CALL_STATUS.needsMembers);
      await report(a, 33, 2, [a.name, b.name]);
      expect(await check(a, 33, 1, { kept: 2 })).toMatchObject(waits);
      expect(await statusOf(b)).toBe(CALL_STATUS.needsMembers);
      await report(b, 20, 0, [a.name, b.name]);
      // It has reported everything, and not answered the request for this counter yet.
      const answer = await check(b, 20, 46);
      expect(answer).toMatchObject({ isUnknown: false, served: [SERVED.unproven] });
      expect((await check(b, 20, 45)).served).toEqual([SERVED.allowed]);
      expect(await b.call([])).toMatchObject({ isRecovering: false, openedUs: 0 });
    },
  );

  it('restore the usage of a counter that was deleted', async () => {
    const [a, b] = await join(2);
    await check(a, 0, 30);
    await check(b, 0, 20);
    await redis.command('DEL', KEY);
    expect(await check(a, 30, 1)).toMatchObject(waits);
    const requests = () => b.received.filter((message) => message.kind === 'report');
    await waitUntil('it is asked', async () => requests().length > 0);
    await b.send({ ...OF, spent: 20, report: requests()[0].report });
    expect((await check(b, 20, 51)).served).toEqual([SERVED.denied]);
    expect((await check(b, 20, 50)).served).toEqual([SERVED.allowed]);
  });

  it('wait for a missing member until it is forgotten', async () => {
    const [a, b] = await join(2);
    await restartEmpty(redis);
    await report(a, 30, 0, [a.name, b.name]);
    expect(await check(a, 30, 1)).toMatchObject(waits);
    a.header.clockUs += 60 * SECOND_US;
    expect(await check(a, 30, 1)).toMatchObject(waits);
    const awaited = (await list(a)).members.filter(({ isAwaited }) => isAwaited);
    expect(awaited.map(({ member }) => member)).toEqual([b.name]);
    expect(await forget(a, b.name)).toBe(1);
    await check(a, 30, 1);
    const allowed = { isMissing: true, served: [SERVED.allowed] };
    expect(await check(a, 30, 1)).toMatchObject(allowed);
    const { isRecovering, openedUs, clockUs } = await a.call([]);
    expect(isRecovering).toBe(false);
    expect(openedUs).toBeGreaterThan(clockUs - 120 * SECOND_US);
    expect(openedUs).toBeLessThan(clockUs);
  });

  it('wait for a missing member for a second where availability comes first', async () => {
    const a = await connect('a', true);
    expect(await a.present()).toBe(CALL_STATUS.done);
    a.finishReport();
    await restartEmpty(redis);
    await report(a, 30, 0, [`${'b'.repeat(16)}.0`]);
    expect(await check(a, 30, 1)).toMatchObject(waits);
    a.header.clockUs += 1.1 * SECOND_US;
    await check(a, 30, 1);
    const allowed = { isMissing: true, served: [SERVED.allowed] };
    expect(await check(a, 30, 1)).toMatchObject(allowed);
    const { isRecovering, openedUs, clockUs } = await a.call([]);
    expect(isRecovering).toBe(false);
    expect(openedUs).toBeGreaterThan(clockUs - 60 * SECOND_US);
    expect(openedUs).toBeLessThan(clockUs + 60 * SECOND_US);
  });

  it('are served in windows that begin after the loss of memory', async () => {
    const [a] = await join(1);
    const windowUs = 60 * SECOND_US;
    const untilNextWindowUs = () => windowUs - (a.header.clockUs % windowUs);
    // The loss is not at the end of a window, so that the next window begins clearly after it.
    if (untilNextWindowUs() < 5 * SECOND_US) a.header.clockUs += 5 * SECOND_US;
    await restartEmpty(redis);
    await report(a, 0, 0, [`${'b'.repeat(16)}.0`]);
    const short = { ...OF, durationMs: 60_000, checks: [costs(1, 100)] };
    expect(await a.send(short)).toMatchObject(waits);
    a.header.clockUs += untilNextWindowUs() + SECOND_US;
    const answer = await a.send(short);
    expect(answer).toMatchObject({ status: MESSAGE_STATUS.done, served: [SERVED.allowed] });
    // The window before, from which a sliding window carries, is not known.
    const sliding = { ...short, checks: [costs(1, 100, { isSliding: true })] };
    expect(await a.send(sliding)).toMatchObject(waits);
    a.header.clockUs += windowUs;
    expect((await a.send(sliding)).served).toEqual([SERVED.allowed]);
  });

  it('see a clock that never goes back, on another server either', async () => {
    const [a, b] = await join(2);
    a.header.clockUs += 3_600 * SECOND_US;
    const ahead = (await a.call([])).clockUs;
    const answer = await b.call([]);
    const next = answer.clockUs;
    expect(next).toBeGreaterThanOrEqual(ahead);
    // It tells how far the clock is ahead of the server's.
    expect(answer.aheadUs).toBeGreaterThan(3_500 * SECOND_US);
    expect(answer.aheadUs).toBeLessThan(3_601 * SECOND_US);
    await restartEmpty(redis);
    expect(await b.present([a.name])).toBe(CALL_STATUS.done);
    expect(b.header.clockUs).toBeGreaterThanOrEqual(next);
  });
});
