/** What values are, for options, arguments and responses of weir. */

import { requireKnownOptions, requireOption } from './options.ts';

export function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

export function isCount(value: unknown, minimum: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= minimum;
}

/** @throws TypeError if the value is no object, or has a field that does not exist */
export function readFields(name: string, value: unknown, known: readonly string[]): object {
  const isObject = typeof value === 'object' && value !== null;
  requireOption(isObject, name, `an object with ${known.join(', ')}`, value);
  requireKnownOptions(value as object, known);
  return value as object;
}
