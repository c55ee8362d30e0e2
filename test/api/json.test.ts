import { expect, test } from 'vitest';
import { parseBody } from '../../src/api/json.ts';
import { BODY_MAX_BYTES } from '../../src/limits.ts';

const long = (json: string) => Buffer.from(json + ' '.repeat(BODY_MAX_BYTES));
const MESSAGE = 'the body must hold at most 5 values';

test('a long body holds so many values, which are what begins and what is behind a comma', () => {
  const right = ['[1,2,3,4,5]', '[[[[[]]]]]', '{"a":[1,2],"b":{}}', '[[],[]]'];
  for (const json of right) expect(parseBody(long(json), 5)).toEqual(JSON.parse(json));
  const wrong = ['[1,2,3,4,5,6]', '[[[[[[]]]]]]', '{"a":[1,2],"b":{},"c":1}', '[[[[[[', ',,,,,,'];
  for (const json of wrong) expect(() => parseBody(long(json), 5)).toThrow(MESSAGE);
});

test('what stands in a text is no value, whatever is escaped in it', () => {
  for (const text of ['[[[[[[[', ',,,,,,,', '"[,[,[,[', '\\"[,[,[,[', '\\', '\\\\"{{{{{{{']) {
    expect(parseBody(long(JSON.stringify([text, text])), 5)).toEqual([text, text]);
    const values = [text, [[[[text]]]]];
    expect(() => parseBody(long(JSON.stringify(values)), 5)).toThrow(MESSAGE);
  }
});

test('a body that is not long is read whatever it holds', () => {
  expect(parseBody(Buffer.from('[1,2,3,4,5,6,7]'), 5)).toEqual([1, 2, 3, 4, 5, 6, 7]);
});
