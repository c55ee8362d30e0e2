/**
 * The only declaration of each setting: type, bounds, default and description. Flags, environment
 * variables, the names in the JSON file and the text of --help are all derived from it.
 */

import Type, { type Static } from 'typebox';
import {
  ACCEPTORS_MAX,
  ANALYTICS_HOURS_MAX,
  ANALYTICS_MINUTES_MAX,
  CHECKPOINT_INTERVAL_MAX_MS,
  CHECKPOINT_INTERVAL_MIN_MS,
  CONNECTIONS_MAX,
  COUNTERS_DEFAULT_MAX,
  COUNTERS_MAX,
  COUNTERS_MIN,
  DRAIN_MAX_MS,
  EVENT_FILE_MIB_MAX,
  EVENT_FILES_MAX,
  EVENT_SAMPLE_MAX,
  KEY_MAX_CHARACTERS,
  REDIS_PREFIX_MAX_CHARACTERS,
  REDIS_TIMEOUT_MAX_MS,
  REDIS_TIMEOUT_MIN_MS,
  REDIS_WAIT_MAX,
  ROOT_KEY_MIN_CHARACTERS,
  SOCKET_PATH_MAX_BYTES,
  SYNC_INTERVAL_MAX_MS,
  SYNC_INTERVAL_MIN_MS,
  UNRESPONSIVE_DEFAULT_MS,
  UNRESPONSIVE_MAX_MS,
  UNRESPONSIVE_MIN_MS,
  WORKERS_MAX,
} from '../core/constants.ts';
import { FULL_TABLE_POLICIES } from '../core/decision.ts';
import { IDENTIFIER_FORMS } from '../events/decision-event.ts';
import { EVENT_SELECTIONS } from '../events/event-recorder.ts';
import {
  ENGINE_DOWN_POLICIES,
  EVICTION_MODES,
  LOCAL_SHARES,
  RECOVERY_MODES,
} from '../redis/settings.ts';
import { REDIS_URL_FORMS } from '../redis/url.ts';
import { availableCores } from './resources.ts';

const cores = availableCores();

const text = (accepts: string, description: string) =>
  Type.String({ minLength: 1, accepts, description });
const integer = (
  minimum: number,
  maximum: number,
  initial: number,
  description: string,
  defaultRule?: string,
) =>
  Type.Integer({
    minimum,
    maximum,
    default: initial,
    accepts: `an integer from ${minimum} to ${maximum}`,
    description,
    ...(defaultRule === undefined ? {} : { defaultRule }),
  });
/** A duration in ms. A text with a unit is valid too: `requireValid` converts it. */
const duration = (minimum: number, maximum: number, initial: number, description: string) =>
  Type.Integer({
    minimum,
    maximum,
    default: initial,
    accepts: `an integer from ${minimum} to ${maximum}, or a duration such as 500ms or 5s`,
    description,
    isDuration: true,
  });
const socketPath = (description: string) =>
  Type.Optional(
    Type.String({
      pattern: '^[^\\0]+$',
      accepts: `a path of at most ${SOCKET_PATH_MAX_BYTES} bytes`,
      description,
    }),
  );
const socketMode = (description: string) =>
  Type.String({
    pattern: '^0?[0-7]{3}$',
    default: '0660',
    accepts: 'three octal digits, as in 0660',
    description,
  });
const choice = <T extends string>(choices: readonly T[], initial: T, description: string) =>
  Type.Enum([...choices], {
    default: initial,
    accepts: choices.length === 2 ? choices.join(' or ') : `one of ${choices.join(', ')}`,
    description,
  });

