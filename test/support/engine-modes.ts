/**
 * Starts servers in every mode of deciding checks: in place, by shard workers, and with counters in
 * a Redis. A case about checks holds in all of them. `npm test` runs it in the first two.
 */

import { afterAll, describe, TestRunner, test } from 'vitest';
import { openRedis } from '../../src/redis/connection.ts';
import { SharedRegistryClient } from '../../src/registry/shared/client.ts';
import { migrate } from '../../src/registry/shared/migration.ts';
import { DataDirectory } from '../../src/registry/store/directory.ts';
import { SqliteStore } from '../../src/registry/store/sqlite.ts';
import { isRedisMissing, type RedisServer, startRedis } from './programs/redis.ts';
import { isReady } from './readiness.ts';
import { redisSettings } from './redis-settings.ts';
import {
  DECIDE_MODES,
  type ServerOptions,
  type SteppedServer,
  startServer,
  startSteppedServer,
  waitUntil,
} from './server.ts';

const READY_MS = 20_000;

export type EngineMode = (typeof DECIDE_MODES)[number] | 'redis';

/** The Redis of all servers of this process. Each has a prefix of its own. */
let shared: Promise<RedisServer> | undefined;
let prefixes = 0;
/** The groups of cases of this file. */
const groups = new Set<object>();
/** Those that have not ended. After the last one the Redis is closed. */
let groupsLeft = 0;

/** `test/system/redis/cases.test.ts` sets this, and imports the same cases. */
const isWithRedis = () => process.env.TEST_ENGINE === 'redis';

/** Declares cases for both modes of the engine in memory, or for the engine in Redis. */
export function describeEngines(
  title: string,
  cases: (mode: EngineMode) => void,
  modes: readonly EngineMode[] = [...DECIDE_MODES, 'redis'],
): void {
  for (const mode of modes) {
    if ((mode === 'redis') !== isWithRedis()) continue;
    const isMissing = mode === 'redis' && isRedisMissing;
    const group = describe.skipIf(isMissing)(title.replace('%s', mode), () => {
      groupsLeft++;
      // Before the hooks of the cases: at its end, a group runs its hooks in the reverse order.
      afterAll(async () => {
        if (--groupsLeft === 0) await (await shared)?.close();
      });
      cases(mode);
    });
    groups.add(group);
  }
}

/** Removes what a file declares besides such cases. The first level runs it once, which suffices. */
export function keepOnlyEngineCases(): void {
  const { tasks } = TestRunner.getCurrentSuite();
  tasks.splice(0, tasks.length, ...tasks.filter((task) => groups.has(task)));
}

/** Declares a case that steps the clock, or needs the queues in memory: not with Redis. */
export function testInMemory(title: string, testCase: () => Promise<void>): void {
  if (!isWithRedis()) test(title, testCase);
}

/** Declares cases that do not depend on the engine: in one of the modes, and never with Redis. */
export function describeOnce(mode: EngineMode, title: string, cases: () => void): void {
  if (mode === 'in-place') describe(title, cases);
}

/**
 * Starts a server. With Redis its registry there has the records of the store, and `stepClock`
 * rejects: Redis has a clock of its own.
 */
export async function startEngineServer(
  mode: EngineMode,
  dataDir: string,
  options: ServerOptions = {},
): Promise<SteppedServer> {
  if (mode !== 'redis') {
    return startSteppedServer(dataDir, {
      ...options,
      args: [...(options.args ?? []), '--decide', mode],
    });
  }
  shared ??= startRedis();
  const { url } = await shared;
  const prefix = `cases${prefixes++}`;
  await migrateRecords(dataDir, url, prefix);
  const env = {
    ...{ WEIR_ENGINE: 'redis', WEIR_REDIS_URL: url, WEIR_REDIS_PREFIX: prefix, WEIR_WORKERS: '1' },
    // The case of a slow Redis is tested elsewhere: here the test itself may be slow.
    WEIR_REDIS_TIMEOUT_MS: '1000',
  };
  const server = await startServer(dataDir, { ...options, env: { ...env, ...options.env } });
  await waitUntil(`Redis serves it: ${server.stderr()}`, () => isReady(server));
  const stepClock = () => Promise.reject(new Error('the clock of Redis cannot be stepped'));
  return { ...server, nowMs: Date.now, stepClock };
}

/** Moves the records that a test has written to the store into Redis. */
async function migrateRecords(dataDir: string, url: string, prefix: string): Promise<void> {
  const directory = DataDirectory.open(dataDir);
  const store = SqliteStore.open(directory);
  const link = openRedis(redisSettings(url));
  try {
    await link.ready(READY_MS);
    await migrate(store, new SharedRegistryClient(link, prefix), false);
  } finally {
    link.close();
    store.close();
    directory.close();
  }
}
