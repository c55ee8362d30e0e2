import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MESSAGE_STATUS, SERVED } from '../../../../src/engine/redis/protocol.ts';
import { isRedisMissing, type RedisServer, startRedis } from '../../../support/redis.ts';
import { costs, IDENTITY, joinMembers, type ScriptMember } from '../../../support/script-member.ts';

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
});
