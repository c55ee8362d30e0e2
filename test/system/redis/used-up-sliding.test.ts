/** What a used-up sliding window costs Redis: docs/cluster.md sizes Redis by it. */

import { beforeAll, describe, expect, test } from 'vitest';
import { readMetric, sendCheck } from '../../support/http.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

const LIMIT = 100;
const DURATION_MS = 2_000;
const CLIENTS = 4;
const MESSAGES_A_TOKEN = 1;

describe.skipIf(isRedisMissing)('two servers with one Redis', () => {
  const redis = useRedis();
  const { servers, start } = useServers(2);
  beforeAll(async () => {
    for (const i of [0, 1]) await start(i, redis.url);
    for (const server of servers) await waitForStatus(server, 'ready');
  }, 60_000);

  /** Sends checks for this time, from several clients. */
  async function flood(ms: number): Promise<{ allowed: number; checks: number }> {
    const end = Date.now() + ms;
    const counts = { allowed: 0, checks: 0 };
    const check = { identifier: 'a', limit: LIMIT, duration: DURATION_MS, algorithm: 'sliding' };
    const client = async (i: number) => {
      while (Date.now() < end) {
        const { success } = await sendCheck(servers[i % 2].port, check);
        counts.checks++;
        if (success) counts.allowed++;
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i)));
    return counts;
  }
  const messages = async () => {
    const each = servers.map(({ adminUrl }) => readMetric(adminUrl, 'weir_token_requests_total'));
    return (await Promise.all(each)).reduce((sum, count) => sum + count, 0);
  };

  test('need fewer messages than the tokens that a used-up sliding window allows', async () => {
    // Since the second window, tokens come free one by one.
    await flood(2 * DURATION_MS);
    const before = await messages();
    const { allowed, checks } = await flood(3 * DURATION_MS);
    const used = (await messages()) - before;
    expect(allowed).toBeGreaterThan(2 * LIMIT);
    expect(checks).toBeGreaterThan(allowed);
    expect(used / allowed).toBeLessThan(MESSAGES_A_TOKEN);
  }, 60_000);
});
