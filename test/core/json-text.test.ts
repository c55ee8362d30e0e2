import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { blankJsonc, findJsonSyntaxError, readJsonMembers } from '../../src/core/json-text.ts';
import { trialCount } from '../support/guarantees.ts';

const RUNS = { numRuns: trialCount(1_500, 5_000) };

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Fragments of valid and invalid JSON. */
const pieces = [
  ...['{', '}', '[', ']', ':', ',', '"', '\\', '/', '//', '/*', '*/', "'", '-', '+', '.', '0', '7'],
  ...['e', 'E+', '1e5', '-0', '0.5', '01', '1.', '.5', 'true', 'false', 'null', 'nul', 'NaN'],
  ...['"a"', '"b":', '"\\u00e9"', '"\\u00"', '"\\x"', '"\\ud800"', '"\t"', '"\u0000"', '"é😀"'],
  ...[' ', '\t', '\n', '\r\n', '\r', '\f', '\v', '\u00a0', '\u2028', '\ufeff', 'é', '😀', '\u007f'],
];
const jsonFragments = fc
  .array(fc.constantFrom(...pieces), { maxLength: 12 })
  .map((all) => all.join(''));
const json = fc.tuple(fc.json(), fc.constantFrom(undefined, 1, '\t')).map(([text, indent]) => {
  return JSON.stringify(JSON.parse(text), null, indent);
});
/** JSON with an insertion, a deletion or a replacement. */
const broken = fc
  .tuple(json, fc.nat(), fc.nat({ max: 3 }), fc.constantFrom('', ...pieces))
  .map(([text, at, out, piece]) => {
    const from = at % (text.length + 1);
    return text.slice(0, from) + piece + text.slice(from + out);
  });

/** Text that JSONC allows between tokens. */
const extras = fc.constantFrom('/**/', '/* "a": 1,} */', '// ,]\n', '/*\n*/ ', '\r\n');
/** Adds a text around each token of JSON, and a trailing comma to all that is not empty. */
function addExtras(text: string, extra: string): string {
  let before = '';
  return text.replace(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g, (token) => {
    const comma = /^[}\]]$/.test(token) && !/^[{[]$/.test(before) ? `,${extra}` : '';
    before = token;
    return `${extra}${comma}${token}${extra}`;
  });
}
const commented = fc.tuple(json, extras).map(([text, extra]) => addExtras(text, extra));

describe('a syntax error of JSON', () => {
  test('is found in every text that JSON.parse rejects, and in no other', () => {
    fc.assert(
      fc.property(fc.oneof(jsonFragments, json, broken, fc.string({ unit: 'binary' })), (text) => {
        expect([text, findJsonSyntaxError(text) === undefined]).toEqual([text, isJson(text)]);
      }),
      RUNS,
    );
  });

  test.each([
    ['', 1, 1, 'a value is expected'],
    ['{', 1, 2, '"}" is expected'],
    ['{"a":1,}', 1, 8, 'a name in double quotes is expected'],
    ['[1,]', 1, 4, 'a value is expected'],
    ['[1 2]', 1, 4, 'a comma is expected'],
    ['{"a" 1}', 1, 6, 'a colon is expected'],
    ['{"a":1 "b":2}', 1, 8, 'a comma is expected'],
    ['{\n "a": b\n}', 2, 7, 'a value or a name in double quotes is expected'],
    ["{\r\n\t'a': 1\r\n}", 2, 2, 'a value or a name in double quotes is expected'],
    ['{}{}', 1, 3, 'the end of the text is expected'],
    ['[] // done', 1, 4, 'comments are not allowed'],
    ['\ufeff{}', 1, 1, 'a value or a name in double quotes is expected'],
    ['["é😀", x]', 1, 9, 'a value or a name in double quotes is expected'],
    ['["a\n"]', 1, 2, 'a string has no closing quote in its line'],
    ['[1.]', 1, 2, 'a number has no digit where one is needed'],
    ['["\\u12"]', 1, 2, 'a string has a \\u without four hexadecimal digits'],
    ['["\\x"]', 1, 2, 'a string has an invalid escape sequence'],
    ['["\u0001"]', 1, 2, 'a string has an unescaped control character'],
  ])('in %j is in line %i, column %i', (text, line, column, reason) => {
    expect(findJsonSyntaxError(text)).toEqual({ line, column, reason });
  });

  test('has a reason that does not quote the text', () => {
    const secret = 'S3CRET';
    const wrong = [secret, `{"k": ${secret}}`, `{"k": '${secret}'}`, `{"k": "${secret}}`];
    const more = [`{${secret}: 1}`, `["${secret}\\x"]`, `["${secret}" "${secret}"]`, `//${secret}`];
    for (const text of [...wrong, ...more]) {
      expect([text, findJsonSyntaxError(text)?.reason]).toEqual([
        text,
        expect.not.stringContaining(secret),
      ]);
    }
  });

  test('has no position in a text that is nested too deeply for the parser', () => {
    const nested = '['.repeat(1_048_576);
    expect(isJson(nested)).toBe(false);
    expect(findJsonSyntaxError(nested)).toBeUndefined();
    expect(findJsonSyntaxError('[')).toBeDefined();
  });
});

