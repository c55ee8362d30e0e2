/** A Redis that tests share. */

import { afterAll, beforeAll, beforeEach } from 'vitest';
import {
  isRedisMissing,
  type RedisOptions,
  type RedisServer,
  startRedis,
} from '../../support/programs/redis.ts';

/** Starts a Redis before the tests where it is called, and closes it after them. */
export function useRedis(options: RedisOptions = {}): RedisServer {
  const redis = {} as RedisServer;
  beforeAll(async () => {
    if (!isRedisMissing) Object.assign(redis, await startRedis(options));
  });
  afterAll(() => redis.close?.());
  return redis;
}

/** The same. Each test finds it running and empty, whatever the test before did with it. */
export function useEmptyRedis(options: RedisOptions = {}): RedisServer {
  const redis = useRedis(options);
  beforeEach(async () => {
    if (isRedisMissing) return;
    redis.resume();
    await redis.command('FLUSHALL').catch(() => redis.restart({ isEmpty: true }));
  });
  return redis;
}

/** Kills it, and starts it without its data. */
export async function restartEmpty(redis: RedisServer): Promise<void> {
  await redis.kill();
  await redis.restart({ isEmpty: true });
}
