/**
 * What a setting was given, and by which name its author knows it: the checks that flags, the
 * environment and the file have in common.
 */

import { readFileSync } from 'node:fs';
import { Check } from 'typebox/value';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { nearest } from '../nearest.ts';
import { faultIn } from './faults.ts';
import { annotations, type SettingName, Settings } from './schema.ts';

export interface Given {
  source: string;
  value: unknown;
}
export type Layer = Map<SettingName, Given>;

/** @returns the value. @throws StartError that names the setting, what it got and what it takes */
export function check(name: SettingName, { source, value }: Given): unknown {
  const { secret, takes } = annotations(name);
  if (Check(Settings.properties[name], value)) {
    const fault = faultIn(name, value);
    if (fault === undefined) return value;
    throw new StartError(`${source} must be ${takes}, got ${fault}`);
  }
  const got = secret ? describeSecret(value) : describe(value);
  throw new StartError(`${source} must be ${takes}, got ${got}`);
}

/** Says enough to find the fault, and nothing of the text. */
function describeSecret(value: unknown): string {
  if (typeof value !== 'string') return 'a value that is not a text';
  return value === '' ? 'nothing' : `a text of ${[...value].length} characters`;
}

export function readText(source: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new StartError(`${path} (${source}) cannot be read: ${(error as Error).message}`);
  }
}

export function unknown(key: string, known: readonly string[]): string {
  const near = nearest(key, known);
  const hint = near === undefined ? 'see weir help serve' : `is it ${near}?`;
  return `${key} is no setting of weir; ${hint}`;
}
