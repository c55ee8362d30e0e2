/**
 * Where in a JSON text something is: its first syntax error, its members, and names that an object
 * has twice. `JSON.parse` decides what is JSON; this file says where and why a text is not, by the
 * parser of jsonc-parser. A reason never quotes the text, which may hold a secret. The parser is
 * recursive: a text that is nested too deeply for it has no places. The package is loaded by the
 * first call, for a thread that meets no fault does not need it.
 */

import { createRequire } from 'node:module';
import type { JSONPath, JSONVisitor, ParseErrorCode } from 'jsonc-parser';

/** Both count from 1; the column counts UTF-16 code units. */
export interface TextPosition {
  line: number;
  column: number;
}

export interface JsonSyntaxError extends TextPosition {
  reason: string;
}

/** A name that stands in its object a second time. */
export interface DuplicateName extends TextPosition {
  name: string;
  /** The names and indices that lead to the object. */
  path: string[];
}

export interface JsonMembers {
  duplicates: DuplicateName[];
  /** Where a member or an item begins, or else the nearest one around it that is known. */
  positionOf(path: readonly string[]): TextPosition;
}

/** By the numbers that jsonc-parser has for them. */
const REASONS: Readonly<Record<ParseErrorCode, string>> = {
  1: 'a value or a name in double quotes is expected',
  2: 'a number is malformed',
  3: 'a name in double quotes is expected',
  4: 'a value is expected',
  5: 'a colon is expected',
  6: 'a comma is expected',
  7: '"}" is expected',
  8: '"]" is expected',
  9: 'the end of the text is expected',
  10: 'comments are not allowed',
  11: 'comments are not allowed',
  12: 'a string has no closing quote in its line',
  13: 'a number has no digit where one is needed',
  14: 'a string has a \\u without four hexadecimal digits',
  15: 'a string has an escape that JSON does not know',
  16: 'a string has a control character that is not escaped',
};

const require = createRequire(import.meta.url);

/** @returns undefined for a text that is JSON, or nested too deeply */
export function findJsonSyntaxError(text: string): JsonSyntaxError | undefined {
  let fault: JsonSyntaxError | undefined;
  walk(text, {
    onError: (error, _offset, _length, line, character) => {
      fault = { line: line + 1, column: character + 1, reason: REASONS[error] };
      throw STOP_VISITING;
    },
  });
  return fault;
}

/** @param text that is JSON; of one that is nested too deeply, the members before that are known */
export function readJsonMembers(text: string): JsonMembers {
  const places = new Map<string, TextPosition>([[pathKey([]), { line: 1, column: 1 }]]);
  const duplicates: DuplicateName[] = [];
  /** An item begins where its value does; a member has begun before, with its name. */
  const note = (path: JSONPath, line: number, character: number) => {
    if (typeof path.at(-1) === 'string') return;
    places.set(pathKey(path), { line: line + 1, column: character + 1 });
  };
  /** The names of each object that is open. */
  const open: Set<string>[] = [];
  walk(text, {
    onObjectBegin: (_offset, _length, line, character, path) => {
      note(path(), line, character);
      open.push(new Set());
    },
    onObjectEnd: () => {
      open.pop();
    },
    onArrayBegin: (_offset, _length, line, character, path) => note(path(), line, character),
    onLiteralValue: (_value, _offset, _length, line, character, path) => {
      note(path(), line, character);
    },
    onObjectProperty: (name, _offset, _length, line, character, path) => {
      const place = { line: line + 1, column: character + 1 };
      const names = open[open.length - 1];
      if (names.has(name)) duplicates.push({ name, path: path().map(String), ...place });
      names.add(name);
      places.set(pathKey([...path(), name]), place);
    },
  });
  const positionOf = (path: readonly string[]): TextPosition => {
    return places.get(pathKey(path)) ?? positionOf(path.slice(0, -1));
  };
  return { duplicates, positionOf };
}

function pathKey(path: Readonly<JSONPath>): string {
  return JSON.stringify(path.map(String));
}

/** Thrown by a visitor that has seen enough. */
const STOP_VISITING = new Error('stop');

function walk(text: string, visitor: JSONVisitor): void {
  const { visit } = require('jsonc-parser') as typeof import('jsonc-parser');
  try {
    visit(text, visitor, { disallowComments: true, allowTrailingComma: false });
  } catch (error) {
    if (error !== STOP_VISITING && !(error instanceof RangeError)) throw error;
  }
}
