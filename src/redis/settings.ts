/**
 * The only declaration of the settings of the engine in Redis. Every thread gets their values as
 * RedisSettings, with the contents of the files that they name.
 */

import Type, { type Static } from 'typebox';
import {
  REDIS_PREFIX_MAX_CHARACTERS,
  REDIS_TIMEOUT_MAX_MS,
  REDIS_TIMEOUT_MIN_MS,
  REDIS_WAIT_MAX,
  SYNC_INTERVAL_MAX_MS,
  SYNC_INTERVAL_MIN_MS,
} from '../core/constants.ts';
import { choice, duration, integer, path, text } from '../core/setting.ts';
import { describeInvalidRedisUrl, REDIS_URL_FORMS } from './url.ts';

/** The settings that mean nothing to the memory engine. */
export const REDIS_SETTINGS = {
  redisUrl: Type.Optional(
    text({
      pattern: '^[Rr][Ee][Dd][Ii][Ss][Ss]?(\\+[A-Za-z]+)?://[^\\s#]+$',
      accepts: REDIS_URL_FORMS,
      secret: true,
      group: 'Redis',
      description: 'URL of the Redis or Valkey that all weirs share',
      details:
        'It has no flag, because it may contain a password. In a user or a password write `@`, ' +
        '`:`, `/`, `?` and `#` as `%40`, `%3A`, `%2F`, `%3F` and `%23`. Redis 7.0 and Valkey ' +
        '7.2 are the oldest supported versions.',
      examples: [
        'redis://redis.example',
        'redis+sentinel://a.example,b.example/primary',
        'rediss+cluster://a.example:6380,b.example:6380',
      ],
      describeInvalid: describeInvalidRedisUrl,
    }),
  ),
  redisPasswordFile: path({
    group: 'Redis',
    description: 'file that contains the password of Redis; /dev/stdin reads standard input',
    details: 'It cannot be combined with a password in `WEIR_REDIS_URL`.',
    examples: ['/run/secrets/redis'],
  }),
  redisCa: path({
    group: 'Redis',
    description: 'certificates in PEM that sign those of Redis, in place of those of the system',
    details: 'It requires a URL with TLS.',
    examples: ['/etc/weir/redis-ca.crt'],
  }),
  redisCert: path({
    group: 'Redis',
    description: 'certificate chain in PEM that weir shows to Redis as a client',
    details: 'It requires `WEIR_REDIS_KEY`, and a URL with TLS.',
    examples: ['/etc/weir/redis.crt'],
  }),
  redisKey: path({
    group: 'Redis',
    description: 'private key of WEIR_REDIS_CERT in PEM, without a passphrase',
    details: 'It requires `WEIR_REDIS_CERT`.',
    examples: ['/etc/weir/redis.key'],
  }),
  redisPrefix: text({
    pattern: `^[A-Za-z0-9._:-]{1,${REDIS_PREFIX_MAX_CHARACTERS}}$`,
    default: 'weir',
    accepts: `1 to ${REDIS_PREFIX_MAX_CHARACTERS} letters, digits and characters of . _ : -`,
    group: 'Redis',
    description: 'first part of the names of all keys and channels in Redis',
    details: 'All weirs that share counters have the same one.',
  }),
  redisTimeoutMs: duration({
    minimum: REDIS_TIMEOUT_MIN_MS,
    maximum: REDIS_TIMEOUT_MAX_MS,
    default: 200,
    group: 'Redis',
    description: 'time in ms that a check waits for Redis; WEIR_ON_ENGINE_DOWN decides it then',
    details:
      'Most checks do not wait: they are decided in memory. Requests to Redis fail after the ' +
      'same time, but not before 50 ms. When Redis hangs, checks take so long until five ' +
      'requests have failed. With much less, a machine that waits for a core decides without ' +
      'Redis although nothing has failed.',
  }),
  redisWait: integer({
    minimum: 0,
    maximum: REDIS_WAIT_MAX,
    default: 0,
    group: 'Redis',
    description: 'replicas that must have received a change before the change counts as stored',
    details:
      'With 1 and more, a failover loses no usage that a weir has seen acknowledged. Each ' +
      'request to Redis then takes longer, and fails while fewer replicas are connected: see ' +
      '[Sentinel](cluster.md#sentinel).',
  }),
  leases: choice({
    choices: ['on', 'off'],
    default: 'on',
    group: 'Redis',
    description:
      'whether weir takes tokens of busy counters in advance, and decides with them in memory',
    details: 'With `off`, each check is a request to Redis, and checks are decided in its order.',
  }),
  syncMs: duration({
    minimum: SYNC_INTERVAL_MIN_MS,
    maximum: SYNC_INTERVAL_MAX_MS,
    default: 100,
    group: 'Redis',
    description: 'interval in ms at which usage that Redis does not know is reported to it',
    details:
      'Checks with `async: true` on one weir are known to the others after this interval, or ' +
      'sooner when little is left of their limit.',
  }),
  onEngineDown: choice({
    choices: ['local', 'allow', 'deny'],
    default: 'local',
    group: 'Redis',
    description: 'decision for a check that needs Redis when Redis does not answer',
    details:
      'With `local`, each weir applies the limit to what it knows: N weirs may allow N times ' +
      'what was left. With `allow` there is no limit. With `deny` no check passes.',
  }),
  localShare: choice({
    choices: ['whole', 'divided'],
    default: 'whole',
    group: 'Redis',
    description:
      'limit that each weir applies alone: the whole limit, or divided by the number of weirs',
    details:
      'It applies with `local`, the default of `WEIR_ON_ENGINE_DOWN`. With `divided`, a weir ' +
      'that gets more than its share of the checks denies too early.',
  }),
  recovery: choice({
    choices: ['exact', 'available'],
    default: 'available',
    group: 'Redis',
    description:
      'what happens after Redis has lost usage while a weir is missing: go on, or wait for it',
    details:
      '`available` waits for weirs that respond, for a second at most. `exact` denies checks ' +
      'of counters whose usage may be missing until it is proven.',
  }),
  redisEviction: choice({
    choices: ['refuse', 'accept'],
    default: 'refuse',
    group: 'Redis',
    description: 'whether weir starts with a Redis whose maxmemory-policy is not noeviction',
    details:
      'With `accept`, a full Redis deletes counters, overrides and keys, and windows may ' +
      'exceed their limits. See [Eviction policy](cluster.md#eviction-policy).',
  }),
};

const RedisSettingsSchema = Type.Object(REDIS_SETTINGS);

export interface RedisSettings extends Static<typeof RedisSettingsSchema> {
  redisUrl: string;
  /** Read from a file; takes precedence over the one in the URL. */
  password: string | undefined;
  /** PEM texts. A CA replaces those of the system. */
  tls: { ca: string | undefined; cert: string | undefined; key: string | undefined };
}

export type EngineDownPolicy = RedisSettings['onEngineDown'];
export type LocalShare = RedisSettings['localShare'];
export type EvictionMode = RedisSettings['redisEviction'];
