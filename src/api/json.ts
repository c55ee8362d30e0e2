/**
 * From the bytes of a body to a JSON value, strictly: invalid UTF-8 and lone surrogates are
 * refused, for each would make two identifiers into one. Failures are ApiErrors (400).
 */

import { describe } from '../describe.ts';
import { ApiError } from '../errors.ts';
import { SHOWN_NAME_MAX } from './schema.ts';

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function parseBody(bytes: ArrayBuffer | Uint8Array): unknown {
  let text: string;
  try {
    text = decoder.decode(bytes);
  } catch {
    throw new ApiError('BAD_REQUEST', 'the body is not valid UTF-8');
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

function requireWellFormed(body: unknown): void {
  if (isWellFormed(body)) return;
  let path = '';
  let at = body;
  // As far as fields of the body, or of one of its items, go.
  for (let isItem = true; isItem; ) {
    isItem = Array.isArray(at);
    const [name, value] = faultyEntry(at) ?? [];
    if (name === undefined) break;
    path += isItem ? `[${name}]` : path === '' ? name : `.${name}`;
    at = value;
  }
  const what = path === '' ? 'the body' : describe(path);
  const location = path.startsWith('[') || path === '' ? `body${path}` : `body.${path}`;
  const message = `${what} holds text that is not well-formed Unicode`;
  throw new ApiError('BAD_REQUEST', message, { location });
}

/** The first item or field that holds such text, unless its own name is of that kind. */
function faultyEntry(value: unknown): [name: string, value: unknown] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const entry = Object.entries(value).find((one) => !isWellFormed(one));
  return entry?.[0].isWellFormed() && entry[0].length <= SHOWN_NAME_MAX ? entry : undefined;
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
