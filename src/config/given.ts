/**
 * What a setting was given, and by which name its author knows it: the checks that flags, the
 * environment and the file have in common.
 */

import { readFileSync } from 'node:fs';
import { Check } from 'typebox/value';
import { describe } from '../describe.ts';
import { StartError } from '../errors.ts';
import { annotations, type SettingName, Settings } from './schema.ts';

export interface Given {
  source: string;
  value: unknown;
}
export type Layer = Map<SettingName, Given>;

/** @returns the value. @throws StartError that names the setting, what it got and what it takes */
export function check(name: SettingName, { source, value }: Given): unknown {
  if (Check(Settings.properties[name], value)) return value;
  const { secret, takes } = annotations(name);
  const hidden = value === '' ? 'nothing' : 'something else';
  const got = secret ? hidden : describe(value);
  throw new StartError(`${source} must be ${takes}, got ${got}`);
}

export function readText(source: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new StartError(`${path} (${source}) cannot be read: ${(error as Error).message}`);
  }
}

export function unknown(key: string, known: readonly string[]): string {
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
