/**
 * Parses the body of a POST to a JSON value, and the query of a GET to its fields. Failures are
 * ApiErrors (400).
 *
 * Bytes that are not UTF-8 are an error wherever they are: read as U+FFFD, they would name another
 * identifier. A JSON escape may still produce a lone surrogate; `core/schema.ts` rejects it in each
 * field that the service reads.
 */

import type { TObject } from 'typebox';
import { BODY_MAX_BYTES } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { findJsonSyntaxError } from '../../core/json-text.ts';

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
/** `{` and `[`, without the bit in which they differ. */
const OPENING_BYTE = 0x5b;
const OPENING_MASK = 0xdf;

/**
 * @param valuesMax how many values a body of more than BODY_MAX_BYTES may contain: parsing a
 * million brackets blocks the thread for a third of a second
 */
export function parseBody(
  bytes: ArrayBuffer | Uint8Array,
  valuesMax = Number.POSITIVE_INFINITY,
): unknown {
  let text: string;
  try {
    text = decoder.decode(bytes);
  } catch {
    throw new ApiError('BAD_REQUEST', 'the body is not valid UTF-8');
  }
  if (bytes.byteLength > BODY_MAX_BYTES) {
    requireValuesMax(ArrayBuffer.isView(bytes) ? bytes : new Uint8Array(bytes), valuesMax);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError('BAD_REQUEST', `the body is not JSON${describeSyntaxError(text)}`);
  }
}

/** The same words on every version of Node, and no text of the body. */
function describeSyntaxError(text: string): string {
  if (text === '') return ': it is empty';
  // Finding the error in a longer text would take many times as long as JSON.parse took.
  const error = text.length <= BODY_MAX_BYTES ? findJsonSyntaxError(text) : undefined;
  return error === undefined ? '' : `: line ${error.line}, column ${error.column}: ${error.reason}`;
}

/** Counts the values of JSON by the bytes that open or precede one. */
function requireValuesMax(bytes: Uint8Array, valuesMax: number): void {
  let values = 0;
  let isText = false;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) isText = !isText;
    else if (isText) i += byte === BACKSLASH ? 1 : 0;
    else if (byte === COMMA || (byte & OPENING_MASK) === OPENING_BYTE) values++;
  }
  if (values <= valuesMax) return;
  const message = `the body must hold at most ${valuesMax} values; got ${values}`;
  const fix = 'split it into several requests';
  throw new ApiError('BAD_REQUEST', message, { location: 'body', fix });
}

const REPLACEMENT_CHARACTER = '\ufffd';

const FLAGS = new Map([
  ['true', true],
  ['false', false],
]);

/**
 * uWebSockets.js replaces each ill-formed sequence of raw bytes by U+FFFD, so a raw U+FFFD is an
 * error as well; percent-encoded, it is accepted. Fields that are integers or flags by the schema
 * become such values. Other text in them stays text, which the schema rejects.
 * @param query the text after the `?`
 */
export function parseQuery(query: string, { properties }: TObject): Record<string, unknown> {
  if (query.includes(REPLACEMENT_CHARACTER)) {
    throw new ApiError(
      'BAD_REQUEST',
      'the query must be UTF-8; percent-encode its bytes, and U+FFFD as %EF%BF%BD',
    );
  }
  const fields = new Map<string, unknown>();
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decodeQueryText(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? '' : decodeQueryText(pair.slice(equals + 1));
    const { type } = (Object.hasOwn(properties, name) ? properties[name] : {}) as { type?: string };
    const isNumber = type === 'integer' && /^\d{1,15}$/.test(value);
    const flag = type === 'boolean' ? FLAGS.get(value) : undefined;
    fields.set(name, flag ?? (isNumber ? Number(value) : value));
  }
  return Object.fromEntries(fields);
}

function decodeQueryText(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new ApiError('BAD_REQUEST', 'the query must be percent-encoded UTF-8');
  }
}
