/**
 * Positions in a JSON text: of its first syntax error, its members, and duplicate names.
 * `JSON.parse` decides whether a text is JSON; this file uses jsonc-parser to find the position and
 * the reason of an error. A reason never quotes the text, which may contain a secret. The parser is
 * recursive: a text that is nested too deeply for it has no positions. The first call loads the
 * package, because most threads never need it.
 */

import type { JSONPath, JSONVisitor, ParseErrorCode } from 'jsonc-parser';
import { requirePackage } from './packages.ts';

/** Both start at 1. The column counts UTF-16 code units. */
export interface TextPosition {
  line: number;
  column: number;
}

interface JsonSyntaxError extends TextPosition {
  reason: string;
}

/** A repeated name in an object. */
export interface DuplicateName extends TextPosition {
  name: string;
  /** The names and indices from the root to the object. */
  path: string[];
}

export interface JsonMembers {
  duplicates: DuplicateName[];
  /** The start of a member or an item; if it is unknown, that of the nearest enclosing one. */
  positionOf(path: readonly string[]): TextPosition;
}

/** By the error codes of jsonc-parser. */
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
  15: 'a string has an invalid escape sequence',
  16: 'a string has an unescaped control character',
};

/** @returns undefined for valid JSON, and for a text that is nested too deeply */
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

/** @param text valid JSON; if it is nested too deeply, only the members before that are found */
export function readJsonMembers(text: string): JsonMembers {
  const positions = new Map<string, TextPosition>([[pathKey([]), { line: 1, column: 1 }]]);
  const duplicates: DuplicateName[] = [];
  /** An item starts at its value. A member starts at its name, which is already recorded. */
  const recordItem = (path: JSONPath, line: number, character: number) => {
    if (typeof path.at(-1) === 'string') return;
    positions.set(pathKey(path), { line: line + 1, column: character + 1 });
  };
  /** The names of each enclosing object. */
  const enclosing: Set<string>[] = [];
  walk(text, {
    onObjectBegin: (_offset, _length, line, character, path) => {
      recordItem(path(), line, character);
      enclosing.push(new Set());
    },
    onObjectEnd: () => {
      enclosing.pop();
    },
    onArrayBegin: (_offset, _length, line, character, path) => recordItem(path(), line, character),
    onLiteralValue: (_value, _offset, _length, line, character, path) => {
      recordItem(path(), line, character);
    },
    onObjectProperty: (name, _offset, _length, line, character, path) => {
      const position = { line: line + 1, column: character + 1 };
      const names = enclosing[enclosing.length - 1];
      if (names.has(name)) duplicates.push({ name, path: path().map(String), ...position });
      names.add(name);
      positions.set(pathKey([...path(), name]), position);
    },
  });
  const positionOf = (path: readonly string[]): TextPosition => {
    return positions.get(pathKey(path)) ?? positionOf(path.slice(0, -1));
  };
  return { duplicates, positionOf };
}

function pathKey(path: Readonly<JSONPath>): string {
  return JSON.stringify(path.map(String));
}

/** A visitor throws this to stop the parser. */
const STOP_VISITING = new Error('stop');

function walk(text: string, visitor: JSONVisitor): void {
  const { visit } = requirePackage('jsonc-parser');
  try {
    visit(text, visitor, { disallowComments: true, allowTrailingComma: false });
  } catch (error) {
    if (error !== STOP_VISITING && !(error instanceof RangeError)) throw error;
  }
}
