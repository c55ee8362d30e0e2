/**
 * Positions in a JSON text: of its first syntax error, its members, and duplicate names. JSONC may
 * also have comments and trailing commas. `JSON.parse` decides whether a text is JSON; this file
 * uses jsonc-parser to find the position and the reason of an error. A reason never quotes the
 * text, which may contain a secret. The parser is recursive: a text that is nested too deeply for
 * it has no positions. The first call loads the package, because most threads never need it.
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
  11: 'a comment has no end',
  12: 'a string has no closing quote in its line',
  13: 'a number has no digit where one is needed',
  14: 'a string has a \\u without four hexadecimal digits',
  15: 'a string has an invalid escape sequence',
  16: 'a string has an unescaped control character',
};

/** @returns undefined for a valid text, and for one that is nested too deeply */
export function findJsonSyntaxError(
  text: string,
  syntax: 'JSON' | 'JSONC' = 'JSON',
): JsonSyntaxError | undefined {
  let fault: JsonSyntaxError | undefined;
  const visitor: JSONVisitor = {
    onError: (error, _offset, _length, line, character) => {
      fault = { line: line + 1, column: character + 1, reason: REASONS[error] };
      throw STOP_VISITING;
    },
  };
  walk(text, visitor, syntax);
  return fault;
}

/**
 * Replaces comments and trailing commas by blanks, so that positions stay the same.
 * @param text valid JSONC; if it is nested too deeply, a part of it stays as it is
 * @returns JSON
 */
export function blankJsonc(text: string): string {
  const blanks: { offset: number; length: number }[] = [];
  /** The last comma, if nothing but comments has followed it. */
  let comma: number | undefined;
  const forgetComma = () => {
    comma = undefined;
  };
  const blankComma = () => {
    if (comma !== undefined) blanks.push({ offset: comma, length: 1 });
    forgetComma();
  };
  const visitor: JSONVisitor = {
    onComment: (offset, length) => {
      blanks.push({ offset, length });
    },
    onSeparator: (character, offset) => {
      comma = character === ',' ? offset : undefined;
    },
    onObjectBegin: forgetComma,
    onObjectProperty: forgetComma,
    onArrayBegin: forgetComma,
    onLiteralValue: forgetComma,
    onObjectEnd: blankComma,
    onArrayEnd: blankComma,
  };
  walk(text, visitor, 'JSONC');
  let json = '';
  for (const { offset, length } of blanks.toSorted((a, b) => a.offset - b.offset)) {
    const blank = text.slice(offset, offset + length).replace(/[^\r\n]/g, ' ');
    json += text.slice(json.length, offset) + blank;
  }
  return json + text.slice(json.length);
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

function walk(text: string, visitor: JSONVisitor, syntax: 'JSON' | 'JSONC' = 'JSON'): void {
  const { visit } = requirePackage('jsonc-parser');
  const isJsonc = syntax === 'JSONC';
  try {
    visit(text, visitor, { disallowComments: !isJsonc, allowTrailingComma: isJsonc });
  } catch (error) {
    if (error !== STOP_VISITING && !(error instanceof RangeError)) throw error;
  }
}
