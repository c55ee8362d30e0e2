/** Servers with several shard workers, and a real Redis that loses keys of their counters. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, readMetric, sendCheck } from '../../support/http.ts';
import { callOperationOk } from '../../support/operations.ts';
import { isRedisMissing } from '../../support/programs/redis.ts';
import { waitUntil } from '../../support/server.ts';
import { useServers, waitForStatus } from './servers.ts';
import { useRedis } from './use-redis.ts';

/** Some of each shard. */
const COUNTERS = 24;
const LIMIT = 100;
/** A slow computer decides nothing without Redis. */
const PATIENT = { WEIR_REDIS_TIMEOUT_MS: '1000', WEIR_ON_ENGINE_DOWN: 'deny' };

describe.skipIf(isRedisMissing)('servers whose Redis loses keys', () => {
  const redis = useRedis();
  const { servers, start } = useServers(2);
  let counters: string[] = [];
  let tests = 0;
  beforeEach(async () => {
    // The servers remember those of earlier tests.
    const name = `counter_${tests++}`;
    counters = Array.from({ length: COUNTERS }, (_, i) => `${name}_${i}`);
    await redis.command('FLUSHALL');
    for (const i of [0, 1]) await start(i, redis.url, PATIENT, 2);
    for (const server of servers) await waitForStatus(server, 'ready');
  }, 60_000);
  afterEach(async () => {
    for (const server of servers) server.child.kill('SIGTERM');
    await Promise.all(servers.map(({ exited }) => exited));
  });

  const check = async (i: number, identifier: string, cost: number) => {
    const terms = { identifier, limit: LIMIT, duration: LONGEST_WINDOW_MS, cost };
    return (await sendCheck(servers[i].port, terms)).success;
  };
  const useAll = async () => {
    for (const identifier of counters) expect(await check(0, identifier, 60)).toBe(true);
  };
  const loseAll = async () => {
    const keys = (await redis.command('KEYS', 'weir:{0}:c:*')) as string[];
    expect(keys.length).toBeGreaterThanOrEqual(COUNTERS);
    await redis.command('DEL', ...keys);
  };
  const expectNoFailures = async () => {
    for (const { adminUrl } of servers) {
      expect(await readMetric(adminUrl, 'weir_workers_replaced_total')).toBe(0);
    }
  };
  const expectRestored = async () => {
    for (const identifier of counters) {
      expect(await check(1, identifier, 50)).toBe(false);
      // Where the other server is too slow to give its lease back, checks are denied until it has.
      await waitUntil('it has what is left', () => check(1, identifier, 40));
      expect(await check(1, identifier, 1)).toBe(false);
    }
    await expectNoFailures();
  };

  test('restore them, whichever of the workers has the counter', async () => {
    await useAll();
    await loseAll();
    await expectRestored();
  });

  // The reset was published to workers that had reported that they have nothing, and ended them.
  test('reset them, and no worker fails that does not have the counter', async () => {
    await useAll();
    await loseAll();
    await expectRestored();
    for (const identifier of counters) {
      await callOperationOk(servers[0].port, 'ratelimits.reset', { identifier });
      await waitUntil('all tokens are free', () => check(1, identifier, LIMIT));
    }
    await expectNoFailures();
  });

  test('restore them after a start with another number of workers', async () => {
    await useAll();
    servers[0].child.kill('SIGTERM');
    await servers[0].exited;
    await start(0, redis.url, PATIENT, 3);
    await waitForStatus(servers[0], 'ready');
    await loseAll();
    await expectRestored();
  });

  test('count usage once that the next process inherits', async () => {
    await useAll();
    servers[0].child.kill('SIGTERM');
    await servers[0].exited;
    await start(0, redis.url, PATIENT, 1);
    await waitForStatus(servers[0], 'ready');
    for (const identifier of counters) {
      await waitUntil('it has its share', () => check(0, identifier, 30));
      expect(await check(1, identifier, 11)).toBe(false);
      await waitUntil('the other has the rest', () => check(1, identifier, 10));
      expect(await check(1, identifier, 1)).toBe(false);
    }
  });
});
