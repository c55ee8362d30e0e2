/**
 * The configuration file: settings, which hold until the next start, and the policies of gateways,
 * which are read again on SIGHUP. It is in order as a whole, or it is refused, with the line and
 * the column of the fault. A message never quotes what is not JSON: there may be a key in it.
 */

import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { type JsonMembers, jsonFault, jsonMembers, type RepeatedName } from '../json-text.ts';
import { type Policy, readPolicies } from '../policies/policy.ts';
import { FileFault, faultOf, type Layer, type OnFault, readText, unknown } from './given.ts';
import { SETTING_NAMES } from './schema.ts';

export interface ConfigFile {
  path: string;
  /** How its author has named it. */
  source: string;
  settings: Layer;
  policies: Policy[];
}

const POLICIES = 'policies';
/** By which editors know what the file may hold; of no meaning here. */
const SCHEMA = '$schema';
const SETTINGS = SETTING_NAMES.filter((name) => name !== 'config');

/**
 * @param source by which the path was given
 * @param onFault is told of each fault; where it returns, what is in order is returned
 * @throws StartError where the file cannot be read, or is no JSON object
 */
export function readConfigFile(path: string, source: string, onFault: OnFault): ConfigFile {
  const text = readText(source, path).replace(/^\ufeff/, '');
  const content = parse(path, text);
  const members = jsonMembers(text);
  for (const repeated of members.repeated) {
    onFault(new FileFault(path, repeated, `${sentenceOf(repeated)}; remove one`));
  }
  const settings: Layer = new Map();
  let policies: Policy[] = [];
  for (const [key, value] of Object.entries(content)) {
    if (key === POLICIES) {
      policies = policiesIn(path, value, members, onFault);
      continue;
    }
    const name = SETTINGS.find((known) => known === key);
    const fault = faultIn(key, value);
    if (fault !== undefined) onFault(new FileFault(path, members.placeOf([key]), fault));
    else if (name !== undefined) settings.set(name, { source: `"${key}" in ${path}`, value });
  }
  return { path, source, settings, policies };
}

function parse(path: string, text: string): object {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    const fault = jsonFault(text);
    if (fault === undefined) throw new StartError(`${path} is not JSON, and nested too deeply`);
    const { reason, ...place } = fault;
    throw new FileFault(path, place, `this is not JSON: ${reason}`);
  }
  if (typeof content === 'object' && content !== null && !Array.isArray(content)) return content;
  throw new StartError(`${path} must hold one JSON object; got ${describe(content)}`);
}

/** What is wrong with a setting. */
function faultIn(key: string, value: unknown): string | undefined {
  if (key === SCHEMA) {
    return typeof value === 'string'
      ? undefined
      : `"${SCHEMA}" must be a string; got ${describe(value)}`;
  }
  const name = SETTINGS.find((known) => known === key);
  return name === undefined
    ? unknown(key, [...SETTINGS, POLICIES])
    : faultOf(name, `"${key}"`, value);
}

/** Where a name is repeated, as in: "limit" is there twice in "policies.login". */
function sentenceOf({ name, path }: RepeatedName): string {
  const around = path.reduce((whole, step) => {
    if (/^\d+$/.test(step)) return `${whole}[${step}]`;
    return whole === '' ? step : `${whole}.${step}`;
  }, '');
  const where = around === '' ? '' : ` in ${describe(around)}`;
  return `${describe(name)} is there twice${where}`;
}

function policiesIn(
  path: string,
  given: unknown,
  members: JsonMembers,
  onFault: OnFault,
): Policy[] {
  return readPolicies(given, (steps, message) => {
    onFault(new FileFault(path, members.placeOf([POLICIES, ...steps]), message));
  });
}

/** Settings that the file gives otherwise than before: they wait for the next start. */
export function changedSettings(before: ConfigFile, after: ConfigFile): string[] {
  return SETTINGS.filter((name) => {
    return before.settings.get(name)?.value !== after.settings.get(name)?.value;
  });
}
