/**
 * The tables of all settings, in groups. Names, defaults and accepted values come from the schema
 * of the settings; the details here are what a short description cannot say.
 */

import {
  annotations,
  environmentName,
  flagName,
  type SettingName,
} from '../../src/config/schema.ts';
import { inlineCode, markdownTable } from './markdown.ts';

interface SettingGroup {
  title: string;
  /** The settings of the group, with sentences that follow their description. */
  settings: Partial<Record<SettingName, string>>;
}

const REREAD = 'weir reads the file again on SIGHUP.';

export const SETTING_GROUPS: readonly SettingGroup[] = [
  {
    title: 'Addresses',
    settings: {
      config: 'The file itself cannot set it. See [Configuration file](#configuration-file).',
      host: 'Use `0.0.0.0` to accept clients on other machines.',
      port: '',
      publicUrl:
        'The startup message uses it too. It may have a path. By default links contain ' +
        '`WEIR_HOST`; if that is `0.0.0.0` or `::`, they are relative. `/docs` and ' +
        '`/openapi.json` show it too. By default they show the header `Host` of their request, ' +
        'with `https` if the port has TLS.',
      socket:
        'weir removes the socket when it stops. ' +
        'See [Unix sockets](deployment.md#unix-sockets).',
      socketMode: '',
      connections:
        'If the number is lowered, the log says so. If gateways have a listener of their own, an ' +
        'eighth of the connections is reserved for them. See [Overload](operations.md#overload).',
    },
  },
  {
    title: 'Gateways',
    settings: {
      gatewayHost: 'weir rejects other addresses, because this listener needs no key.',
      gatewayPort: 'The log names the selected port. By default weir opens no such port.',
      gatewaySocket: 'weir removes the socket when it stops.',
      gatewaySocketMode: '',
    },
  },
  {
    title: 'TLS',
    settings: {
      tlsCert:
        'It requires `WEIR_TLS_KEY`. Unix sockets and the admin port have no TLS. See ' +
        '[TLS](deployment.md#tls).',
      tlsKey: `It requires \`WEIR_TLS_CERT\`. ${REREAD}`,
    },
  },
  {
    title: 'Health, metrics and dashboard',
    settings: {
      adminHost:
        'Use `0.0.0.0` for the probes of a kubelet or a Prometheus on another machine. This port ' +
        'needs no key.',
      adminPort: '',
      adminHosts:
        'On all other paths weir rejects other names, as a protection against DNS rebinding.',
      dashboard:
        'The admin port has no TLS. Use `true` only behind a proxy with TLS, or in a network ' +
        'that you trust. See [Dashboard](dashboard.md#exposure).',
    },
  },
  {
    title: 'Data',
    settings: {
      dataDir: 'See [Data directory](deployment.md#data-directory) for owners and modes.',
      checkpointMs:
        'A `kill -9` loses at most the decisions of this interval and of the time to write one ' +
        'checkpoint.',
    },
  },
  {
    title: 'Analytics',
    settings: {
      analytics: 'The figures are in `analytics.db` in the data directory.',
      analyticsMinutes: 'A day. The figures of older minutes remain in those of their hour.',
      analyticsHours: 'Thirty days.',
    },
  },
  {
    title: 'Events',
    settings: {
      events: 'See [Events](events.md).',
      eventsOneIn: '',
      eventsFile: 'weir does not start if it cannot write the file.',
      eventsFileMib: '',
      eventsFiles: 'They are `events.jsonl.1`, the newest one, to `events.jsonl.5`.',
      eventsIdentifier: '',
    },
  },
  {
    title: 'Keys',
    settings: {
      rootKey:
        'It has no flag, because every user of the machine can read the flags of a process. ' +
        'In a container prefer `WEIR_ROOT_KEY_FILE`.',
      rootKeyFile: 'It cannot be combined with `WEIR_ROOT_KEY`. See [Keys](security.md#keys).',
    },
  },
  {
    title: 'Threads',
    settings: {
      acceptors: 'Each acceptor after the first uses 24 MiB.',
      workers: 'Each shard worker after the first uses 8 MiB.',
      decide:
        'Keep the default: with `worker` each check costs two wake-ups of threads, and clients ' +
        'cannot pipeline requests.',
      drainMs: 'weir stops earlier if no client is connected.',
      unresponsiveMs:
        'See [Threads without a CPU](operations.md#threads-without-a-cpu). Without procfs, as on ' +
        'macOS, it counts too.',
    },
  },
  {
    title: 'Counters',
    settings: {
      counters:
        'Memory is used when counters are stored, not before. weir does not start with a number ' +
        'that cannot fit into the memory limit. See [Memory](operations.md#memory).',
      onFull: 'See [Eviction](concepts.md#eviction).',
    },
  },
  {
    title: 'Redis',
    settings: {
      engine: 'With `redis` the following settings apply, and `WEIR_REDIS_URL` is required.',
      redisUrl:
        'It has no flag, because it may contain a password. In a user or a password write `@`, ' +
        '`:`, `/`, `?` and `#` as `%40`, `%3A`, `%2F`, `%3F` and `%23`. Redis 7.0 and Valkey ' +
        '7.2 are the oldest supported versions.',
      redisPasswordFile: 'It cannot be combined with a password in `WEIR_REDIS_URL`.',
      redisCa: 'It requires a URL with TLS.',
      redisCert: 'It requires `WEIR_REDIS_KEY`, and a URL with TLS.',
      redisKey: 'It requires `WEIR_REDIS_CERT`.',
      redisPrefix: 'All weirs that share counters have the same one.',
      redisTimeoutMs:
        'Most checks do not wait: they are decided in memory. Requests to Redis fail after the ' +
        'same time, but not before 50 ms. When Redis hangs, checks take so long until five ' +
        'requests have failed. With much less, a machine that waits for a core decides without ' +
        'Redis although nothing has failed.',
      redisWait:
        'With 1 and more, a failover loses no usage that a weir has seen acknowledged. Each ' +
        'request to Redis then takes longer, and fails while fewer replicas are connected: see ' +
        '[Sentinel](cluster.md#sentinel).',
      leases: 'With `off`, each check is a request to Redis, and checks are decided in its order.',
      syncMs:
        'Checks with `async: true` on one weir are known to the others after this interval, or ' +
        'sooner when little is left of their limit.',
      onEngineDown:
        'With `local`, each weir applies the limit to what it knows: N weirs may allow N times ' +
        'what was left. With `allow` there is no limit. With `deny` no check passes.',
      localShare:
        'It applies with `local`, the default of `WEIR_ON_ENGINE_DOWN`. With `divided`, a weir ' +
        'that gets more than its share of the checks denies too early.',
      recovery:
        '`available` waits for weirs that respond, for a second at most. `exact` denies checks ' +
        'of counters whose usage may be missing until it is proven.',
      redisEviction:
        'With `accept`, a full Redis deletes counters, overrides and keys, and windows may ' +
        'exceed their limits. See [Eviction policy](cluster.md#eviction-policy).',
    },
  },
  {
    title: 'Log',
    settings: {
      logLevel: 'See [Log](operations.md#log) for what each level logs.',
      logFormat: '`json` prints one JSON object per line, `text` one line of text.',
    },
  },
];

/** The sentences that follow the description of a setting; '' for none. */
export function detailsOf(name: SettingName): string {
  return SETTING_GROUPS.map(({ settings }) => settings[name] ?? '').join('');
}

export function settingsTables(): string {
  return SETTING_GROUPS.map(({ title, settings }) => {
    const rows = (Object.entries(settings) as [SettingName, string][]).map(settingRow);
    const header = ['names', 'default', 'accepts', 'meaning'];
    return `### ${title}\n\n${markdownTable(header, rows)}`;
  }).join('\n\n');
}

function settingRow([name, details]: [SettingName, string]): string[] {
  const { accepts, default: initial, defaultRule, description, secret } = annotations(name);
  const names = [
    environmentName(name),
    ...(secret ? [] : [flagName(name)]),
    ...(name === 'config' ? [] : [name]),
  ];
  const none = initial === undefined ? 'none' : inlineCode(String(initial));
  return [
    names.map(inlineCode).join('<br>'),
    defaultRule ?? none,
    accepts,
    `${description[0].toUpperCase()}${description.slice(1)}. ${details}`.trimEnd(),
  ];
}
