import Type from 'typebox';
import { expect, test } from 'vitest';
import { ApiError } from '../../src/core/errors.ts';
import {
  createStrictValidator,
  createValidator,
  flag,
  integer,
  JSON_OBJECT,
  text,
  type Validator,
} from '../../src/core/schema.ts';

const schema = Type.Object(
  {
    name: text(1, 3),
    count: integer(0, 9),
    items: Type.Optional(Type.Array(integer(1, 2), { maxItems: 2, accepts: 'at most 2 items' })),
    isOn: Type.Optional(flag()),
  },
  JSON_OBJECT,
);
const loose = createValidator(schema);
const strict = createStrictValidator(schema, 'an entry');

function errorOf(validator: Validator<typeof schema>, body: unknown): ApiError {
  try {
    validator.validate(body);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('the body is valid');
}

const valid = { name: 'a', count: 0 };

test('a validator returns a valid body itself', () => {
  expect(loose.validate(valid)).toBe(valid);
  expect(strict.validate(valid)).toBe(valid);
});

test.each<[body: unknown, message: string, location: string]>([
  ['x', 'the body must be a JSON object; got "x"', 'body'],
  [undefined, 'the body is required: a JSON object', 'body'],
  [{ name: 'a' }, '"count" is required: an integer from 0 to 9', 'body.count'],
  [{ ...valid, count: 10 }, '"count" must be an integer from 0 to 9; got 10', 'body.count'],
  [{ ...valid, count: -0 }, '"count" must be an integer from 0 to 9; got -0', 'body.count'],
  [
    { ...valid, items: [1, 3] },
    '"items[1]" must be an integer from 1 to 2; got 3',
    'body.items[1]',
  ],
  [
    { ...valid, items: Array(100_000).fill(1) },
    '"items" must be at most 2 items; got an array of 100000',
    'body.items',
  ],
  [
    { ...valid, name: '\ud800' },
    '"name" must be well-formed Unicode; got a lone surrogate',
    'body.name',
  ],
  // Of two errors the first in the order of the schema.
  [{ count: 10, name: 5 }, '"name" must be ', 'body.name'],
])('an error about %.60j names the field, what is accepted and what was received', (...of) => {
  const [body, message, location] = of;
  const error = errorOf(loose, body);
  expect(error.message).toContain(message);
  expect([error.code, error.faultLocation?.location]).toEqual(['BAD_REQUEST', location]);
});

test('unknown fields are ignored, and rejected first by a strict validator', () => {
  const body = { name: 5, count: 0, more: 1 };
  expect(loose.validate({ ...valid, more: 1 })).toMatchObject(valid);
  const error = errorOf(strict, body);
  expect(error.message).toBe('"more" is not a field of an entry');
  expect(error.faultLocation).toEqual({
    location: 'body.more',
    fix: 'remove it; the fields are name, count, items, isOn',
  });
});

test('the location of an error shows a long field name cut', () => {
  const { faultLocation } = errorOf(strict, { ...valid, ['x'.repeat(100)]: 1 });
  expect(faultLocation?.location).toBe(`body.${'x'.repeat(64)}...`);
});
