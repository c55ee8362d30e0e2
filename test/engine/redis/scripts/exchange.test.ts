import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MESSAGE_STATUS, SERVED } from '../../../../src/engine/redis/protocol.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../../support/redis.ts';
import { costs, IDENTITY, joinMembers, type ScriptMember } from '../../../support/script-member.ts';
import { waitUntil } from '../../../support/server.ts';

const HOUR = 3_600_000;
let identities = 10;
/** Each case has a counter of its own. */
const counter = () => ({ identity: { ...IDENTITY, h0: identities++ }, durationMs: HOUR });

describe.skipIf(isRedisMissing)('the exchange script', () => {
  let redis: RedisServer;
  let [a, b]: ScriptMember[] = [];

  beforeAll(async () => {
    redis = await startRedis();
    [a, b] = await joinMembers(redis.port, 2);
  });
  afterAll(async () => {
    a?.close();
    b?.close();
    await redis?.close();
  });

  it('serves checks in order while tokens are left', async () => {
    const of = counter();
    const answer = await a.send({ ...of, checks: [costs(3, 10), costs(8, 10), costs(7, 10)] });
    expect(answer.status).toBe(MESSAGE_STATUS.done);
    expect(answer.served).toEqual([SERVED.allowed, SERVED.denied, SERVED.allowed]);
    expect(answer.others).toBe(0);
    expect(answer.isStored).toBe(true);
    expect(answer.leftUs).toBeGreaterThan(0);
    expect(answer.leftUs).toBeLessThanOrEqual(HOUR * 1_000);
  });

  it('tells how many leases it has written off, once', async () => {
    const of = counter();
    const lease = await a.send({ ...of, wantsLease: true, checks: [costs(1, 100)] });
    expect(lease.lent).toBeGreaterThan(0);
    const all = { ...of, checks: [costs(99, 100)] };
    const first = await b.send(all);
    expect([first.served, first.writtenOff]).toEqual([[SERVED.unproven], 0]);
    let writtenOff = 0;
    await waitUntil('the silent holder is written off', async () => {
      const answer = await b.send(all);
      writtenOff += answer.writtenOff;
      return answer.served[0] === SERVED.denied;
    });
    expect(writtenOff).toBe(1);
  });
});
