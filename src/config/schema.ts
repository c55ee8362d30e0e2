/**
 * The only declaration of each setting; `redis/settings.ts` declares those of the engine in Redis.
 * A new setting has one more place, which reads it: `core/setting.ts` says what derives from it.
 */

import Type, { type Static } from 'typebox';
import { ROLE_NAMES } from '../auth/roles.ts';
import { describeInvalidRoles } from '../auth/users.ts';
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
  HOLDS_DEFAULT,
  HOLDS_MAX,
  HOLDS_MIN,
  KEY_MAX_CHARACTERS,
  PROXY_SECRET_MAX_CHARACTERS,
  PROXY_SECRET_MIN_CHARACTERS,
  ROOT_KEY_MIN_CHARACTERS,
  UNRESPONSIVE_DEFAULT_MS,
  UNRESPONSIVE_MAX_MS,
  UNRESPONSIVE_MIN_MS,
  WORKERS_MAX,
} from '../core/constants.ts';
import { FULL_TABLE_POLICIES } from '../core/decision.ts';
import {
  choice,
  declarationOf,
  duration,
  integer,
  path,
  type SettingDeclaration,
  socketMode,
  socketPath,
  text,
} from '../core/setting.ts';
import { EXPIRED_HOLD_POLICIES, LOST_LEASE_POLICIES } from '../engine/hold-engine.ts';
import { IDENTIFIER_FORMS } from '../events/decision-event.ts';
import { EVENT_SELECTIONS } from '../events/event-recorder.ts';
import { REDIS_SETTINGS } from '../redis/settings.ts';
import { RLS_SETTINGS } from '../rls/config/settings.ts';
import { ENGINE_NAMES } from './engines.ts';
import { availableCores } from './resources.ts';
import {
  describeInvalidHosts,
  describeInvalidUrl,
  describeInvalidUserHeader,
} from './validators.ts';

const cores = availableCores();

