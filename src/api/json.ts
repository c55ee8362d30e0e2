/**
 * From the bytes of a body to a JSON value, strictly: invalid UTF-8 and lone surrogates are
 * refused, for each would make two identifiers into one. Failures are ApiErrors (400).
 */

import { describe } from '../describe.ts';
import { ApiError } from '../errors.ts';
import { BODY_MAX_BYTES } from '../limits.ts';
import { SHOWN_NAME_MAX } from './schema.ts';

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
/** `{` and `[`, but for the bit in which they differ. */
const OPENING = 0x5b;
const OPENING_BITS = 0xdf;

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
    requireFewValues(ArrayBuffer.isView(bytes) ? bytes : new Uint8Array(bytes), valuesMax);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const why = text === '' ? 'it is empty' : (error as Error).message;
    throw new ApiError('BAD_REQUEST', `the body is not JSON: ${why}`);
  }
  // Valid UTF-8 holds no lone surrogate: only an escape can bring one in.
  if (text.includes('\\u')) requireWellFormed(value);
  return value;
}

/** Counts what begins a value, as far as the text is JSON; what is behind a fault is not read. */
function requireFewValues(bytes: Uint8Array, valuesMax: number): void {
  let values = 0;
  let isText = false;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) isText = !isText;
    else if (isText) i += byte === BACKSLASH ? 1 : 0;
    else if (byte === COMMA || (byte & OPENING_BITS) === OPENING) values++;
  }
  if (values <= valuesMax) return;
  const message = `the body must hold at most ${valuesMax} values, got ${values}`;
  throw new ApiError('BAD_REQUEST', message, { location: 'body', fix: 'send less in a request' });
}

function requireWellFormed(body: unknown): void {
  if (isWellFormed(body)) return;
  if (!Array.isArray(body)) throw illFormed(body, 'the body');
  const index = body.findIndex((item) => !isWellFormed(item));
  throw illFormed(body[index], 'it').inItem('', index);
}

function illFormed(body: unknown, whole: string): ApiError {
  const isObject = typeof body === 'object' && !Array.isArray(body);
  const fields = isObject ? Object.entries(body as object) : [];
  const name = fields.find((field) => !isWellFormed(field))?.[0];
  const isShown = name?.isWellFormed() && name.length <= SHOWN_NAME_MAX;
  const message = `${isShown ? describe(name) : whole} holds text that is not well-formed Unicode`;
  return new ApiError('BAD_REQUEST', message, { location: isShown ? `body.${name}` : 'body' });
}

/** Looks at every key and text, however deep, without recursion. */
function isWellFormed(root: unknown): boolean {
  const left: unknown[] = [root];
  while (left.length > 0) {
    const value = left.pop();
    if (typeof value === 'string') {
      if (!value.isWellFormed()) return false;
    } else if (Array.isArray(value)) {
      for (const item of value) left.push(item);
    } else if (typeof value === 'object' && value !== null) {
      for (const key of Object.keys(value)) {
        left.push(key, (value as Record<string, unknown>)[key]);
      }
    }
  }
  return true;
}
