/**
 * Starts servers in every mode of deciding checks: in place, by shard workers, and with counters in
 * a Redis. A case about checks holds in all of them. `npm test` runs it in the first two.
 */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, test } from 'vitest';
import { isRedisMissing, type RedisServer, startRedis } from './programs/redis.ts';
import {
  CLI_PATH,
  cleanEnvironment,
  DECIDE_MODES,
  type ServerOptions,
  type SteppedServer,
  startServer,
  startSteppedServer,
  waitUntil,
} from './server.ts';
import { withStore } from './store.ts';

export type EngineMode = (typeof DECIDE_MODES)[number] | 'redis';

/** `test/system/redis/cases.test.ts` sets this, and imports the same cases. */
const WITH_REDIS = process.env.TEST_ENGINE === 'redis';

/** Declares cases for both modes of the engine in memory, or for the engine in Redis. */
export function describeEngines(
  title: string,
  cases: (mode: EngineMode) => void,
  modes: readonly EngineMode[] = [...DECIDE_MODES, 'redis'],
): void {
  for (const mode of modes) {
    if ((mode === 'redis') !== WITH_REDIS) continue;
    describe.skipIf(mode === 'redis' && isRedisMissing)(title.replace('%s', mode), () => {
      cases(mode);
    });
  }
}

/** Declares cases with servers of their own that do not depend on the engine: not with Redis. */
export function describeInMemory(title: string, cases: () => void): void {
  if (!WITH_REDIS) describe(title, cases);
}

/** Declares a case that steps the clock, or needs the queues in memory: not with Redis. */
export function testInMemory(title: string, testCase: () => Promise<void>): void {
  if (!WITH_REDIS) test(title, testCase);
}

/** Declares cases that do not depend on the engine: in one of the modes, and never with Redis. */
export function describeOnce(mode: EngineMode, title: string, cases: () => void): void {
  if (mode === 'in-place') describe(title, cases);
}

/** `stepClock` is for the engine in memory only: Redis has a clock of its own. */
export interface EngineServer extends SteppedServer {
  /** Closes the Redis of the server, where it has one. Called after the server has ended. */
  closeEngine: () => Promise<void>;
}

/** Starts a server. With Redis it gets one of its own, which has the records of the store. */
export async function startEngineServer(
  mode: EngineMode,
  dataDir: string,
  options: ServerOptions = {},
): Promise<EngineServer> {
  const { args = [] } = options;
  if (mode !== 'redis') {
    const memory = { ...options, args: [...args, '--decide', mode] };
    const server = await startSteppedServer(dataDir, memory);
    return { ...server, closeEngine: async () => {} };
  }
  const redis = await startRedis();
  // The case of a slow Redis is tested elsewhere: here the test itself may be slow.
  const WEIR_REDIS_TIMEOUT_MS = '1000';
  const env = { WEIR_ENGINE: 'redis', WEIR_REDIS_URL: redis.url, WEIR_REDIS_TIMEOUT_MS };
  try {
    await migrateRecords(dataDir, redis);
    const server = await startServer(dataDir, { ...options, env: { ...env, ...options.env } });
    await waitUntil(`Redis serves it: ${server.stderr()}`, async () => {
      const response = await fetch(`${server.adminUrl}/readyz`);
      return ((await response.json()) as { status: string }).status === 'ready';
    });
    const stepClock = () => Promise.reject(new Error('the clock of Redis cannot be stepped'));
    return { ...server, nowMs: Date.now, stepClock, closeEngine: () => redis.close() };
  } catch (error) {
    await redis.close();
    throw error;
  }
}

/** Moves the records that a test has written to the store into Redis. */
async function migrateRecords(dataDir: string, { url }: RedisServer): Promise<void> {
  const tables = ['keys', 'namespaces', 'overrides'] as const;
  const hasRecords = withStore(dataDir, (store) => {
    return tables.some((table) => store.read(table).length > 0);
  });
  if (!hasRecords) return;
  const env = { ...cleanEnvironment(), WEIR_ENGINE: 'redis', WEIR_REDIS_URL: url };
  const args = [CLI_PATH, 'migrate', '--data-dir', dataDir];
  await promisify(execFile)(process.execPath, args, { env });
}
