import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { jsonFault } from '../src/json-text.ts';
import { BODY_MAX_BYTES } from '../src/limits.ts';
import { scaled } from './support/scale.ts';

const RUNS = { numRuns: scaled(5_000) };

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Of what JSON and its mistakes consist. */
const pieces = [
  ...['{', '}', '[', ']', ':', ',', '"', '\\', '/', '//', '/*', '*/', "'", '-', '+', '.', '0', '7'],
  ...['e', 'E+', '1e5', '-0', '0.5', '01', '1.', '.5', 'true', 'false', 'null', 'nul', 'NaN'],
  ...['"a"', '"b":', '"\\u00e9"', '"\\u00"', '"\\x"', '"\\ud800"', '"\t"', '"\u0000"', '"é😀"'],
  ...[' ', '\t', '\n', '\r\n', '\r', '\f', '\v', '\u00a0', '\u2028', '\ufeff', 'é', '😀', '\u007f'],
];
const noise = fc.array(fc.constantFrom(...pieces), { maxLength: 12 }).map((all) => all.join(''));
const json = fc.tuple(fc.json(), fc.constantFrom(undefined, 1, '\t')).map(([text, indent]) => {
  return JSON.stringify(JSON.parse(text), null, indent);
});
/** JSON in which something was put in, left out or put in the place of something. */
const broken = fc
  .tuple(json, fc.nat(), fc.nat({ max: 3 }), fc.constantFrom('', ...pieces))
  .map(([text, at, out, piece]) => {
    const from = at % (text.length + 1);
    return text.slice(0, from) + piece + text.slice(from + out);
  });

const ODD_STRING =
  'the string that begins here has an escape or a control character that JSON does not allow';

describe('a syntax error of JSON', () => {
  test('is found in every text that JSON.parse refuses, and in no other', () => {
    fc.assert(
      fc.property(fc.oneof(noise, json, broken, fc.string({ unit: 'binary' })), (text) => {
        expect([text, jsonFault(text) === undefined]).toEqual([text, isJson(text)]);
      }),
      RUNS,
    );
  });

  test('stands where the text before it might still have become JSON', () => {
    fc.assert(
      fc.property(broken, (text) => {
        const fault = jsonFault(text);
        if (fault === undefined) return;
        const lines = text.split('\n').slice(0, fault.line);
        const last = [...lines[fault.line - 1]].slice(0, fault.column - 1).join('');
        const before = [...lines.slice(0, -1), last].join('\n');
        expect([text, jsonFault(before)?.reason ?? 'got the end of the text']).toEqual([
          text,
          expect.stringMatching(/got the end of the text$/),
        ]);
      }),
      RUNS,
    );
  });

  test.each([
    ['', 1, 1, 'expected a value, got the end of the text'],
    ['{', 1, 2, 'expected a name in double quotes or "}", got the end of the text'],
    ['{"a":1,}', 1, 8, 'expected a name in double quotes, got "}"'],
    ['[1,]', 1, 4, 'expected a value, got "]"'],
    ['[1 2]', 1, 4, 'expected a comma or "]", got a number'],
    ['{"a" 1}', 1, 6, 'expected a colon, got a number'],
    ['{"a":1 "b":2}', 1, 8, 'expected a comma or "}", got a string'],
    ['{\n "a": b\n}', 2, 7, 'expected a value, got an invalid token'],
    ["{\r\n\t'a': 1\r\n}", 2, 2, 'expected a name in double quotes or "}", got a single quote'],
    ['{}{}', 1, 3, 'expected the end of the text, got "{"'],
    ['[] // done', 1, 4, 'expected the end of the text, got a comment'],
    ['\ufeff{}', 1, 1, 'expected a value, got a byte order mark'],
    ['["é😀", x]', 1, 8, 'expected a value, got an invalid token'],
    ['["a\n"]', 1, 2, 'the string that begins here has no closing quote in its line'],
    ['[1.]', 1, 2, 'the number that begins here has no digit where one is needed'],
    ['["\\u12"]', 1, 2, ODD_STRING],
    ['["\\x"]', 1, 2, ODD_STRING],
    ['["\u0001"]', 1, 2, ODD_STRING],
    ['["a\\"]', 1, 2, 'the string that begins here has no closing quote in its line'],
  ])('in %j is in line %i, column %i', (text, line, column, reason) => {
    expect(jsonFault(text)).toEqual({ line, column, reason });
  });

  test('is told without a word of the text', () => {
    const secret = 'S3CRET';
    const wrong = [secret, `{"k": ${secret}}`, `{"k": '${secret}'}`, `{"k": "${secret}}`];
    const more = [`{${secret}: 1}`, `["${secret}\\x"]`, `["${secret}" "${secret}"]`, `//${secret}`];
    for (const text of [...wrong, ...more]) {
      expect([text, jsonFault(text)?.reason]).toEqual([text, expect.not.stringContaining(secret)]);
    }
  });

  test('is found behind any nesting, in large texts of any kind', () => {
    const kinds = ['[', '{"":', ' ', '\n', '"",', '"\\n', '\\u00e9', '1,', 'x', '/*', '[],', '😀'];
    for (const kind of kinds) {
      for (const first of ['', '[', '"']) {
        const text = (first + kind.repeat(1_048_576)).slice(0, 1_048_576);
        expect([first + kind, jsonFault(text)]).toEqual([first + kind, expect.any(Object)]);
      }
    }
    const nested = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
    expect(jsonFault(nested)).toBeUndefined();
    expect(jsonFault(`${nested}]`)).toMatchObject({ line: 1, column: 200_001 });
    expect(jsonFault(`${'\n'.repeat(BODY_MAX_BYTES)}x`)).toMatchObject({
      line: BODY_MAX_BYTES + 1,
      column: 1,
    });
  });
});
