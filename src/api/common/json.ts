/**
 * From the bytes of a body to a JSON value. Bytes that are not UTF-8 are a 400 wherever they stand.
 * An escape may still put a lone surrogate into a text; `schema.ts` refuses it in each field that
 * the service reads, for it would make two identifiers into one. Failures are ApiErrors (400).
 */

import { BODY_MAX_BYTES } from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import { findJsonSyntaxError } from '../../core/json-text.ts';

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
/** `{` and `[`, but for the bit in which they differ. */
const OPENING_BYTE = 0x5b;
const OPENING_MASK = 0xdf;

/**
 * @param valuesMax how many values a body may hold that is longer than most bodies may be: a
 * million brackets would keep the thread busy for a third of a second
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

/** In the same words on every Node, and without a word of the body. */
function describeSyntaxError(text: string): string {
  if (text === '') return ': it is empty';
  // To find the fault in a longer text would take many times as long as JSON.parse did.
  const fault = text.length <= BODY_MAX_BYTES ? findJsonSyntaxError(text) : undefined;
  return fault === undefined ? '' : `: line ${fault.line}, column ${fault.column}: ${fault.reason}`;
}

/** Counts what begins a value, as far as the text is JSON; what is behind a fault is not read. */
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
  throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: 'send less in a request' });
}
