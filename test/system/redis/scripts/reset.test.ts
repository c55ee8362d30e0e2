/** What corrections show and select. `model.test.ts` compares what a reset does to a counter. */

import { describe, expect, it } from 'vitest';
import { AMOUNT_MAX, DURATION_MAX_MS } from '../../../../src/core/constants.ts';
import type { Identity } from '../../../../src/core/hash.ts';
import { decodeGcra, encodeGcra, gcra } from '../../../../src/engine/redis/scripts/gcra.ts';
import {
  decodeInspect,
  encodeInspect,
  inspect,
} from '../../../../src/engine/redis/scripts/inspect.ts';
import {
  decodeReset,
  encodeReset,
  type ResetSelector,
  reset,
} from '../../../../src/engine/redis/scripts/reset.ts';
import { isRedisMissing } from '../../../support/programs/redis.ts';
import { costs, newIdentity, useMembers } from '../script-member.ts';

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

  it('show and reset a counter of which machines have used more than a number can say', async () => {
    const identity = newIdentity();
    const of = { identity, durationMs: CENTURY, window: 0, spent: AMOUNT_MAX };
    for (const member of [a, b]) await member.send({ ...of, checks: [costs(1, 100)] });
    expect(await show(identity)).toMatchObject([{ current: AMOUNT_MAX, lent: 0 }]);
    expect(await clear(identity, ALL)).toBe(1);
    expect(await show(identity)).toEqual([]);
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
