/**
 * The settings in force: flags, then environment, then the JSON file, then defaults. An unknown or
 * wrong one stops the start with one sentence that names the key, what it got and what it takes.
 */

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Check } from 'typebox/value';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import {
  annotations,
  environmentName,
  flagName,
  SETTING_NAMES,
  type SettingName,
  Settings,
} from './schema.ts';

/** A value and the name by which its author knows it. */
interface Given {
  source: string;
  value: unknown;
}
type Layer = Map<SettingName, Given>;

/** Made by Kubernetes in every container, for each service whose name is or begins with `weir`. */
const KUBERNETES = /^WEIR_(\w+_)?(SERVICE_(HOST|PORT.*)|PORT_\d+_.*)$/;
const KUBERNETES_PORT = { name: /_PORT$/, value: /^(tcp|udp|sctp):\/\// };
/** For whoever calls weir: a shell that has them may start one too. */
const CLIENT_VARIABLES = ['WEIR_URL', 'WEIR_KEY'];

/** @returns undefined when the arguments ask for help */
export function loadSettings(
  args: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): Settings | undefined {
  if (args.includes('--help') || args.includes('-h')) return undefined;
  const flags = fromFlags(args);
  const variables = fromEnvironment(environment);
  const config = flags.get('config') ?? variables.get('config');
  const file = config === undefined ? new Map() : fromFile(config);

  const settings: Record<string, unknown> = {};
  for (const name of SETTING_NAMES) {
    const given = flags.get(name) ?? variables.get(name) ?? file.get(name);
    const value = given === undefined ? annotations(name).default : check(name, given);
    if (value !== undefined) settings[name] = value;
  }
  const loaded = settings as Settings;
  if (loaded.rootKeyFile !== undefined) {
    if (loaded.rootKey !== undefined) {
      throw new StartError('WEIR_ROOT_KEY and WEIR_ROOT_KEY_FILE are both set: leave one out');
    }
    const source = `the key in ${loaded.rootKeyFile}`;
    const value = readText('WEIR_ROOT_KEY_FILE', loaded.rootKeyFile).trim();
    loaded.rootKey = check('rootKey', { source, value }) as string;
  }
  if ((loaded.tlsCert === undefined) !== (loaded.tlsKey === undefined)) {
    const [set, missing] = loaded.tlsKey === undefined ? ['CERT', 'KEY'] : ['KEY', 'CERT'];
    throw new StartError(`WEIR_TLS_${set} needs WEIR_TLS_${missing} beside it, which is not set`);
  }
  if (loaded.port === loaded.adminPort && loaded.port !== 0) {
    throw new StartError(`WEIR_PORT and WEIR_ADMIN_PORT are both ${loaded.port}: they must differ`);
  }
  return loaded;
}

function check(name: SettingName, { source, value }: Given): unknown {
  if (Check(Settings.properties[name], value)) return value;
  const { secret, takes } = annotations(name);
  const hidden = value === '' ? 'nothing' : 'something else';
  const got = secret ? hidden : describe(value);
  throw new StartError(`${source} must be ${takes}, got ${got}`);
}

function fromFlags(args: readonly string[]): Layer {
  const names = SETTING_NAMES.filter((name) => !annotations(name).secret);
  const byFlag = new Map(names.map((name) => [flagName(name), name]));
  const { tokens } = parseArgs({ args: [...args], strict: false, tokens: true });
  const layer: Layer = new Map();
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i];
    if (token.kind === 'positional') {
      throw new StartError(`${describe(token.value)} is not a flag; see --help`);
    }
    if (token.kind === 'option-terminator') continue;
    const name = byFlag.get(token.rawName);
    if (name === undefined) throw new StartError(unknown(token.rawName, [...byFlag.keys()]));
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
        check(name, { source: token.rawName, value: after });
      throw new StartError(`${token.rawName} must be ${annotations(name).takes}, got nothing`);
    }
    layer.set(name, { source: token.rawName, value: fromText(name, value) });
  }
  return layer;
}

function fromEnvironment(environment: Readonly<Record<string, string | undefined>>): Layer {
  const byVariable = new Map(SETTING_NAMES.map((name) => [environmentName(name), name]));
  const layer: Layer = new Map();
  for (const [variable, value] of Object.entries(environment)) {
    if (!variable.startsWith('WEIR_') || value === undefined) continue;
    if (KUBERNETES.test(variable) || CLIENT_VARIABLES.includes(variable)) continue;
    if (KUBERNETES_PORT.name.test(variable) && KUBERNETES_PORT.value.test(value)) continue;
    const name = byVariable.get(variable);
    if (name === undefined) throw new StartError(unknown(variable, [...byVariable.keys()]));
    layer.set(name, { source: variable, value: fromText(name, value) });
  }
  return layer;
}

function fromFile(config: Given): Layer {
  const path = check('config', config) as string;
  const text = readText(config.source, path).replace(/^\ufeff/, '');
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    // Not the whole message, which quotes the file, and there may be a key in it.
    const where = /at position \d+/.exec((error as Error).message)?.[0] ?? 'somewhere';
    throw new StartError(`${path} is not JSON: it goes wrong ${where}`);
  }
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw new StartError(`${path} must hold one JSON object, got ${describe(content)}`);
  }
  const names = SETTING_NAMES.filter((name) => name !== 'config');
  const layer: Layer = new Map();
  for (const [key, value] of Object.entries(content)) {
    const name = names.find((known) => known === key);
    if (name === undefined) throw new StartError(`in ${path}, ${unknown(key, names)}`);
    layer.set(name, { source: `"${key}" in ${path}`, value });
  }
  return layer;
}

/** Text stands for a number where a number is due; anything else stays as it is, to be refused. */
function fromText(name: SettingName, value: string): unknown {
  return annotations(name).type === 'integer' && /^\d+$/.test(value) ? Number(value) : value;
}

function readText(source: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new StartError(`${path} (${source}) cannot be read: ${(error as Error).message}`);
  }
}

function unknown(key: string, known: readonly string[]): string {
  const near = known.find((name) => distance(name, key) <= 2);
  return `${key} is no setting of weir${near === undefined ? '; see --help' : `; is it ${near}?`}`;
}

/** How many letters must be changed, added or left out to make one text into the other. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, swap));
    }
    row = next;
  }
  return row[b.length];
}
