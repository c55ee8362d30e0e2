/**
 * Every setting, once: the type and bounds it takes, its default and its meaning. Flags,
 * environment variables, the keys of the JSON file and the text of --help are all made from this
 * schema.
 */

import Type, { type Static } from 'typebox';
import {
  ACCEPTORS_MAX,
  CHECKPOINT_INTERVAL_MAX_MS,
  CHECKPOINT_INTERVAL_MIN_MS,
  CONNECTIONS_MAX,
  COUNTERS_DEFAULT_MAX,
  COUNTERS_MAX,
  COUNTERS_MIN,
  DRAIN_MAX_MS,
  KEY_MAX_CHARACTERS,
  ROOT_KEY_MIN_CHARACTERS,
  SOCKET_PATH_MAX_BYTES,
  WORKERS_MAX,
} from '../core/constants.ts';
import { availableCores } from './cores.ts';

const cores = availableCores();

const text = (accepts: string, meaning: string) => Type.String({ minLength: 1, accepts, meaning });
const integer = (minimum: number, maximum: number, initial: number, meaning: string) =>
  Type.Integer({
    minimum,
    maximum,
    default: initial,
    accepts: `an integer from ${minimum} to ${maximum}`,
    meaning,
  });
const socketPath = (meaning: string) =>
  Type.Optional(
    Type.String({
      pattern: '^[^\\0]+$',
      accepts: `a path of at most ${SOCKET_PATH_MAX_BYTES} bytes`,
      meaning,
    }),
  );
const socketMode = (meaning: string) =>
  Type.String({
    pattern: '^0?[0-7]{3}$',
    default: '0660',
    accepts: 'three octal digits, as in 0660',
    meaning,
  });
const choice = <T extends string>(choices: T[], initial: T, meaning: string) =>
  Type.Enum(choices, {
    default: initial,
    accepts: choices.length === 2 ? choices.join(' or ') : `one of ${choices.join(', ')}`,
    meaning,
  });

export const Settings = Type.Object({
  config: Type.Optional(text('a path', 'JSON file with settings, by these names in camelCase')),
  host: Type.String({
    minLength: 1,
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    meaning: 'where checks are served',
  }),
  port: integer(0, 65_535, 7070, 'port of the checks; 0 takes a free one'),
  publicUrl: Type.Optional(
    text(
      'an http or https URL without credentials, query and fragment, as in https://weir.example',
      'base URL by which clients reach that port, for links in errors and in the log',
    ),
  ),
  socket: socketPath('Unix socket on which checks are served as well'),
  socketMode: socketMode('who may connect to WEIR_SOCKET: owner, group, others'),
  gatewayHost: Type.String({
    pattern: '^(127(\\.\\d{1,3}){3}|::1)$',
    default: '127.0.0.1',
    accepts: '127.x.x.x or ::1',
    meaning: 'loopback address for checks of gateways, which need no key there',
  }),
  gatewayPort: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 65_535,
      accepts: 'an integer from 0 to 65535',
      meaning: 'port for checks of gateways; 0 takes a free one',
    }),
  ),
  gatewaySocket: socketPath('Unix socket for checks of gateways, without a key'),
  gatewaySocketMode: socketMode('who may connect to WEIR_GATEWAY_SOCKET: owner, group, others'),
  tlsCert: Type.Optional(
    text('a path', 'certificate and its chain in PEM: TLS on WEIR_PORT; read again on SIGHUP'),
  ),
  tlsKey: Type.Optional(
    text('a path', 'private key of the certificate in PEM, without a passphrase'),
  ),
  adminHost: Type.String({
    minLength: 1,
    default: '127.0.0.1',
    accepts: 'an address or a host name',
    meaning: 'where health and metrics are served',
  }),
  adminPort: integer(0, 65_535, 7071, 'port of health and metrics; 0 takes a free one'),
  adminHosts: Type.Optional(
    text(
      'host names without ports, separated by commas',
      'host names accepted in the header Host on the admin port; addresses, localhost and probes' +
        ' are always accepted',
    ),
  ),
  dataDir: Type.String({
    minLength: 1,
    default: './weir-data',
    accepts: 'a path',
    meaning: 'directory of the store and the counters; created if missing, locked by one weir',
  }),
  rootKey: Type.Optional(
    Type.String({
      pattern: `^[\\x21-\\x7e]{${ROOT_KEY_MIN_CHARACTERS},${KEY_MAX_CHARACTERS}}$`,
      accepts:
        `${ROOT_KEY_MIN_CHARACTERS} to ${KEY_MAX_CHARACTERS} visible ASCII characters ` +
        'without spaces' +
        ' (openssl rand -hex 32 makes a good key)',
      meaning: 'a root key accepted besides the stored ones',
      secret: true,
    }),
  ),
  rootKeyFile: Type.Optional(
    text('a path', 'file with the root key; /dev/stdin reads standard input'),
  ),
  acceptors: integer(
    1,
    ACCEPTORS_MAX,
    Math.min(8, Math.max(1, Math.floor(cores / 2))),
    'threads that answer checks (default: half of the cores allowed, at most 8, or fewer where' +
      ' the memory limit is low)',
  ),
  workers: integer(
    1,
    WORKERS_MAX,
    Math.min(4, Math.max(1, Math.floor(cores / 4))),
    'threads that look after the counters (default: a quarter of the cores allowed, at most' +
      ' 4, or fewer where the memory limit is low)',
  ),
  connections: integer(
    1,
    CONNECTIONS_MAX,
    10_000,
    'connections open at once, or fewer where the limit of open files is lower',
  ),
  decide: choice(['in-place', 'worker'], 'in-place', 'which thread decides a check'),
  counters: integer(
    COUNTERS_MIN,
    COUNTERS_MAX,
    COUNTERS_DEFAULT_MAX,
    'live counters held without evicting one; 128 bytes each (default: fewer where the memory' +
      ' limit is lower)',
  ),
  onFull: choice(
    ['deny', 'allow'],
    'deny',
    'decision for a check that needs a new counter when the table is full',
  ),
  checkpointMs: integer(
    CHECKPOINT_INTERVAL_MIN_MS,
    CHECKPOINT_INTERVAL_MAX_MS,
    1_000,
    'how often counters are written to files, from which the next start takes them, ms',
  ),
  drainMs: integer(0, DRAIN_MAX_MS, 250, 'how long SIGTERM goes on answering, ms'),
  logLevel: choice(
    ['fatal', 'error', 'warn', 'info', 'debug', 'silent'],
    'info',
    'how much is logged on standard error',
  ),
  logFormat: choice(['json', 'text'], 'json', 'JSON lines, or lines for people'),
});

export type Settings = Static<typeof Settings>;
export type SettingName = keyof typeof Settings.properties;

export const SETTING_NAMES = Object.keys(Settings.properties) as SettingName[];

/** `rootKeyFile` is WEIR_ROOT_KEY_FILE in the environment ... */
export function environmentName(name: SettingName): string {
  return `WEIR_${name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
}

/** ... and --root-key-file as a flag. */
export function flagName(name: SettingName): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** What the schema says beside the type of a setting. */
export interface Annotations {
  accepts: string;
  meaning: string;
  default?: string | number;
  /** A secret is never taken from a flag, where every user of the machine could read it. */
  secret?: boolean;
  type: string;
}

export function annotations(name: SettingName): Annotations {
  return Settings.properties[name] as unknown as Annotations;
}