/** The structure of a text: numbers, lists, and objects whose names may be repeated. */
type Tree = number | Tree[] | { members: [string, Tree][] };
const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.nat({ max: 9 }),
    fc.array(tie('tree'), { maxLength: 3 }),
    fc
      .array(fc.tuple(fc.constantFrom('a', 'b', '', 'é"\n', '__proto__'), tie('tree')), {
        maxLength: 4,
      })
      .map((members) => ({ members })),
  ),
}));

interface WrittenJson {
  text: string;
  repeated: object[];
  /** The start of each member and item; for a repeated name, of the last one. */
  positions: Map<string, object>;
}

/** Writes each member and item in a separate line, indented by its depth. */
function write(tree: Tree): WrittenJson {
  const written: WrittenJson = { text: '', repeated: [], positions: new Map() };
  const currentPosition = () => {
    const lines = written.text.split('\n');
    return { line: lines.length, column: lines[lines.length - 1].length + 1 };
  };
  const add = (tree: Tree, path: string[]) => {
    if (typeof tree === 'number') {
      written.text += tree;
      return;
    }
    const isList = Array.isArray(tree);
    const members = isList ? tree.map((item, i) => [String(i), item] as const) : tree.members;
    const names = new Set<string>();
    written.text += isList ? '[' : '{';
    for (const [i, [name, value]] of members.entries()) {
      written.text += `${i > 0 ? ',' : ''}\n${' '.repeat(path.length + 1)}`;
      if (names.has(name)) written.repeated.push({ name, path, ...currentPosition() });
      names.add(name);
      written.positions.set(JSON.stringify([...path, name]), currentPosition());
      if (!isList) written.text += `${JSON.stringify(name)}: `;
      add(value, [...path, name]);
    }
    written.text += isList ? ']' : '}';
  };
  add(tree, []);
  return written;
}

describe('in a JSON text', () => {
  test('every repeated name, and the position of each member and item, is found', () => {
    fc.assert(
      fc.property(tree, (tree) => {
        const { text, repeated, positions } = write(tree);
        const members = readJsonMembers(text);
        expect(members.duplicates).toEqual(repeated);
        for (const [path, position] of positions) {
          expect(members.positionOf(JSON.parse(path))).toEqual(position);
        }
      }),
      RUNS,
    );
  });

  test('a missing member has the position of the nearest enclosing one', () => {
    const members = readJsonMembers('\n{"a": [\n  {"b": 1}]}');
    expect(members.positionOf(['a', '0', 'c', 'd'])).toEqual({ line: 3, column: 3 });
    expect(members.positionOf(['x'])).toEqual({ line: 2, column: 1 });
  });

  test('names are compared after decoding their escapes', () => {
    const { duplicates } = readJsonMembers('{"a":1,"\\u0061":2}');
    expect(duplicates).toEqual([{ name: 'a', path: [], line: 1, column: 8 }]);
  });
});

describe('JSONC', () => {
  test('is JSON with blanks of the same length and in the same lines, or has a syntax error', () => {
    fc.assert(
      fc.property(fc.oneof(jsonFragments, broken, commented), (text) => {
        if (findJsonSyntaxError(text, 'JSONC') !== undefined) return;
        const json = blankJsonc(text);
        expect([text, isJson(json)]).toEqual([text, true]);
        const lengths = (lines: string) => lines.split(/\r|\n/).map(({ length }) => length);
        expect([text, lengths(json)]).toEqual([text, lengths(text)]);
      }),
      RUNS,
    );
  });

  test('has the value of the JSON to which comments and trailing commas were added', () => {
    fc.assert(
      fc.property(json, extras, (text, extra) => {
        expect(JSON.parse(blankJsonc(addExtras(text, extra)))).toEqual(JSON.parse(text));
      }),
      RUNS,
    );
  });

  test('may have comments and a trailing comma after a value, and nothing else', () => {
    for (const text of [
      '{"a":1,}',
      '[1,]',
      '[[],/**/]',
      '// a\n{}//',
      '{"a":"//,}"/*\n*/,\n//\n}',
    ]) {
      expect([text, findJsonSyntaxError(text, 'JSONC')]).toEqual([text, undefined]);
      expect([text, findJsonSyntaxError(text) === undefined]).toEqual([text, false]);
    }
    for (const text of ['[,]', '{,}', '[1,,]', '{"a",}', '{"a":,}', '{},', '[1] /*', '# a\n{}']) {
      expect([text, findJsonSyntaxError(text, 'JSONC') !== undefined]).toEqual([text, true]);
    }
  });
});
