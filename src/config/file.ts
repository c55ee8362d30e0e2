/**
 * The configuration file: settings, which hold until the next start, and the policies of gateways,
 * which are read again on SIGHUP. It is in order as a whole, or it is refused.
 */

import { describe } from '../describe.ts';
import { ApiError, StartError } from '../errors.ts';
import { type Policy, readPolicies } from '../policies/policy.ts';
import { check, type Layer, readText, unknown } from './given.ts';
import { SETTING_NAMES } from './schema.ts';

export interface ConfigFile {
  path: string;
  /** How its author has named it. */
  source: string;
  settings: Layer;
  policies: Policy[];
}

const POLICIES = 'policies';
const SETTINGS = SETTING_NAMES.filter((name) => name !== 'config');

/**
 * @param source by which the path was given
 * @throws StartError that names what is at fault
 */
export function readConfigFile(path: string, source: string): ConfigFile {
  const text = readText(source, path).replace(/^\ufeff/, '');
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new StartError(`${path} is not JSON: it goes wrong ${placeOf(error as Error, text)}`);
  }
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw new StartError(`${path} must hold one JSON object, got ${describe(content)}`);
  }
  const settings: Layer = new Map();
  let policies: Policy[] = [];
  for (const [key, value] of Object.entries(content)) {
    if (key === POLICIES) {
      policies = policiesIn(path, value);
      continue;
    }
    const name = SETTINGS.find((known) => known === key);
    if (name === undefined) {
      throw new StartError(`in ${path}, ${unknown(key, [...SETTINGS, POLICIES])}`);
    }
    const given = { source: `"${key}" in ${path}`, value };
    check(name, given);
    settings.set(name, given);
  }
  return { path, source, settings, policies };
}

/** Not the whole message, which quotes the file, and there may be a key in it. */
function placeOf({ message }: Error, text: string): string {
  if (message.includes('end of JSON input')) return 'at its end';
  const position = /at position (\d+)/.exec(message)?.[1];
  const line =
    position === undefined ? strayIn(text) : text.slice(0, Number(position)).split('\n').length;
  return `in line ${line}`;
}

/** The line of what Node calls an unexpected token, of which it does not say where it stands. */
function strayIn(text: string): number {
  const lines = text.split('\n');
  let before = 0;
  let within = lines.length;
  while (within - before > 1) {
    const middle = (before + within) >> 1;
    if (hasStray(lines.slice(0, middle).join('\n'))) within = middle;
    else before = middle;
  }
  return within;
}

function hasStray(text: string): boolean {
  try {
    JSON.parse(text);
    return false;
  } catch (error) {
    return (error as Error).message.endsWith('is not valid JSON');
  }
}

function policiesIn(path: string, given: unknown): Policy[] {
  try {
    return readPolicies(given);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw new StartError(`in ${path}, ${error.message}`);
  }
}

/** Settings that the file gives otherwise than before: they wait for the next start. */
export function changedSettings(before: ConfigFile, after: ConfigFile): string[] {
  return SETTINGS.filter((name) => {
    return before.settings.get(name)?.value !== after.settings.get(name)?.value;
  });
}
