/**
 * Loads the settings from flags, the environment, the JSON file and defaults, in this order of
 * precedence. An unknown or invalid setting stops the start with one sentence that names the
 * setting, the received value and the accepted values.
 */

import { parseArgs } from 'node:util';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import type { RedisSettings } from '../redis/settings.ts';
import type { RlsSettings } from '../rls/config/settings.ts';
import { type DashboardProxy, loadDashboardProxy } from './dashboard-proxy.ts';
import { type ConfigFile, readConfigFile } from './file.ts';
import { fitThreads, type MemoryPlan, planMemory } from './memory-plan.ts';
import { loadRedisSettings } from './redis.ts';
import { memoryLimit } from './resources.ts';
import { countRlsThreads, loadRlsSettings } from './rls.ts';
import {
  annotations,
  environmentName,
  flagName,
  SETTING_NAMES,
  type SettingName,
  type Settings,
} from './schema.ts';
import {
  attempt,
  describeUnknownSetting,
  type FaultHandler,
  FileError,
  readText,
  requireValid,
  SettingsError,
  type SettingsLayer,
  type SettingValue,
  throwFault,
} from './setting-value.ts';

/** Kubernetes sets these in every container, for each service whose name begins with `weir`. */
const KUBERNETES_VARIABLE = /^WEIR_(\w+_)?(SERVICE_(HOST|PORT.*)|PORT_\d+_.*)$/;
const KUBERNETES_PORT_VARIABLE = { name: /_PORT$/, value: /^(tcp|udp|sctp):\/\// };
/** Variables of the client commands. A shell that has them may also start a server. */
const CLIENT_VARIABLES = ['WEIR_URL', 'WEIR_KEY'];

export interface LoadedSettings extends Settings {
  /** Also contains the policies. */
  file: ConfigFile | undefined;
  /** The source of each setting: a flag, a variable, the file, or `default`. */
  sources: Map<SettingName, string>;
  /** Undefined for the memory engine. */
  redis: RedisSettings | undefined;
  /** Undefined where the rate limit service is off. */
  rls: RlsSettings | undefined;
  /** Undefined where no proxy signs in users of the dashboard. */
  dashboardProxy: DashboardProxy | undefined;
  /** The memory that the counters need, and the limit. */
  memory: MemoryPlan;
}

/**
 * @param limit the memory that this process may use
 * @param onFault called with each fault; if it returns, the search for faults continues
 * @returns undefined if the arguments request help
 */
export function loadSettings(
  args: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
  limit = memoryLimit(),
  onFault: FaultHandler = throwFault,
): LoadedSettings | undefined {
  if (args.includes('--help') || args.includes('-h')) return undefined;
  const flags = readFlags(args);
  const variables = readEnvironment(environment, onFault);
  const config = flags.get('config') ?? variables.get('config');
  const file = attempt(onFault, () => {
    return (
      config && readConfigFile(requireValid('config', config) as string, config.source, onFault)
    );
  });

  const settings: Record<string, unknown> = {};
  const sources = new Map<SettingName, string>();
  const configured = (name: SettingName) => {
    return flags.get(name) ?? variables.get(name) ?? file?.settings.get(name);
  };
  for (const name of SETTING_NAMES) {
    const setting = configured(name);
    const validValue = setting && attempt(onFault, () => requireValid(name, setting));
    const value = validValue ?? annotations(name).default;
    if (value === undefined) continue;
    settings[name] = value;
    const isDefault = validValue === undefined || setting === undefined;
    sources.set(name, isDefault ? 'default' : setting.source);
  }
  const isSet = (name: SettingName) => sources.get(name) !== 'default';
  const { engine } = settings as Settings;
  const threads = fitThreads(settings as Settings, isSet, limit, engine);
  const rlsThreads = countRlsThreads(settings as Settings);
  const plan = (counters?: SettingValue) =>
    planMemory(counters, { ...threads, rlsThreads }, limit, engine);
  const counters = isSet('counters') ? configured('counters') : undefined;
  const memory = attempt(onFault, () => plan(counters)) ?? plan();
  const planned = { ...(settings as Settings), ...threads, counters: memory.counters };
  const onConflict = (fault: StartError) => onFault(inFile(fault, file, sources));
  const redis = attempt(onConflict, () => {
    return loadRedisSettings(planned, (name) => configured(name) !== undefined);
  });
  const rls = attempt(onConflict, () => {
    return loadRlsSettings(planned, (name) => configured(name) !== undefined);
  });
  const dashboardProxy = attempt(onConflict, () => {
    return loadDashboardProxy(planned, (name) => configured(name) !== undefined);
  });
  const loaded = { ...planned, file, sources, redis, rls, dashboardProxy, memory };
  for (const requirement of REQUIREMENTS) attempt(onConflict, () => requirement(loaded));
  return loaded;
}

/**
 * Some settings of a server with this environment, for commands that call it. Faults of other
 * settings are ignored.
 * @returns the values, and the sources of those that are no default
 * @throws StartError
 */
export function loadSome(
  names: readonly SettingName[],
  environment: Readonly<Record<string, string | undefined>>,
): { settings: Partial<Settings>; sources: ReadonlyMap<SettingName, string> } {
  const ignore = () => {};
  const variables = readEnvironment(environment, ignore);
  const config = variables.get('config');
  const file =
    config && readConfigFile(requireValid('config', config) as string, config.source, ignore);
  const settings: Record<string, unknown> = {};
  const sources = new Map<SettingName, string>();
  for (const name of names) {
    const setting = variables.get(name) ?? file?.settings.get(name);
    const initial = annotations(name).default;
    settings[name] = setting === undefined ? initial : requireValid(name, setting);
    if (setting !== undefined) sources.set(name, setting.source);
  }
  return { settings, sources };
}

/** A fault of settings, at the last of those that are in the file, if there is one. */
function inFile(
  fault: StartError,
  file: ConfigFile | undefined,
  sources: LoadedSettings['sources'],
): StartError {
  if (!(fault instanceof SettingsError) || file === undefined) return fault;
  const isFromFile = (name: SettingName) => sources.get(name) === file.settings.get(name)?.source;
  const positions = fault.settings.filter(isFromFile).flatMap((name) => {
    return file.positions.get(name) ?? [];
  });
  const last = positions.toSorted((a, b) => a.line - b.line || a.column - b.column).at(-1);
  return last === undefined ? fault : new FileError(file.path, last, fault.message);
}

/** No two listeners have one port or one socket. */
const DIFFERENT: readonly (readonly SettingName[])[] = [
  ['port', 'adminPort', 'gatewayPort', 'rlsPort', 'rlsJsonPort'],
  ['socket', 'gatewaySocket', 'rlsSocket'],
];

/** Rules that concern several settings. */
const REQUIREMENTS: readonly ((loaded: LoadedSettings) => void)[] = [
  (loaded) => {
    if (loaded.rootKeyFile === undefined) return;
    if (loaded.rootKey !== undefined) {
      throw new SettingsError(
        ['rootKey', 'rootKeyFile'],
        'WEIR_ROOT_KEY and WEIR_ROOT_KEY_FILE are both set: leave one out',
      );
    }
    const source = `the key in ${loaded.rootKeyFile}`;
    const value = readText('WEIR_ROOT_KEY_FILE', loaded.rootKeyFile).trim();
    loaded.rootKey = requireValid('rootKey', { source, value }) as string;
    loaded.sources.set('rootKey', source);
  },
  ({ engine, decide }) => {
    if (engine !== 'redis' || decide !== 'worker') return;
    throw new SettingsError(
      ['decide', 'engine'],
      'WEIR_DECIDE is worker, which requires WEIR_ENGINE=memory: with redis, shard workers' +
        ' decide the checks that need Redis, and acceptors all others',
    );
  },
  ({ engine, onLostLeases }) => {
    if (engine !== 'redis' || onLostLeases !== 'wait') return;
    throw new SettingsError(
      ['onLostLeases', 'engine'],
      'WEIR_ON_LOST_LEASES is wait, which requires WEIR_ENGINE=memory: with redis, leases are in' +
        ' Redis, and WEIR_RECOVERY=exact denies acquires until machines have reported lost ones',
    );
  },
  (loaded) => {
    if ((loaded.tlsCert === undefined) === (loaded.tlsKey === undefined)) return;
    const [set, missing] = loaded.tlsKey === undefined ? ['CERT', 'KEY'] : ['KEY', 'CERT'];
    throw new SettingsError(
      ['tlsCert', 'tlsKey'],
      `WEIR_TLS_${set} requires WEIR_TLS_${missing}, which is not set`,
    );
  },
  (loaded) => {
    for (const names of DIFFERENT) {
      for (const [at, other] of names.entries()) {
        for (const one of names.slice(0, at)) requireDifferent(one, other, loaded);
      }
    }
  },
];

function requireDifferent(one: SettingName, other: SettingName, settings: Settings): void {
  const value = settings[one];
  // Port 0 selects a different port each time.
  if (value === undefined || value === 0 || value !== settings[other]) return;
  const names = `${environmentName(one)} and ${environmentName(other)}`;
  throw new SettingsError([one, other], `${names} are both ${value}: they must differ`);
}

function readFlags(args: readonly string[]): SettingsLayer {
  const names = SETTING_NAMES.filter((name) => !annotations(name).secret);
  const byFlag = new Map(names.map((name) => [flagName(name), name]));
  const { tokens } = parseArgs({ args: [...args], strict: false, tokens: true });
  const layer: SettingsLayer = new Map();
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i];
    if (token.kind === 'positional') {
      throw new StartError(`${formatValue(token.value)} is not a flag; see weir help serve`);
    }
    if (token.kind === 'option-terminator') continue;
    const name = byFlag.get(token.rawName);
    if (name === undefined)
      throw new StartError(describeUnknownSetting(token.rawName, [...byFlag.keys()]));
    let value = token.value;
    const next = tokens[i + 1];
    if (value === undefined && next?.kind === 'positional') {
      value = next.value;
      i++;
    }
    if (value === undefined) {
      // A negative number is parsed as a flag. Report it as the value.
      const following = args[token.index + 1];
      if (following !== undefined && /^-\d/.test(following))
        requireValid(name, { source: token.rawName, value: following });
      throw new StartError(`${token.rawName} must be ${annotations(name).accepts}; got nothing`);
    }
    layer.set(name, { source: token.rawName, value: parseText(name, value) });
  }
  return layer;
}

function readEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  onFault: FaultHandler,
): SettingsLayer {
  const byVariable = new Map(SETTING_NAMES.map((name) => [environmentName(name), name]));
  const layer: SettingsLayer = new Map();
  for (const [variable, value] of Object.entries(environment)) {
    if (!variable.startsWith('WEIR_') || value === undefined) continue;
    if (KUBERNETES_VARIABLE.test(variable) || CLIENT_VARIABLES.includes(variable)) continue;
    if (KUBERNETES_PORT_VARIABLE.name.test(variable) && KUBERNETES_PORT_VARIABLE.value.test(value))
      continue;
    const name = byVariable.get(variable);
    if (name === undefined) {
      onFault(new StartError(describeUnknownSetting(variable, [...byVariable.keys()])));
      continue;
    }
    layer.set(name, { source: variable, value: parseText(name, value) });
  }
  return layer;
}

/** Converts the digits of an integer setting. Other texts stay unchanged and fail validation. */
function parseText(name: SettingName, value: string): unknown {
  return annotations(name).type === 'integer' && /^\d+$/.test(value) ? Number(value) : value;
}
