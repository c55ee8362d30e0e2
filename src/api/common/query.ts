/**
 * From the query of a GET to its fields. Text that is not UTF-8 is a 400, raw and percent-encoded:
 * read with U+FFFD in its place, it would find the override of another identifier.
 *
 * uWebSockets.js decodes raw bytes itself and puts U+FFFD for each ill-formed sequence, so a raw
 * U+FFFD is a 400 as well; percent-encoded it is text like any other. Failures are ApiErrors.
 */

import { ApiError } from '../../core/errors.ts';

const REPLACEMENT_CHARACTER = '\ufffd';

/**
 * @param query what stands behind the `?`
 * @param integerFields number fields; other text stays text, and the schema rejects it
 */
export function parseQuery(
  query: string,
  integerFields: readonly string[],
): Record<string, unknown> {
  if (query.includes(REPLACEMENT_CHARACTER)) {
    throw new ApiError(
      'BAD_REQUEST',
      'the query holds bytes that are not UTF-8; percent-encode it, and U+FFFD as %EF%BF%BD',
    );
  }
  const fields = new Map<string, unknown>();
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decode(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? '' : decode(pair.slice(equals + 1));
    const isNumber = integerFields.includes(name) && /^\d{1,15}$/.test(value);
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