export const Settings = Type.Object({
  config: Type.Optional(
    text('a path', 'JSON file with settings in camelCase, and with the policies of gateways'),
  ),
  host: Type.String({
    minLength: 1,
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    description: 'address for checks',
  }),
  port: integer(0, 65_535, 7070, 'port for checks; 0 selects a free port'),
  publicUrl: Type.Optional(
    text(
      'an http or https URL without credentials, query and fragment, as in https://weir.example',
      'base URL of the port for checks as clients see it, for links in errors and in the log',
    ),
  ),
  socket: socketPath('additional Unix socket for checks'),
  socketMode: socketMode('permissions of WEIR_SOCKET: owner, group, others'),
  gatewayHost: Type.String({
    pattern: '^(127(\\.\\d{1,3}){3}|::1)$',
    default: '127.0.0.1',
    accepts: '127.x.x.x or ::1',
    description: 'loopback address for gateway checks, without a key',
  }),
  gatewayPort: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 65_535,
      accepts: 'an integer from 0 to 65535',
      description: 'port for gateway checks, without a key; 0 selects a free port',
    }),
  ),
  gatewaySocket: socketPath('Unix socket for gateway checks, without a key'),
  gatewaySocketMode: socketMode('permissions of WEIR_GATEWAY_SOCKET: owner, group, others'),
  tlsCert: Type.Optional(
    text(
      'a path',
      'certificate chain in PEM, which enables TLS on WEIR_PORT; read again on SIGHUP',
    ),
  ),
  tlsKey: Type.Optional(
    text('a path', 'private key of the certificate in PEM, without a passphrase'),
  ),
  adminHost: Type.String({
    minLength: 1,
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    description: 'address for health, metrics and the dashboard',
  }),
  adminPort: integer(
    0,
    65_535,
    7071,
    'port for health, metrics and the dashboard; 0 selects a free port',
  ),
  adminHosts: Type.Optional(
    text(
      'host names without ports, separated by commas',
      'host names accepted in the header Host on the admin port, beside addresses and localhost;' +
        ' /livez, /readyz and /metrics accept any',
    ),
  ),
  dashboard: choice(
    ['auto', 'true', 'false'],
    'auto',
    'whether the admin port serves the dashboard; auto: if WEIR_ADMIN_HOST is a loopback address',
  ),
  dataDir: Type.String({
    minLength: 1,
    default: './weir-data',
    accepts: 'a path',
    description:
      'directory of the store and the counters; created if missing, used by one process only',
  }),
  rootKey: Type.Optional(
    Type.String({
      pattern: `^[\\x21-\\x7e]{${ROOT_KEY_MIN_CHARACTERS},${KEY_MAX_CHARACTERS}}$`,
      accepts:
        `${ROOT_KEY_MIN_CHARACTERS} to ${KEY_MAX_CHARACTERS} visible ASCII characters ` +
        'without spaces' +
        ' (openssl rand -hex 32 makes a good key)',
      description: 'root key, in addition to the stored keys',
      secret: true,
    }),
  ),
  rootKeyFile: Type.Optional(
    text('a path', 'file that contains the root key; /dev/stdin reads standard input'),
  ),
  acceptors: integer(
    1,
    ACCEPTORS_MAX,
    Math.min(8, Math.max(1, Math.floor(cores / 2))),
    'threads that answer checks',
    'half of the available cores, at most 8, fewer with a low memory limit',
  ),
  workers: integer(
    1,
    WORKERS_MAX,
    Math.min(4, Math.max(1, Math.floor(cores / 4))),
    'threads that maintain the counters',
    'a quarter of the available cores, at most 4, fewer with a low memory limit',
  ),
  connections: integer(
    1,
    CONNECTIONS_MAX,
    10_000,
    'maximum number of open connections; lower if the limit of open files requires it',
  ),
  decide: choice(
    ['in-place', 'worker'],
    'in-place',
    'what decides a single check: the acceptor that received it, or a shard worker',
  ),
  counters: integer(
    COUNTERS_MIN,
    COUNTERS_MAX,
    COUNTERS_DEFAULT_MAX,
    'live counters stored without eviction: 128 bytes each, 384 with WEIR_ENGINE=redis',
    `${COUNTERS_DEFAULT_MAX}, fewer with a low memory limit`,
  ),
  onFull: choice(
    FULL_TABLE_POLICIES,
    'deny',
    'decision for a check that needs a new counter when the table is full',
  ),
  checkpointMs: duration(
    CHECKPOINT_INTERVAL_MIN_MS,
    CHECKPOINT_INTERVAL_MAX_MS,
    1_000,
    'interval in ms between checkpoints of the counters, which the next start loads',
  ),
  drainMs: duration(
    0,
    DRAIN_MAX_MS,
    250,
    'time in ms after SIGTERM during which requests are still answered',
  ),
  unresponsiveMs: duration(
    UNRESPONSIVE_MIN_MS,
    UNRESPONSIVE_MAX_MS,
    UNRESPONSIVE_DEFAULT_MS,
    'time in ms without a heartbeat after which an acceptor ends the process as unresponsive; ' +
      'the time that it waits for a CPU does not count',
  ),
  engine: choice(
    ['memory', 'redis'],
    'memory',
    'where counters are: in the memory of this process, or in a Redis that several weirs share',
  ),
  redisUrl: Type.Optional(
    Type.String({
      pattern: '^[Rr][Ee][Dd][Ii][Ss][Ss]?(\\+[A-Za-z]+)?://[^\\s#]+$',
      accepts: REDIS_URL_FORMS,
      description: 'URL of the Redis or Valkey that all weirs share',
      secret: true,
    }),
  ),
  redisPasswordFile: Type.Optional(
    text('a path', 'file that contains the password of Redis; /dev/stdin reads standard input'),
  ),
  redisCa: Type.Optional(
    text('a path', 'certificates in PEM that sign those of Redis, in place of those of the system'),
  ),
  redisCert: Type.Optional(
    text('a path', 'certificate chain in PEM that weir shows to Redis as a client'),
  ),
  redisKey: Type.Optional(
    text('a path', 'private key of WEIR_REDIS_CERT in PEM, without a passphrase'),
  ),
  redisPrefix: Type.String({
    pattern: `^[A-Za-z0-9._:-]{1,${REDIS_PREFIX_MAX_CHARACTERS}}$`,
    default: 'weir',
    accepts: `1 to ${REDIS_PREFIX_MAX_CHARACTERS} letters, digits and characters of . _ : -`,
    description: 'first part of the names of all keys and channels in Redis',
  }),
  redisTimeoutMs: duration(
    REDIS_TIMEOUT_MIN_MS,
    REDIS_TIMEOUT_MAX_MS,
    200,
    'time in ms that a check waits for Redis; WEIR_ON_ENGINE_DOWN decides it then',
  ),
  redisWait: integer(
    0,
    REDIS_WAIT_MAX,
    0,
    'replicas that must have received a change before the change counts as stored',
  ),
  leases: choice(
    ['on', 'off'],
    'on',
    'whether weir takes tokens of busy counters in advance, and decides with them in memory',
  ),
  syncMs: duration(
    SYNC_INTERVAL_MIN_MS,
    SYNC_INTERVAL_MAX_MS,
    100,
    'interval in ms at which usage that Redis does not know is reported to it',
  ),
  onEngineDown: choice(
    ENGINE_DOWN_POLICIES,
    'local',
    'decision for a check that needs Redis when Redis does not answer',
  ),
  localShare: choice(
    LOCAL_SHARES,
    'whole',
    'limit that each weir applies alone: the whole limit, or divided by the number of weirs',
  ),
  recovery: choice(
    RECOVERY_MODES,
    'available',
    'what happens after Redis has lost usage while a weir is missing: go on, or wait for it',
  ),
  redisEviction: choice(
    EVICTION_MODES,
    'refuse',
    'whether weir starts with a Redis whose maxmemory-policy is not noeviction',
  ),
  analytics: choice(
    ['on', 'off'],
    'on',
    'whether weir stores what each namespace and its busiest identifiers use',
  ),
  analyticsMinutes: integer(
    60,
    ANALYTICS_MINUTES_MAX,
    1_440,
    'minutes for which the figures of each minute are kept',
  ),
  analyticsHours: integer(
    24,
    ANALYTICS_HOURS_MAX,
    720,
    'hours for which the figures and the identifiers of each hour are kept',
  ),
  events: choice(
    EVENT_SELECTIONS,
    'off',
    'decisions that are written as events, each a line of JSON',
  ),
  eventsOneIn: integer(
    1,
    EVENT_SAMPLE_MAX,
    1,
    'a sample: the decisions that WEIR_EVENTS selects are written for one of so many requests, ' +
      'at random',
  ),
  eventsFile: Type.Optional(
    text(
      '- or a path',
      'file of events, or - for standard output; default: events.jsonl in WEIR_DATA_DIR',
    ),
  ),
  eventsFileMib: integer(
    1,
    EVENT_FILE_MIB_MAX,
    100,
    'size in MiB at which the file of events is rotated',
  ),
  eventsFiles: integer(0, EVENT_FILES_MAX, 5, 'rotated files of events that are kept'),
  eventsIdentifier: choice(
    IDENTIFIER_FORMS,
    'text',
    'whether events show identifiers, or their hash by the secret key of the data directory',
  ),
  logLevel: choice(
    ['fatal', 'error', 'warn', 'info', 'debug', 'silent'],
    'info',
    'lowest level that is logged on standard error',
  ),
  logFormat: choice(['json', 'text'], 'json', 'format of log lines'),
});

export type Settings = Static<typeof Settings>;
export type SettingName = keyof typeof Settings.properties;

export const SETTING_NAMES = Object.keys(Settings.properties) as SettingName[];

/** For `rootKeyFile`: WEIR_ROOT_KEY_FILE. */
export function environmentName(name: SettingName): string {
  return `WEIR_${name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
}

/** For `rootKeyFile`: --root-key-file. */
export function flagName(name: SettingName): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The options of a setting in the schema. */
interface Annotations {
  /** The accepted values, for messages. */
  accepts: string;
  description: string;
  default?: string | number;
  /** How the default follows from the machine, where it does. */
  defaultRule?: string;
  /** Milliseconds, which may be a text with a unit. */
  isDuration?: boolean;
  /** A secret has no flag: every user of the machine could read it. */
  secret?: boolean;
  type: string;
}

export function annotations(name: SettingName): Annotations {
  return Settings.properties[name] as unknown as Annotations;
}
