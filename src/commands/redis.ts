/**
 * Opens Redis for `weir migrate` and `weir cluster`. Both use it directly, with the settings of a
 * server, so that they work while no server runs. A Redis that fails is a StartError.
 */

import { type LoadedSettings, loadSettings } from '../config/load.ts';
import { StartError } from '../core/errors.ts';
import { EXIT, type ExitMeanings } from '../core/exit.ts';
import { openRedis } from '../redis/connection.ts';
import { RedisError } from '../redis/errors.ts';
import type { RedisLink } from '../redis/link.ts';
import type { RedisSettings } from '../redis/settings.ts';
import { SharedRegistryClient } from '../registry/shared/client.ts';

/** The time in which Redis must accept the connection, and answer each call. */
export const REDIS_DEADLINE_MS = 5_000;

export const CONFIG_OPTION = {
  config: {
    type: 'string',
    value: '<path>',
    help: 'a configuration file; the settings are those of weir serve: default: WEIR_CONFIG',
  },
} as const;

export const REDIS_EXIT_CODES = [EXIT.OK, EXIT.USAGE, EXIT.NO_ANSWER] as const;
export const REDIS_EXIT_MEANINGS: ExitMeanings = {
  [EXIT.OK]: 'success',
  [EXIT.NO_ANSWER]: 'no response from Redis, or one that is not from weir in Redis',
};

export interface RedisAccess {
  settings: LoadedSettings & { redis: RedisSettings };
  link: RedisLink;
  registry: SharedRegistryClient;
}

/** @param args flags of `weir serve`. @throws StartError */
export async function withRedis<T>(
  args: readonly string[],
  work: (access: RedisAccess) => Promise<T>,
): Promise<T> {
  const settings = loadSettings(args, process.env);
  if (settings?.redis === undefined) {
    throw new StartError(
      'WEIR_ENGINE=redis and WEIR_REDIS_URL are not set: set both to the values of the server',
    );
  }
  const { redis } = settings;
  const link = openRedis(redis);
  try {
    await link.ready(REDIS_DEADLINE_MS);
    const registry = new SharedRegistryClient(link, redis.redisPrefix, REDIS_DEADLINE_MS);
    return await work({ settings: { ...settings, redis }, link, registry });
  } catch (error) {
    if (!(error instanceof RedisError)) throw error;
    const outcome = error.mayHaveRun ? '; the command may have had an effect' : '';
    throw new StartError(`Redis (WEIR_REDIS_URL): ${error.message}${outcome}`, EXIT.NO_ANSWER);
  } finally {
    link.close();
  }
}
