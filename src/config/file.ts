/**
 * The configuration file: settings, which apply from the next start on, and policies of gateways,
 * which are read again on SIGHUP. A file with any fault is rejected, with the line and the column
 * of the fault. A message never quotes text that is not JSON, because it may contain a key.
 */

import { formatValue } from '../core/describe.ts';
import { StartError } from '../core/errors.ts';
import {
  blankJsonc,
  type DuplicateName,
  findJsonSyntaxError,
  type JsonMembers,
  readJsonMembers,
  type TextPosition,
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
  withMilliseconds,
} from './setting-value.ts';

export interface ConfigFile {
  path: string;
  /** The name of the setting that gave the path, for messages. */
  source: string;
  settings: SettingsLayer;
  policies: Policy[];
  /** Where each setting is, and the policies. */
  positions: ReadonlyMap<string, TextPosition>;
}

const POLICIES_KEY = 'policies';
/** Tells an editor the schema of the file; ignored here. */
const SCHEMA_KEY = '$schema';
const FILE_SETTING_NAMES = SETTING_NAMES.filter((name) => name !== 'config');

/**
 * @param source the flag or variable that gave the path
 * @param onFault called with each fault; if it returns, the valid part of the file is returned
 * @throws StartError if the file cannot be read or is not a JSON object
 */
export function readConfigFile(path: string, source: string, onFault: FaultHandler): ConfigFile {
  const text = readText(source, path).replace(/^\ufeff/, '');
  const { json, content } = parseObject(path, text);
  const members = readJsonMembers(json);
  for (const repeated of members.duplicates) {
    onFault(new FileError(path, repeated, `${describeRepeatedName(repeated)}; remove one`));
  }
  const settings: SettingsLayer = new Map();
  const positions = new Map<string, TextPosition>();
  let policies: Policy[] = [];
  for (const [key, value] of Object.entries(content)) {
    positions.set(key, members.positionOf([key]));
    if (key === POLICIES_KEY) {
      policies = parsePolicies(path, value, members, onFault);
      continue;
    }
    const name = FILE_SETTING_NAMES.find((known) => known === key);
    const fault = describeInvalidMember(key, value);
    if (fault !== undefined) onFault(new FileError(path, positions.get(key)!, fault));
    else if (name !== undefined) {
      const source = `"${key}" in ${path}`;
      settings.set(name, { source, value: withMilliseconds(name, value) });
    }
  }
  return { path, source, settings, policies, positions };
}

/** @returns the text as JSON, with its positions, and its value */
function parseObject(path: string, text: string): { json: string; content: object } {
  const fault = findJsonSyntaxError(text, 'JSONC');
  if (fault !== undefined) {
    const { reason, ...position } = fault;
    throw new FileError(path, position, `this is not JSON: ${reason}`);
  }
  const json = blankJsonc(text);
  let content: unknown;
  try {
    content = JSON.parse(json);
  } catch {
    throw new StartError(`${path} is not JSON, and it is nested too deeply`);
  }
  if (typeof content === 'object' && content !== null && !Array.isArray(content)) {
    return { json, content };
  }
  throw new StartError(`${path} must hold one JSON object; got ${formatValue(content)}`);
}

/** @returns a sentence; undefined for a valid setting */
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

/** For example: "limit" is repeated in "policies.login". */
function describeRepeatedName({ name, path }: DuplicateName): string {
  const parent = path.reduce((whole, step) => {
    if (/^\d+$/.test(step)) return `${whole}[${step}]`;
    return whole === '' ? step : `${whole}.${step}`;
  }, '');
  const where = parent === '' ? '' : ` in ${formatValue(parent)}`;
  return `${formatValue(name)} is repeated${where}`;
}

function parsePolicies(
  path: string,
  value: unknown,
  members: JsonMembers,
  onFault: FaultHandler,
): Policy[] {
  return readPolicies(value, (steps, message) => {
    onFault(new FileError(path, members.positionOf([POLICIES_KEY, ...steps]), message));
  });
}

/** The settings that differ between two versions of the file. */
export function changedSettings(before: ConfigFile, after: ConfigFile): string[] {
  return FILE_SETTING_NAMES.filter((name) => {
    return before.settings.get(name)?.value !== after.settings.get(name)?.value;
  });
}
