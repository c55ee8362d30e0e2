/**
 * Where a JSON text has its first syntax error, and where its members are. `JSON.parse` decides
 * what is JSON; this file says where and why a text is not, in the same words on every Node.
 *
 * The tokens come from jsonc-parser, the grammar is checked here with a stack of its own, so that
 * no nesting overflows the call stack. A reason never quotes the text, which may hold a secret.
 * The package is loaded by the first call: a thread that meets no fault does not need it.
 */

import { createRequire } from 'node:module';
import type { JSONScanner } from 'jsonc-parser';

/** Both count from 1; the column counts characters. */
export interface Place {
  line: number;
  column: number;
}

export interface JsonFault extends Place {
  /** What was expected, and what came instead. */
  reason: string;
}

/** As jsonc-parser numbers them. */
const TOKEN = {
  openBrace: 1,
  closeBrace: 2,
  openBracket: 3,
  closeBracket: 4,
  comma: 5,
  colon: 6,
  null: 7,
  true: 8,
  false: 9,
  text: 10,
  number: 11,
  lineComment: 12,
  blockComment: 13,
  unknown: 16,
  end: 17,
} as const;

const GOT: Readonly<Record<number, string>> = {
  [TOKEN.openBrace]: '"{"',
  [TOKEN.closeBrace]: '"}"',
  [TOKEN.openBracket]: '"["',
  [TOKEN.closeBracket]: '"]"',
  [TOKEN.comma]: 'a comma',
  [TOKEN.colon]: 'a colon',
  [TOKEN.null]: 'null',
  [TOKEN.true]: 'true',
  [TOKEN.false]: 'false',
  [TOKEN.text]: 'a string',
  [TOKEN.number]: 'a number',
  [TOKEN.lineComment]: 'a comment',
  [TOKEN.blockComment]: 'a comment',
  [TOKEN.unknown]: 'an invalid token',
  [TOKEN.end]: 'the end of the text',
};

/** By which jsonc-parser says that a number lacks a digit. */
const NUMBER_FAULT = 3;
const ODD_NUMBER = 'the number that begins here has no digit where one is needed';
const OPEN_STRING = 'the string that begins here has no closing quote in its line';
const ODD_STRING =
  'the string that begins here has an escape or a control character that JSON does not allow';

const EXPECTED = {
  value: 'a value',
  firstItem: 'a value or "]"',
  firstName: 'a name in double quotes or "}"',
  name: 'a name in double quotes',
  colon: 'a colon',
  moreNames: 'a comma or "}"',
  moreItems: 'a comma or "]"',
  end: 'the end of the text',
} as const;
type Expected = keyof typeof EXPECTED;

