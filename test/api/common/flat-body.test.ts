import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readFlatBody } from '../../../src/api/common/flat-body.ts';
import { trialCount } from '../../support/guarantees.ts';

const NAMES = ['id', 'identifier', 'cost', 'ttl'];

/** What it reads, as `JSON.parse` reads it. @returns whether it reads the body */
function expectParsed(text: string | Buffer): boolean {
  const body = Buffer.from(text);
  const fields = readFlatBody(body, NAMES);
  if (fields === undefined) return false;
  expect(fields).toEqual(JSON.parse(body.toString()));
  for (const name of Object.keys(fields)) expect(NAMES).toContain(name);
  return true;
}

const plainText = fc.string({ unit: 'grapheme-ascii', maxLength: 30 }).map((text) => {
  return text.replace(/["\\]/g, '');
});
const integer = fc.oneof(fc.nat(1_000), fc.nat(999_999_999_999_999), fc.constantFrom(0, 10));
const spaces = fc.constantFrom('', '', '', ' ', '  ');
const plainField = fc
  .tuple(
    fc.constantFrom(...NAMES),
    fc.oneof(plainText, integer),
    fc.array(spaces, { maxLength: 4 }),
  )
  .map(([name, value, [a = '', b = '', c = '', d = '']]) => {
    return `${a}${JSON.stringify(name)}${b}:${c}${JSON.stringify(value)}${d}`;
  });
const plainBody = fc
  .array(plainField, { minLength: 1, maxLength: 6 })
  .map((fields) => `{${fields.join()}}`);

test('reads each object of plain texts and integers as JSON.parse does', () => {
  // The last one of a repeated field counts.
  const property = fc.property(plainBody, (body) => {
    expect(expectParsed(body)).toBe(true);
  });
  fc.assert(property, { numRuns: trialCount(5_000, 200_000) });
});

test('reads no body in another way than JSON.parse, and none that is invalid', () => {
  const odd = fc.constantFrom(
    ...['{', '}', '"', ':', ',', ' ', '\\', '\n', '\t', '0', '-', '+', '.', 'e', '1', 'é', '\0'],
    ...['\\u0041', 'true', 'null', '{}', '[]', '"id"', '"other":1,', '\u{1f600}', ',"cost":01'],
  );
  const changed = fc
    .tuple(plainBody, fc.nat(), fc.nat(2), odd)
    .map(([body, where, removed, added]) => {
      const at = where % (body.length + 1);
      return body.slice(0, at) + added + body.slice(at + removed);
    });
  const any = fc.oneof(changed, changed, fc.json(), fc.string({ unit: 'binary', maxLength: 60 }));
  let read = 0;
  const property = fc.property(any, (body) => {
    if (expectParsed(body)) read++;
  });
  fc.assert(property, { numRuns: trialCount(10_000, 500_000) });
  expect(read).toBeGreaterThan(0);
  const bytes = fc.uint8Array({ maxLength: 40 }).map((all) => Buffer.from(all));
  fc.assert(fc.property(bytes, (body) => void expectParsed(body)));
});

test.each([
  ['{}', '', '[]', '"id"', ' {"id":"a"}', '{"id":"a"} ', '{"id":"a"}\n', '{"id":"a",}'],
  ['{"id":"a"', '{"id":"a', '{"id":', '{"id"', '{"i', '{"id":"a"}}', '{"id" "a"}', '{id:"a"}'],
  ['{"other":"a"}', '{"":"a"}', '{"idx":"a"}', '{"i":"a"}', '{"ID":"a"}', '{"__proto__":"a"}'],
  ['{"id":-1}', '{"id":1.5}', '{"id":1e3}', '{"id":01}', '{"id":1234567890123456}', '{"id":}'],
  ['{"id":true}', '{"id":null}', '{"id":[]}', '{"id":{}}', '{"id":"\\n"}', '{"id":"\u00e9"}'],
])('leaves %s, and the like, to JSON.parse', (...bodies) => {
  for (const body of bodies) expect(readFlatBody(Buffer.from(body), NAMES)).toBeUndefined();
});

test('reads a body of 2048 bytes, and none that is longer', () => {
  const ofLength = (length: number) => `{"id":"${'a'.repeat(length - '{"id":""}'.length)}"}`;
  expect(expectParsed(ofLength(2_048))).toBe(true);
  expect(readFlatBody(Buffer.from(ofLength(2_049)), NAMES)).toBeUndefined();
});

test('reads no bytes of an earlier, longer body, and takes both kinds of memory', () => {
  const whole = Buffer.from('{"id":"abc","cost":12}');
  for (let cut = 0; cut < whole.length; cut++) {
    expect(readFlatBody(new Uint8Array(whole).buffer, NAMES)).toEqual({ id: 'abc', cost: 12 });
    expect(readFlatBody(whole.subarray(0, cut), NAMES)).toBeUndefined();
  }
});
