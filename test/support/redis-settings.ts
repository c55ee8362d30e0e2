/** Settings of the engine in Redis: their defaults, with the changes of a test. */

import { declarationOf } from '../../src/core/setting.ts';
import { REDIS_SETTINGS, type RedisSettings } from '../../src/redis/settings.ts';

export function redisSettings(
  redisUrl: string,
  changes: Partial<RedisSettings> = {},
): RedisSettings {
  const defaults = Object.entries(REDIS_SETTINGS).map(([name, schema]) => {
    return [name, declarationOf(schema).default];
  });
  const tls = { ca: undefined, cert: undefined, key: undefined };
  return { ...Object.fromEntries(defaults), redisUrl, password: undefined, tls, ...changes };
}
