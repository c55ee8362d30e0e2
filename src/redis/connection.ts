/** Opens the link to the Redis that the settings name. It connects in the background. */

import { ClusterLink } from './cluster-link.ts';
import type { RedisEvents, RedisLink } from './link.ts';
import type { RedisSettings } from './settings.ts';
import { type LinkOptions, SingleLink } from './single-link.ts';
import { parseRedisUrl } from './url.ts';

export function openRedis(
  settings: Pick<RedisSettings, 'redisUrl' | 'password' | 'tls' | 'redisWait'>,
  events: RedisEvents = {},
): RedisLink {
  const target = parseRedisUrl(settings.redisUrl);
  const password = settings.password ?? target.password;
  const options: LinkOptions = {
    tls: target.usesTls ? settings.tls : undefined,
    credentials: password === undefined ? undefined : { username: target.username, password },
    waitForReplicas: settings.redisWait,
  };
  return target.kind === 'cluster'
    ? new ClusterLink(target, options, events)
    : new SingleLink(target, options, events);
}