/** Told of what a text consists, in its order. */
export interface Visitor {
  open(): void;
  close(): void;
  name(name: string, offset: number): void;
  item(offset: number): void;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const TAB = 0x09;
const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const load = createRequire(import.meta.url);

function scannerOf(text: string): JSONScanner {
  const { createScanner } = load('jsonc-parser') as typeof import('jsonc-parser');
  return createScanner(text, false);
}

/** The first syntax error of a text; undefined where it is JSON. */
export function jsonFault(text: string): JsonFault | undefined {
  const fault = walk(text);
  return fault && { ...placeAt(text, fault.offset), reason: fault.reason };
}

/** A fault, by where it begins. */
interface Misfit {
  offset: number;
  reason: string;
}

/** @returns what is wrong first, undefined where nothing is */
export function walk(text: string, visitor?: Visitor): Misfit | undefined {
  const scanner = scannerOf(text);
  /** Of each value that is open, whether it is an object. */
  const open: boolean[] = [];
  const afterValue = (): Expected => {
    if (open.length === 0) return 'end';
    return open[open.length - 1] ? 'moreNames' : 'moreItems';
  };
  let expected: Expected = 'value';
  for (;;) {
    // The scanner would make a string of blanks, one by one.
    const offset = skipBlanks(text, scanner.getPosition());
    scanner.setPosition(offset);
    let token: number = TOKEN.text;
    if (text.charCodeAt(offset) === QUOTE) {
      const { end, fault } = readString(text, offset);
      if (fault !== undefined) return { offset, reason: fault };
      scanner.setPosition(end);
    } else {
      token = scanner.scan();
      if (scanner.getTokenError() === NUMBER_FAULT) return { offset, reason: ODD_NUMBER };
    }
    const isItem = open[open.length - 1] === false && takesValue(expected);
    const next = follow(token, expected, open, afterValue);
    if (next === undefined) {
      if (token === TOKEN.end && expected === 'end') return undefined;
      const reason = `expected ${EXPECTED[expected]}, got ${gotAt(text, offset, token)}`;
      return { offset, reason };
    }
    if (visitor !== undefined) {
      const read = text.slice(offset, scanner.getPosition());
      if (next === 'colon') visitor.name(JSON.parse(read), offset);
      if (isItem && token !== TOKEN.closeBracket) visitor.item(offset);
      if (token === TOKEN.openBrace || token === TOKEN.openBracket) visitor.open();
      if (token === TOKEN.closeBrace || token === TOKEN.closeBracket) visitor.close();
    }
    expected = next;
  }
}

/** A string, without the scanner, which puts it together escape by escape. */
function readString(text: string, offset: number): { end: number; fault?: string } {
  let isPlain = true;
  for (let at = offset + 1; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      const end = at + 1;
      return isPlain || isJson(text.slice(offset, end)) ? { end } : { end, fault: ODD_STRING };
    }
    if (code === LINE_FEED || code === CARRIAGE_RETURN) break;
    if (code === BACKSLASH) at++;
    if (code === BACKSLASH || code < SPACE) isPlain = false;
  }
  return { end: offset, fault: OPEN_STRING };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** @returns what may come behind a token, undefined where it is not what was expected */
function follow(
  token: number,
  expected: Expected,
  open: boolean[],
  afterValue: () => Expected,
): Expected | undefined {
  switch (token) {
    case TOKEN.openBrace:
    case TOKEN.openBracket:
      if (!takesValue(expected)) return undefined;
      open.push(token === TOKEN.openBrace);
      return token === TOKEN.openBrace ? 'firstName' : 'firstItem';
    case TOKEN.closeBrace:
      if (expected !== 'firstName' && expected !== 'moreNames') return undefined;
      open.pop();
      return afterValue();
    case TOKEN.closeBracket:
      if (expected !== 'firstItem' && expected !== 'moreItems') return undefined;
      open.pop();
      return afterValue();
    case TOKEN.comma:
      if (expected === 'moreNames') return 'name';
      return expected === 'moreItems' ? 'value' : undefined;
    case TOKEN.colon:
      return expected === 'colon' ? 'value' : undefined;
    case TOKEN.text:
      if (expected === 'name' || expected === 'firstName') return 'colon';
      return takesValue(expected) ? afterValue() : undefined;
    case TOKEN.number:
    case TOKEN.null:
    case TOKEN.true:
    case TOKEN.false:
      return takesValue(expected) ? afterValue() : undefined;
    default:
      return undefined;
  }
}

function takesValue(expected: Expected): boolean {
  return expected === 'value' || expected === 'firstItem';
}

function gotAt(text: string, offset: number, token: number): string {
  if (token !== TOKEN.unknown) return GOT[token];
  if (text[offset] === "'") return 'a single quote';
  return text[offset] === '\ufeff' ? 'a byte order mark' : GOT[token];
}

function skipBlanks(text: string, from: number): number {
  let at = from;
  for (; ; at++) {
    const code = text.charCodeAt(at);
    if (code === SPACE || code === LINE_FEED || code === CARRIAGE_RETURN || code === TAB) continue;
    return at;
  }
}

export function placeAt(text: string, offset: number): Place {
  let line = 1;
  let column = 1;
  for (let i = 0; i < offset; i++) {
    const code = text.charCodeAt(i);
    if (code === LINE_FEED) {
      line++;
      column = 1;
    } else if ((code & 0xfc00) !== 0xdc00) column++; // The second half of a pair is no character.
  }
  return { line, column };
}
