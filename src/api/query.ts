/**
 * From the query of a GET to its fields, strictly: an escape that is not UTF-8 is refused, for it
 * would stand for another text. Failures are ApiErrors (400).
 */

import { ApiError } from '../errors.ts';

/**
 * @param query what stands behind the `?`
 * @param integers the fields that are numbers; what is none stays text, for the schema to refuse
 */
export function parseQuery(query: string, integers: readonly string[]): Record<string, unknown> {
  const fields = new Map<string, unknown>();
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decode(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? '' : decode(pair.slice(equals + 1));
    const isNumber = integers.includes(name) && /^\d{1,15}$/.test(value);
    fields.set(name, isNumber ? Number(value) : value);
  }
  return Object.fromEntries(fields);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new ApiError('BAD_REQUEST', 'the query is not UTF-8 in percent-encoding');
  }
}
