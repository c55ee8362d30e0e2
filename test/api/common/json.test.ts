import { expect, test } from 'vitest';
import { parseBody } from '../../../src/api/common/json.ts';
import { BODY_MAX_BYTES } from '../../../src/core/constants.ts';
import { ApiError } from '../../../src/core/errors.ts';

const longBody = (json: string) => Buffer.from(json + ' '.repeat(BODY_MAX_BYTES));
const MESSAGE = 'the body must hold at most 5 values';

test('a long body holds so many values, which are what begins and what is behind a comma', () => {
  const right = ['[1,2,3,4,5]', '[[[[[]]]]]', '{"a":[1,2],"b":{}}', '[[],[]]'];
  for (const json of right) expect(parseBody(longBody(json), 5)).toEqual(JSON.parse(json));
  const wrong = ['[1,2,3,4,5,6]', '[[[[[[]]]]]]', '{"a":[1,2],"b":{},"c":1}', '[[[[[[', ',,,,,,'];
  for (const json of wrong) expect(() => parseBody(longBody(json), 5)).toThrow(MESSAGE);
});

test('what stands in a text is no value, whatever is escaped in it', () => {
  for (const text of ['[[[[[[[', ',,,,,,,', '"[,[,[,[', '\\"[,[,[,[', '\\', '\\\\"{{{{{{{']) {
    expect(parseBody(longBody(JSON.stringify([text, text])), 5)).toEqual([text, text]);
    const values = [text, [[[[text]]]]];
    expect(() => parseBody(longBody(JSON.stringify(values)), 5)).toThrow(MESSAGE);
  }
});

test('a body that is not long is read whatever it holds', () => {
  expect(parseBody(Buffer.from('[1,2,3,4,5,6,7]'), 5)).toEqual([1, 2, 3, 4, 5, 6, 7]);
});

test('a body that is no JSON is told with line, column and reason, and not with its text', () => {
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
  for (const unplaced of ['['.repeat(BODY_MAX_BYTES), longer]) {
    const wrong = () => parseBody(Buffer.from(unplaced));
    expect(wrong).toThrow(new ApiError('BAD_REQUEST', 'the body is not JSON'));
  }
  for (const [json, why] of cases) {
    const wrong = () => parseBody(Buffer.from(json));
    expect(wrong).toThrow(new ApiError('BAD_REQUEST', `the body is not JSON: ${why}`));
  }
});
