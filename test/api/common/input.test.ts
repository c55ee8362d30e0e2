import Type from 'typebox';
import { expect, test } from 'vitest';
import { parseBody, parseQuery } from '../../../src/api/common/input.ts';
import { BODY_MAX_BYTES } from '../../../src/core/constants.ts';
import { ApiError } from '../../../src/core/errors.ts';
import { flag, integer, text } from '../../../src/core/schema.ts';

const longBody = (json: string) => Buffer.from(json + ' '.repeat(BODY_MAX_BYTES));
const MESSAGE = 'the body must hold at most 5 values';

test('a long body may contain so many values, counted by opening brackets and commas', () => {
  const valid = ['[1,2,3,4,5]', '[[[[[]]]]]', '{"a":[1,2],"b":{}}', '[[],[]]'];
  for (const json of valid) expect(parseBody(longBody(json), 5)).toEqual(JSON.parse(json));
  const invalid = ['[1,2,3,4,5,6]', '[[[[[[]]]]]]', '{"a":[1,2],"b":{},"c":1}', '[[[[[[', ',,,,,,'];
  for (const json of invalid) expect(() => parseBody(longBody(json), 5)).toThrow(MESSAGE);
});

test('brackets and commas inside a string are not counted, also next to escapes', () => {
  for (const text of ['[[[[[[[', ',,,,,,,', '"[,[,[,[', '\\"[,[,[,[', '\\', '\\\\"{{{{{{{']) {
    expect(parseBody(longBody(JSON.stringify([text, text])), 5)).toEqual([text, text]);
    const values = [text, [[[[text]]]]];
    expect(() => parseBody(longBody(JSON.stringify(values)), 5)).toThrow(MESSAGE);
  }
});

test('a body of usual length may contain any number of values', () => {
  expect(parseBody(Buffer.from('[1,2,3,4,5,6,7]'), 5)).toEqual([1, 2, 3, 4, 5, 6, 7]);
});

test('the error of an invalid body has line, column and reason, and no text of the body', () => {
  const cases: [string, string][] = [
    ['{"identifier":"a",}', 'line 1, column 19: a name in double quotes is expected'],
    ['{"limit": secret}', 'line 1, column 11: a value or a name in double quotes is expected'],
    ['{\r\n  "é😀": 1 2}', 'line 2, column 12: a comma is expected'],
    ['{}{}', 'line 1, column 3: the end of the text is expected'],
    ['{"a":"\n"}', 'line 1, column 6: a string has no closing quote in its line'],
    ['{', 'line 1, column 2: "}" is expected'],
    ['', 'it is empty'],
  ];
  const longer = `${' '.repeat(BODY_MAX_BYTES)}secret`;
  for (const json of ['['.repeat(BODY_MAX_BYTES), longer]) {
    const parse = () => parseBody(Buffer.from(json));
    expect(parse).toThrow(new ApiError('BAD_REQUEST', 'the body is not JSON'));
  }
  for (const [json, reason] of cases) {
    const parse = () => parseBody(Buffer.from(json));
    expect(parse).toThrow(new ApiError('BAD_REQUEST', `the body is not JSON: ${reason}`));
  }
});

const QUERY = Type.Object({
  limit: Type.Optional(integer(1, 100)),
  usage: Type.Optional(flag()),
  identifier: text(0, 10),
});

test('a query is decoded, and only an integer or a flag of its schema is no text', () => {
  expect(parseQuery('limit=5&usage=true&identifier=5&a+b=%C3%A9&empty&limit2=5', QUERY)).toEqual({
    limit: 5,
    usage: true,
    identifier: '5',
    'a b': 'é',
    empty: '',
    limit2: '5',
  });
  expect(parseQuery('limit=-5&usage=1', QUERY)).toEqual({ limit: '-5', usage: '1' });
  expect(parseQuery('limit=true&usage=0', QUERY)).toEqual({ limit: 'true', usage: '0' });
  expect(parseQuery('__proto__=x', QUERY)).toEqual(Object.fromEntries([['__proto__', 'x']]));
  expect(parseQuery('a=%EF%BF%BD', QUERY)).toEqual({ a: '\ufffd' });
});

test.each(['a=%', 'a=%FF', '%ED%A0%80=a', 'a=\ufffd'])('the query %s is not UTF-8', (query) => {
  expect(() => parseQuery(query, QUERY)).toThrow('the query must be ');
});
