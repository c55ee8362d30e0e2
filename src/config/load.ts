/**
 * The settings in force: flags, then environment, then the JSON file, then defaults. An unknown or
 * wrong one stops the start with one sentence that names the key, what it got and what it takes.
 */

import { parseArgs } from 'node:util';
import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import { type ConfigFile, readConfigFile } from './file.ts';
import { memoryLimit } from './memory-limit.ts';
import { fitThreads, type MemoryPlan, planMemory } from './memory-plan.ts';
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
  readText,
  requireValid,
  type SettingsLayer,
  type SettingValue,
  throwFault,
} from './setting-value.ts';

/** Made by Kubernetes in every container, for each service whose name is or begins with `weir`. */
const KUBERNETES_VARIABLE = /^WEIR_(\w+_)?(SERVICE_(HOST|PORT.*)|PORT_\d+_.*)$/;
const KUBERNETES_PORT_VARIABLE = { name: /_PORT$/, value: /^(tcp|udp|sctp):\/\// };
/** For whoever calls weir: a shell that has them may start one too. */
const CLIENT_VARIABLES = ['WEIR_URL', 'WEIR_KEY'];

/** The settings, and the file of some of them, which has the policies too. */
export interface LoadedSettings extends Settings {
  file: ConfigFile | undefined;
  /** The source of each setting: a flag, a variable, the file, or `default`. */
  sources: Map<SettingName, string>;
  /** What the counters take, and of how much. */
  memory: MemoryPlan;
}

/**
 * @param limit the memory that this process may have
 * @param onFault is told of each fault; where it returns, the others are looked for
 * @returns undefined when the arguments ask for help
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
  const givenFor = (name: SettingName) => {
    return flags.get(name) ?? variables.get(name) ?? file?.settings.get(name);
  };
  for (const name of SETTING_NAMES) {
    const given = givenFor(name);
    const taken = given && attempt(onFault, () => requireValid(name, given));
    const value = taken ?? annotations(name).default;
    if (value === undefined) continue;
    settings[name] = value;
    sources.set(name, taken === undefined || given === undefined ? 'default' : given.source);
  }
  const isSet = (name: SettingName) => sources.get(name) !== 'default';
  const threads = fitThreads(settings as Settings, isSet, limit);
  const plan = (given?: SettingValue) => planMemory(given, threads, limit);
  const counters = isSet('counters') ? givenFor('counters') : undefined;
  const memory = attempt(onFault, () => plan(counters)) ?? plan();
  const planned = { ...(settings as Settings), ...threads, counters: memory.counters };
  const loaded: LoadedSettings = { ...planned, file, sources, memory };
  for (const requirement of REQUIREMENTS) attempt(onFault, () => requirement(loaded));
  return loaded;
}

/** What must hold of several settings. */
const REQUIREMENTS: readonly ((loaded: LoadedSettings) => void)[] = [
  (loaded) => {
    if (loaded.rootKeyFile === undefined) return;
    if (loaded.rootKey !== undefined) {
      throw new StartError('WEIR_ROOT_KEY and WEIR_ROOT_KEY_FILE are both set: leave one out');
    }
    const source = `the key in ${loaded.rootKeyFile}`;
    const value = readText('WEIR_ROOT_KEY_FILE', loaded.rootKeyFile).trim();
    loaded.rootKey = requireValid('rootKey', { source, value }) as string;
    loaded.sources.set('rootKey', source);
  },
  (loaded) => {
    if ((loaded.tlsCert === undefined) === (loaded.tlsKey === undefined)) return;
    const [set, missing] = loaded.tlsKey === undefined ? ['CERT', 'KEY'] : ['KEY', 'CERT'];
    throw new StartError(`WEIR_TLS_${set} needs WEIR_TLS_${missing} beside it, which is not set`);
  },
  (loaded) => requireDifferent('port', 'adminPort', loaded),
  (loaded) => requireDifferent('port', 'gatewayPort', loaded),
  (loaded) => requireDifferent('adminPort', 'gatewayPort', loaded),
  (loaded) => requireDifferent('socket', 'gatewaySocket', loaded),
];

function requireDifferent(one: SettingName, other: SettingName, settings: Settings): void {
  const value = settings[one];
  // Port 0 is another one each time.
  if (value === undefined || value === 0 || value !== settings[other]) return;
  const names = `${environmentName(one)} and ${environmentName(other)}`;
  throw new StartError(`${names} are both ${value}: they must differ`);
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
      // What begins with a dash is taken for a flag, unless it is a negative number.
      const after = args[token.index + 1];
      if (after !== undefined && /^-\d/.test(after))
        requireValid(name, { source: token.rawName, value: after });
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

/** Text stands for a number where a number is due; anything else stays as it is, to be refused. */
function parseText(name: SettingName, value: string): unknown {
  return annotations(name).type === 'integer' && /^\d+$/.test(value) ? Number(value) : value;
}
