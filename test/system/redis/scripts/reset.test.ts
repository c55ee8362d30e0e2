import { describe, expect, it } from 'vitest';
import { DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import type { Identity } from '../../../../src/core/hash.ts';
import { decodeGcra, encodeGcra, gcra } from '../../../../src/engine/redis/scripts/gcra.ts';
import {
  decodeInspect,
  encodeInspect,
  inspect,
} from '../../../../src/engine/redis/scripts/inspect.ts';
import { SERVED } from '../../../../src/engine/redis/scripts/protocol.ts';
import {
  decodeReset,
  encodeReset,
  type ResetSelector,
  reset,
} from '../../../../src/engine/redis/scripts/reset.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { costs, newIdentity, useMembers } from '../script-member.ts';

const { allowed, denied } = SERVED;
const CENTURY = DURATION_MAX_MS;
const DAY = 86_400_000;
const ALL: ResetSelector = { durationsMs: undefined, windows: true, gcra: true };

describe.skipIf(isRedisMissing)('the scripts of corrections', () => {
  const { redis, members } = useMembers(2);
  const [a, b] = members;

  const show = async (identity: Identity) => {
    const reply = await a.run(inspect, encodeInspect(a.context, a.header, identity));
    return decodeInspect(reply).counters.sort((one, other) => one.durationMs - other.durationMs);
  };
  const clear = async (identity: Identity, selector: ResetSelector) => {
    return decodeReset(await a.run(reset, encodeReset(a.context, a.header, identity, selector)));
  };
  const take = async (identity: Identity, durationMs: number) => {
    const message = { identity, durationMs, limit: 10, burst: 10, cost: 4, countsDenied: false };
    const call = encodeGcra(a.context, 0, a.header, [message]);
    return decodeGcra([message], await a.run(gcra, call)).counters[0];
  };

  it('show every counter of an identity', async () => {
    const identity = newIdentity();
    expect(await show(identity)).toEqual([]);
    const of = { identity, durationMs: CENTURY, window: 0 };
    await a.send({ ...of, wantsLease: true, checks: [costs(10, 100)] });
    const { state } = await take(identity, DAY);
    const [bucket, counter] = await show(identity);
    const { newest, current, limit } = state;
    expect(bucket).toEqual({
      ...{ isGcra: true, durationMs: DAY, limit, newest, current, previous: current, lent: 0 },
    });
    // The answer of the script may be lost: nothing is known to be used yet.
    const lent = 15;
    expect(counter).toEqual({
      ...{ isGcra: false, durationMs: CENTURY, limit: 100, newest: 0, current: 0, previous: 0 },
      lent,
    });
    await a.send({ ...of, spent: 12, lastLimit: 50 });
    expect((await show(identity))[1]).toMatchObject({ current: 12, lent: 0, limit: 50 });
  });

  it('show the window before as long as it is carried', async () => {
    const identity = newIdentity();
    const of = { identity, durationMs: 60_000 };
    const { window } = await a.send({ ...of, checks: [costs(10, 100)] });
    await a.send({ ...of, window, spent: 10 });
    a.header.clockUs = (window + 1) * 60_000_000;
    await a.call([]);
    expect(await show(identity)).toMatchObject([{ newest: window, current: 10, limit: 100 }]);
    await a.send({ ...of, window: window + 1, previousSpent: 10, checks: [costs(3, 100)] });
    await a.send({ ...of, window: window + 1, previousSpent: 10, spent: 3 });
    expect(await show(identity)).toMatchObject([{ newest: window + 1, current: 3, previous: 10 }]);
    expect(await clear(identity, ALL)).toBe(1);
    expect(await show(identity)).toEqual([]);
  });

  it('allow no more after a lease of a window that was over at its reset returns', async () => {
    const of = { identity: newIdentity(), durationMs: 60_000, isSliding: true };
    const sliding = (cost: number) => [costs(cost, 100, { isSliding: true })];
    const { window, lent } = await a.send({ ...of, wantsLease: true, checks: sliding(10) });
    expect(lent).toBeGreaterThan(0);
    a.header.clockUs = (window + 1) * 60_000_000;
    await a.call([]);
    expect(await clear(of.identity, ALL)).toBe(1);
    await a.send({ ...of, window, spent: 10 });
    const { previousUse, served } = await b.send({ ...of, checks: sliding(101) });
    expect(previousUse).toBe(0);
    expect(served).toEqual([denied]);
  });

  it('reset usage, while members count on', async () => {
    const of = { identity: newIdentity(), durationMs: CENTURY, window: 0 };
    await a.send({ ...of, checks: [costs(60, 100)] });
    await b.send({ ...of, checks: [costs(40, 100)] });
    await a.send({ ...of, spent: 60 });
    await b.send({ ...of, spent: 40 });
    expect(await clear(of.identity, ALL)).toBe(1);
    for (const member of members) await member.receives('reset', of.identity);
    expect(await show(of.identity)).toEqual([]);
    expect(await clear(of.identity, ALL)).toBe(0);

    const first = await a.send({ ...of, spent: 60, isStored: true, checks: [costs(70, 100)] });
    expect(first).toMatchObject({ served: [allowed], others: -60 });
    await a.send({ ...of, spent: 130 });
    const second = await b.send({ ...of, spent: 40, checks: [costs(31, 100), costs(30, 100)] });
    expect(second).toMatchObject({ served: [denied, allowed], others: 30 });
    expect(await show(of.identity)).toMatchObject([{ current: 70, lent: 30, limit: 100 }]);
  });

  it('keep tokens in leases deducted at a reset', async () => {
    const of = { identity: newIdentity(), durationMs: CENTURY, window: 0 };
    await a.send({ ...of, wantsLease: true, rate: 1_000, checks: [costs(500, 1_000)] });
    await a.send({ ...of, spent: 510, kept: 40 });
    expect(await clear(of.identity, ALL)).toBe(1);
    const answer = await b.send({ ...of, checks: [costs(961, 1_000)] });
    expect(answer.served).not.toEqual([allowed]);
    expect((await b.send({ ...of, checks: [costs(960, 1_000)] })).served).toEqual([allowed]);
    expect(await a.send({ ...of, spent: 550 })).toMatchObject({ others: 0 - 510 });
    expect((await b.send({ ...of, spent: 960 })).others).toBe(40);
  });

  it('reset the counters that are selected', async () => {
    const identity = newIdentity();
    const fill = async () => {
      await take(identity, DAY);
      await take(identity, 2 * DAY);
      for (const durationMs of [DAY, CENTURY]) {
        await a.send({ identity, durationMs, checks: [costs(1, 10)] });
      }
    };
    await fill();
    expect(await clear(identity, { durationsMs: [DAY], windows: true, gcra: false })).toBe(1);
    const names = async () => {
      return (await show(identity)).map(({ isGcra, durationMs }) => `${isGcra} ${durationMs}`);
    };
    // The tokens of the day's counter are in no report: they stay.
    expect((await names()).sort()).toEqual(
      [`false ${CENTURY}`, `false ${DAY}`, `true ${2 * DAY}`, `true ${DAY}`].sort(),
    );
    expect(await clear(identity, { durationsMs: undefined, windows: false, gcra: true })).toBe(2);
    expect(await names()).toEqual([`false ${DAY}`, `false ${CENTURY}`]);
    expect(await clear(identity, { durationsMs: [1_000], windows: true, gcra: true })).toBe(0);
  });

  it('reset usage of the window before that is not reported yet', async () => {
    const identity = newIdentity();
    const durationMs = 1_000;
    const of = { identity, durationMs, isSliding: true };
    const check = costs(30, 40, { isSliding: true });
    const first = await a.send({ ...of, window: 0, checks: [check] });
    expect(first.served).toEqual([allowed]);
    const startMs = (first.window + 1) * durationMs;
    for (const member of [a, b]) member.header.clockUs = startMs * 1_000;
    await clear(identity, ALL);
    const next = { ...of, window: first.window + 1 };
    expect((await b.send({ ...next, checks: [check] })).served).toEqual([allowed]);
    // The report comes after the reset.
    const { previousUse } = await a.send({ ...next, previousSpent: 30, hasPrevious: true });
    expect(previousUse).toBe(0);
  });

  it('reset nothing while Redis recovers', async () => {
    const identity = newIdentity();
    await redis.command('FLUSHALL');
    a.finishReport();
    expect(await a.present([b.name])).toBe(0);
    expect(await clear(identity, ALL)).toBe(undefined);
    const reply = await a.run(inspect, encodeInspect(a.context, a.header, identity));
    expect(decodeInspect(reply).isRecovering).toBe(true);
  });
});
