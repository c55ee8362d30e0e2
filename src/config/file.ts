/**
 * The configuration file: settings, which hold until the next start, and the policies of gateways,
 * which are read again on SIGHUP. It is in order as a whole, or it is refused, with the line and
 * the column of the fault. A message never quotes what is not JSON: there may be a key in it.
 */

import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import {
  type DuplicateName,
  findJsonSyntaxError,
  type JsonMembers,
  readJsonMembers,
} from '../core/json-text.ts';
import { type Policy, readPolicies } from '../policies/policy.ts';
import { SETTING_NAMES } from './schema.ts';
import {
  describeFault,
  describeUnknownSetting,
  type FaultHandler,
  FileError,
  readText,
  type SettingsLayer,
} from './setting-value.ts';

export interface ConfigFile {
  path: string;
  /** How its author has named it. */
  source: string;
  settings: SettingsLayer;
  policies: Policy[];
}

const POLICIES_KEY = 'policies';
/** By which editors know what the file may hold; of no meaning here. */
const SCHEMA_KEY = '$schema';
const FILE_SETTING_NAMES = SETTING_NAMES.filter((name) => name !== 'config');

/**
 * @param source by which the path was given
 * @param onFault is told of each fault; where it returns, what is in order is returned
 * @throws StartError where the file cannot be read, or is no JSON object
 */
export function readConfigFile(path: string, source: string, onFault: FaultHandler): ConfigFile {
  const text = readText(source, path).replace(/^\ufeff/, '');
  const content = parseObject(path, text);
  const members = readJsonMembers(text);
  for (const repeated of members.duplicates) {
    onFault(new FileError(path, repeated, `${describeRepeatedName(repeated)}; remove one`));
  }
  const settings: SettingsLayer = new Map();
  let policies: Policy[] = [];
  for (const [key, value] of Object.entries(content)) {
    if (key === POLICIES_KEY) {
      policies = parsePolicies(path, value, members, onFault);
      continue;
    }
    const name = FILE_SETTING_NAMES.find((known) => known === key);
    const fault = describeInvalidMember(key, value);
    if (fault !== undefined) onFault(new FileError(path, members.positionOf([key]), fault));
    else if (name !== undefined) settings.set(name, { source: `"${key}" in ${path}`, value });
  }
  return { path, source, settings, policies };
}

function parseObject(path: string, text: string): object {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    const fault = findJsonSyntaxError(text);
    if (fault === undefined) throw new StartError(`${path} is not JSON, and nested too deeply`);
    const { reason, ...place } = fault;
    throw new FileError(path, place, `this is not JSON: ${reason}`);
  }
  if (typeof content === 'object' && content !== null && !Array.isArray(content)) return content;
  throw new StartError(`${path} must hold one JSON object; got ${formatValue(content)}`);
}

/** What is wrong with a setting. */
function describeInvalidMember(key: string, value: unknown): string | undefined {
  if (key === SCHEMA_KEY) {
    return typeof value === 'string'
      ? undefined
      : `"${SCHEMA_KEY}" must be a string; got ${formatValue(value)}`;
  }
  const name = FILE_SETTING_NAMES.find((known) => known === key);
  return name === undefined
    ? describeUnknownSetting(key, [...FILE_SETTING_NAMES, POLICIES_KEY])
    : describeFault(name, `"${key}"`, value);
}

/** Where a name is repeated, as in: "limit" is there twice in "policies.login". */
function describeRepeatedName({ name, path }: DuplicateName): string {
  const around = path.reduce((whole, step) => {
    if (/^\d+$/.test(step)) return `${whole}[${step}]`;
    return whole === '' ? step : `${whole}.${step}`;
  }, '');
  const where = around === '' ? '' : ` in ${formatValue(around)}`;
  return `${formatValue(name)} is there twice${where}`;
}

function parsePolicies(
  path: string,
  given: unknown,
  members: JsonMembers,
  onFault: FaultHandler,
): Policy[] {
  return readPolicies(given, (steps, message) => {
    onFault(new FileError(path, members.positionOf([POLICIES_KEY, ...steps]), message));
  });
}

/** Settings that the file gives otherwise than before: they wait for the next start. */
export function changedSettings(before: ConfigFile, after: ConfigFile): string[] {
  return FILE_SETTING_NAMES.filter((name) => {
    return before.settings.get(name)?.value !== after.settings.get(name)?.value;
  });
}