export const Settings = Type.Object({
  config: path({
    group: 'Addresses',
    description: 'JSON file with settings in camelCase, and with the policies of gateways',
    details: 'The file itself cannot set it. See [Configuration file](#configuration-file).',
  }),
  host: text({
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    group: 'Addresses',
    description: 'address for checks',
    details: 'Use `0.0.0.0` to accept clients on other machines.',
    examples: ['0.0.0.0', '::'],
    isInChart: false,
  }),
  port: integer({
    minimum: 0,
    maximum: 65_535,
    default: 7070,
    group: 'Addresses',
    description: 'port for checks; 0 selects a free port',
    isInChart: false,
  }),
  publicUrl: Type.Optional(
    text({
      accepts:
        'an http or https URL without credentials, query and fragment, as in https://weir.example',
      group: 'Addresses',
      description:
        'base URL of the port for checks as clients see it, for links in errors and in the log',
      details:
        'The startup message uses it too. It may have a path. By default links contain ' +
        '`WEIR_HOST`; if that is `0.0.0.0` or `::`, they are relative. `/docs` and ' +
        '`/openapi.json` show it too. By default they show the header `Host` of their request, ' +
        'with `https` if the port has TLS.',
      examples: ['https://weir.example', 'https://gateway.example/weir'],
      describeInvalid: describeInvalidUrl,
    }),
  ),
  socket: socketPath({
    group: 'Addresses',
    description: 'additional Unix socket for checks',
    details:
      'weir removes the socket when it stops. See [Unix sockets](deployment.md#unix-sockets).',
    examples: ['/run/weir/checks.sock'],
  }),
  socketMode: socketMode({
    group: 'Addresses',
    description: 'permissions of WEIR_SOCKET: owner, group, others',
  }),
  gatewayHost: text({
    pattern: '^(127(\\.\\d{1,3}){3}|::1)$',
    default: '127.0.0.1',
    accepts: '127.x.x.x or ::1',
    group: 'Gateways',
    description: 'loopback address for gateway checks, without a key',
    details: 'weir rejects other addresses, because this listener needs no key.',
    isInChart: false,
  }),
  gatewayPort: Type.Optional(
    integer({
      minimum: 0,
      maximum: 65_535,
      group: 'Gateways',
      description: 'port for gateway checks, without a key; 0 selects a free port',
      details: 'The log names the selected port. By default weir opens no such port.',
      examples: [7072],
      isInChart: false,
    }),
  ),
  gatewaySocket: socketPath({
    group: 'Gateways',
    description: 'Unix socket for gateway checks, without a key',
    details: 'weir removes the socket when it stops.',
    examples: ['/run/weir/gateway.sock'],
  }),
  gatewaySocketMode: socketMode({
    group: 'Gateways',
    description: 'permissions of WEIR_GATEWAY_SOCKET: owner, group, others',
  }),
  ...RLS_SETTINGS,
  tlsCert: path({
    group: 'TLS',
    description: 'certificate chain in PEM, which enables TLS on WEIR_PORT; read again on SIGHUP',
    details:
      'It requires `WEIR_TLS_KEY`. Unix sockets and the admin port have no TLS. See ' +
      '[TLS](deployment.md#tls).',
    examples: ['/etc/weir/tls.crt'],
  }),
  tlsKey: path({
    group: 'TLS',
    description: 'private key of the certificate in PEM, without a passphrase',
    details: `It requires \`WEIR_TLS_CERT\`. weir reads the file again on SIGHUP.`,
    examples: ['/etc/weir/tls.key'],
  }),
  adminHost: text({
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    group: 'Health, metrics and dashboard',
    description: 'address for health, metrics and the dashboard',
    details:
      'Use `0.0.0.0` for the probes of a kubelet or a Prometheus on another machine. This port ' +
      'needs no key.',
    examples: ['0.0.0.0'],
    isInChart: false,
  }),
  adminPort: integer({
    minimum: 0,
    maximum: 65_535,
    default: 7071,
    group: 'Health, metrics and dashboard',
    description: 'port for health, metrics and the dashboard; 0 selects a free port',
    isInChart: false,
  }),
  adminHosts: Type.Optional(
    text({
      accepts: 'host names without ports, separated by commas',
      group: 'Health, metrics and dashboard',
      description:
        'host names accepted in the header Host on the admin port, beside addresses and ' +
        'localhost; /livez, /readyz and /metrics accept any',
      details:
        'On all other paths weir rejects other names, as a protection against DNS rebinding.',
      examples: ['weir.example, weir.internal'],
      describeInvalid: describeInvalidHosts,
    }),
  ),
  dashboard: choice({
    choices: ['auto', 'true', 'false'],
    default: 'auto',
    group: 'Health, metrics and dashboard',
    description:
      'whether the admin port serves the dashboard; auto: if WEIR_ADMIN_HOST is a loopback address',
    details:
      'The admin port has no TLS. Use `true` only behind a proxy with TLS, or in a network ' +
      'that you trust. See [Dashboard](dashboard.md#exposure).',
  }),
  dashboardUserHeader: Type.Optional(
    text({
      accepts:
        'the name of a header: at most 64 letters, digits and -, and none that browsers or weir ' +
        'define',
      group: 'Health, metrics and dashboard',
      description:
        'header in which a proxy in front of the dashboard names the user whom it has signed in',
      details:
        'It requires `WEIR_DASHBOARD_PROXY_SECRET_FILE`. See ' +
        '[Sign-in by a proxy](dashboard.md#sign-in-by-a-proxy).',
      examples: ['X-Forwarded-User', 'Remote-User'],
      isInChart: false,
      describeInvalid: describeInvalidUserHeader,
    }),
  ),
  dashboardProxySecretFile: path({
    group: 'Health, metrics and dashboard',
    description: 'file that contains the secret which this proxy sends in X-Weir-Proxy-Secret',
    details:
      `The secret has ${PROXY_SECRET_MIN_CHARACTERS} to ${PROXY_SECRET_MAX_CHARACTERS} visible ` +
      'ASCII characters. weir reads the file when it starts.',
    examples: ['/run/secrets/weir-proxy'],
  }),
  dashboardUserRoles: Type.Optional(
    text({
      accepts:
        `<user>=<role> pairs, separated by commas: the role is one of ${ROLE_NAMES.join(', ')}, ` +
        'the user * stands for all users that are not named',
      group: 'Health, metrics and dashboard',
      description: 'roles of the users whom this proxy signs in; all others are viewers',
      details: 'Names are compared exactly. See [Roles](security.md#roles).',
      examples: ['ann@example.com=admin, bob@example.com=operator', '*=operator, guest=viewer'],
      isInChart: false,
      describeInvalid: describeInvalidRoles,
    }),
  ),
  dataDir: text({
    default: './weir-data',
    accepts: 'a path',
    group: 'Data',
    description:
      'directory of the store and the counters; created if missing, used by one process only',
    details: 'See [Data directory](deployment.md#data-directory) for owners and modes.',
    examples: ['/var/lib/weir'],
    isInChart: false,
  }),
  rootKey: Type.Optional(
    text({
      pattern: `^[\\x21-\\x7e]{${ROOT_KEY_MIN_CHARACTERS},${KEY_MAX_CHARACTERS}}$`,
      accepts:
        `${ROOT_KEY_MIN_CHARACTERS} to ${KEY_MAX_CHARACTERS} visible ASCII characters ` +
        'without spaces' +
        ' (openssl rand -hex 32 makes a good key)',
      secret: true,
      group: 'Keys',
      description: 'root key, in addition to the stored keys',
      details:
        'It has no flag, because every user of the machine can read the flags of a process. ' +
        'In a container prefer `WEIR_ROOT_KEY_FILE`.',
    }),
  ),
  rootKeyFile: path({
    group: 'Keys',
    description: 'file that contains the root key; /dev/stdin reads standard input',
    details: 'It cannot be combined with `WEIR_ROOT_KEY`. See [Keys](security.md#keys).',
    examples: ['/run/secrets/weir', '/dev/stdin'],
  }),
  acceptors: integer({
    minimum: 1,
    maximum: ACCEPTORS_MAX,
    default: Math.min(8, Math.max(1, Math.floor(cores / 2))),
    defaultRule: 'half of the available cores, at most 8, fewer with a low memory limit',
    group: 'Threads',
    description: 'threads that answer checks',
    details: 'Each acceptor after the first uses 24 MiB.',
    examples: [4],
  }),
  workers: integer({
    minimum: 1,
    maximum: WORKERS_MAX,
    default: Math.min(4, Math.max(1, Math.floor(cores / 4))),
    defaultRule: 'a quarter of the available cores, at most 4, fewer with a low memory limit',
    group: 'Threads',
    description: 'threads that maintain the counters',
    details: 'Each shard worker after the first uses 8 MiB.',
    examples: [2],
  }),
  connections: integer({
    minimum: 1,
    maximum: CONNECTIONS_MAX,
    default: 10_000,
    group: 'Addresses',
    description: 'maximum number of open connections; lower if the limit of open files requires it',
    details:
      'If the number is lowered, the log says so. If gateways have a listener of their own, an ' +
      'eighth of the connections is reserved for them. See [Overload](operations.md#overload).',
  }),
  decide: choice({
    choices: ['in-place', 'worker'],
    default: 'in-place',
    group: 'Threads',
    description: 'what decides a single check: the acceptor that received it, or a shard worker',
    details:
      'Keep the default: with `worker` each check costs two wake-ups of threads, and clients ' +
      'cannot pipeline requests.',
  }),
  counters: integer({
    minimum: COUNTERS_MIN,
    maximum: COUNTERS_MAX,
    default: COUNTERS_DEFAULT_MAX,
    defaultRule: `${COUNTERS_DEFAULT_MAX}, fewer with a low memory limit`,
    group: 'Counters',
    description:
      'live counters stored without eviction: 128 bytes each, 384 with WEIR_ENGINE=redis',
    details:
      'Memory is used when counters are stored, not before. weir does not start with a number ' +
      'that cannot fit into the memory limit. See [Memory](operations.md#memory).',
    examples: [1_048_576],
  }),
  onFull: choice({
    choices: FULL_TABLE_POLICIES,
    default: 'deny',
    group: 'Counters',
    description: 'decision for a check that needs a new counter when the table is full',
    details: 'See [Eviction](concepts.md#eviction).',
  }),
  holds: integer({
    minimum: HOLDS_MIN,
    maximum: HOLDS_MAX,
    default: HOLDS_DEFAULT,
    group: 'Counters',
    description: 'reservations and leases that are recorded: about 200 bytes each',
    details:
      'One identifier can have a sixteenth of them. Memory is used when they are recorded, not ' +
      'before. With `WEIR_ENGINE=redis` it is the number of all machines together, each takes ' +
      'about 700 bytes of Redis, and one identifier can have all of them, or a 64th in a Redis ' +
      'Cluster. `WEIR_ON_FULL` also decides when there is no room. See [Full ' +
      'table](reservations.md#full-table).',
    examples: [HOLDS_MAX / 16],
  }),
  onHoldExpiry: choice({
    choices: EXPIRED_HOLD_POLICIES,
    default: 'release',
    group: 'Counters',
    description:
      'whether the tokens of a reservation that expires return to their window, or stay counted',
    details: 'See [Reservations and leases](reservations.md).',
  }),
  onLostLeases: choice({
    choices: LOST_LEASE_POLICIES,
    default: 'continue',
    group: 'Counters',
    description:
      'whether leases are granted after a crash before the leases that it lost have ended',
    details:
      '`wait` denies every acquire until then, so that no limit is exceeded. Only with ' +
      '`WEIR_ENGINE=memory`. See [Lost leases](reservations.md#lost-leases).',
  }),
  checkpointMs: duration({
    minimum: CHECKPOINT_INTERVAL_MIN_MS,
    maximum: CHECKPOINT_INTERVAL_MAX_MS,
    default: 1_000,
    group: 'Data',
    description: 'interval in ms between checkpoints of the counters, which the next start loads',
    details:
      'A `kill -9` loses at most the decisions of this interval and of the time to write one ' +
      'checkpoint.',
  }),
  drainMs: duration({
    minimum: 0,
    maximum: DRAIN_MAX_MS,
    default: 250,
    group: 'Threads',
    description: 'time in ms after SIGTERM during which requests are still answered',
    details: 'weir stops earlier if no client is connected.',
  }),
  unresponsiveMs: duration({
    minimum: UNRESPONSIVE_MIN_MS,
    maximum: UNRESPONSIVE_MAX_MS,
    default: UNRESPONSIVE_DEFAULT_MS,
    group: 'Threads',
    description:
      'time in ms without a heartbeat after which an acceptor ends the process as unresponsive; ' +
      'the time that it waits for a CPU does not count',
    details:
      'See [Threads without a CPU](operations.md#threads-without-a-cpu). Without procfs, as on ' +
      'macOS, it counts too.',
  }),
  engine: choice({
    choices: ENGINE_NAMES,
    default: 'memory',
    group: 'Redis',
    description:
      'where counters are: in the memory of this process, or in a Redis that several weirs share',
    details: 'With `redis` the following settings apply, and `WEIR_REDIS_URL` is required.',
    isInChart: false,
  }),
  ...REDIS_SETTINGS,
  analytics: choice({
    choices: ['on', 'off'],
    default: 'on',
    group: 'Analytics',
    description: 'whether weir stores what each namespace and its busiest identifiers use',
    details: 'The figures are in `analytics.db` in the data directory.',
  }),
  analyticsMinutes: integer({
    minimum: 60,
    maximum: ANALYTICS_MINUTES_MAX,
    default: 1_440,
    group: 'Analytics',
    description: 'minutes for which the figures of each minute are kept',
    details: 'A day. The figures of older minutes remain in those of their hour.',
  }),
  analyticsHours: integer({
    minimum: 24,
    maximum: ANALYTICS_HOURS_MAX,
    default: 720,
    group: 'Analytics',
    description: 'hours for which the figures and the identifiers of each hour are kept',
    details: 'Thirty days.',
  }),
  recentDecisions: choice({
    choices: ['on', 'off'],
    default: 'on',
    group: 'Analytics',
    description: 'whether weir keeps the denials and some other decisions of the last minutes',
    details: 'In memory only. See [Recent decisions](analytics.md#recent-decisions).',
  }),
  events: choice({
    choices: EVENT_SELECTIONS,
    default: 'off',
    group: 'Events',
    description: 'decisions that are written as events, each a line of JSON',
    details: 'See [Events](events.md).',
  }),
  eventsOneIn: integer({
    minimum: 1,
    maximum: EVENT_SAMPLE_MAX,
    default: 1,
    group: 'Events',
    description:
      'a sample: the decisions that WEIR_EVENTS selects are written for one of so many requests, ' +
      'at random',
  }),
  eventsFile: Type.Optional(
    text({
      accepts: '- or a path',
      group: 'Events',
      description:
        'file of events, or - for standard output; default: events.jsonl in WEIR_DATA_DIR',
      details: 'weir does not start if it cannot write the file.',
    }),
  ),
  eventsFileMib: integer({
    minimum: 1,
    maximum: EVENT_FILE_MIB_MAX,
    default: 100,
    group: 'Events',
    description: 'size in MiB at which the file of events is rotated',
  }),
  eventsFiles: integer({
    minimum: 0,
    maximum: EVENT_FILES_MAX,
    default: 5,
    group: 'Events',
    description: 'rotated files of events that are kept',
    details: 'They are `events.jsonl.1`, the newest one, to `events.jsonl.5`.',
  }),
  eventsIdentifier: choice({
    choices: IDENTIFIER_FORMS,
    default: 'text',
    group: 'Events',
    description:
      'whether events show identifiers, or their hash by the secret key of the data directory',
  }),
  logLevel: choice({
    choices: ['fatal', 'error', 'warn', 'info', 'debug', 'silent'],
    default: 'info',
    group: 'Log',
    description: 'lowest level that is logged on standard error',
    details: 'See [Log](operations.md#log) for what each level logs.',
  }),
  logFormat: choice({
    choices: ['json', 'text'],
    default: 'json',
    group: 'Log',
    description: 'format of log lines',
    details: '`json` prints one JSON object per line, `text` one line of text.',
  }),
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

const DECLARATIONS = Object.fromEntries(
  SETTING_NAMES.map((name) => [name, declarationOf(Settings.properties[name])]),
) as Record<SettingName, SettingDeclaration>;

export function annotations(name: SettingName): SettingDeclaration {
  return DECLARATIONS[name];
}
