/**
 * From a TypeBox schema to two functions: `check`, compiled, for every body, and `fault`, which
 * says what is wrong with one that failed. Each field says what it takes in its `takes`.
 *
 * A number is read as `JSON.parse` reads it, a double: 1.0 and 1e3 are integers, and what is beyond
 * 2^53-1, negative zero, a fraction or not finite is none.
 */

import type { Static, TObject, TSchema } from 'typebox';
import Type from 'typebox';
import { Compile } from 'typebox/compile';
import { formatValue } from './describe.ts';
import { ApiError } from './errors.ts';

/** Longer names of fields that there are not are shown cut. */
const SHOWN_NAME_MAX = 64;

export interface Validator<S extends TObject> {
  schema: S;
  isValid(body: unknown): body is Static<S>;
  /** The body, when it is in order. @throws ApiError (400) */
  validate(body: unknown): Static<S>;
  /** For the first field at fault: what it must be and what it was, or that it is missing. */
  firstError(body: unknown): ApiError;
}

/**
 * Ignores keys that the schema does not have.
 * @param subject what an error calls that which is read
 */
export function createValidator<S extends TObject>(schema: S, subject = 'the body'): Validator<S> {
  const compiled = Compile(schema);
  const fields = Object.keys(schema.properties);
  const isValid = (body: unknown): body is Static<S> => compiled.Check(body);
  const firstError = (body: unknown) => {
    const paths = compiled.Errors(truncateArrays(schema, body)).flatMap((error) => {
      if (error.keyword !== 'required') return [error.instancePath];
      return error.params.requiredProperties.map((name) => `${error.instancePath}/${name}`);
    });
    // The first in the order of the schema; the body itself comes before its fields.
    const place = (path: string) => fields.indexOf(path.split('/')[1] ?? '');
    const [first] = paths.toSorted((a, b) => place(a) - place(b));
    if (first === undefined) throw new Error('no fault in a body that failed');
    return errorAt(first, schema, body, subject);
  };
  const validate = (body: unknown) => {
    if (isValid(body)) return body;
    throw firstError(body);
  };
  return { schema, isValid, validate, firstError };
}

/** Refuses keys that the schema does not have, before it looks at the others. */
export function createStrictValidator<S extends TObject>(
  schema: S,
  subject = 'the body',
): Validator<S> {
  const loose = createValidator(schema, subject);
  const fields = new Set(Object.keys(schema.properties));
  const stranger = (body: object) => {
    for (const name in body) if (!fields.has(name)) return name;
    return undefined;
  };
  const isValid = (body: unknown): body is Static<S> => {
    return loose.isValid(body) && stranger(body) === undefined;
  };
  const firstError = (body: unknown) => {
    const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
    const name = isObject ? stranger(body) : undefined;
    if (name === undefined) return loose.firstError(body);
    const fix = `leave it out; the fields are ${[...fields].join(', ')}`;
    const message = `${formatValue(name)} is not a field of ${subject}`;
    const shown = name.length <= SHOWN_NAME_MAX ? name : `${name.slice(0, SHOWN_NAME_MAX)}...`;
    return new ApiError('BAD_REQUEST', message, { location: `body.${shown}`, fix });
  };
  const validate = (body: unknown) => {
    if (isValid(body)) return body;
    throw firstError(body);
  };
  return { ...loose, isValid, validate, firstError };
}

/**
 * TypeBox looks for the faults of all items of an array, however many too many they are: it is
 * shown one more than the schema takes, which has the same first fault.
 */
function truncateArrays(schema: TObject, body: unknown): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const short = Object.entries(body).map(([name, value]) => {
    const maxItems = property(property(schema.properties, name), 'maxItems');
    const cut = Array.isArray(value) && typeof maxItems === 'number';
    return [name, cut ? value.slice(0, maxItems + 1) : value];
  });
  return Object.fromEntries(short);
}

/** @param path a JSON pointer to the field at fault, '' for the body itself */
function errorAt(path: string, schema: TSchema, body: unknown, subject: string): ApiError {
  const steps = path.split('/').slice(1);
  let takes = acceptedBy(schema);
  let at: unknown = schema;
  let value = body;
  let name = '';
  for (const step of steps) {
    const index = /^\d+$/.test(step) && Array.isArray(value);
    at = index ? property(at, 'items') : property(property(at, 'properties'), step);
    takes = acceptedBy(at);
    value = property(value, step);
    name += index ? `[${step}]` : name === '' ? step : `.${step}`;
  }
  const what = name === '' ? subject : `"${name}"`;
  const location = name === '' ? 'body' : `body.${name}`;
  if (typeof value === 'string' && !value.isWellFormed()) {
    const message = `${what} holds text that is not well-formed Unicode`;
    return new ApiError('BAD_REQUEST', message, { location, fix: 'give no lone surrogate' });
  }
  const message =
    value === undefined
      ? `${what} is required: ${takes}`
      : `${what} must be ${takes}; got ${formatValue(value)}`;
  return new ApiError('BAD_REQUEST', message, { location, fix: `give ${takes}` });
}

function acceptedBy(schema: unknown): string {
  const takes = property(schema, 'takes');
  if (typeof takes !== 'string') throw new Error('a field does not say what it takes');
  return takes;
}

function property(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as Record<string, unknown>)[name];
}

export function integer(minimum: number, maximum: number, kind = 'an integer') {
  const type = Type.Integer({ minimum, maximum, takes: `${kind} from ${minimum} to ${maximum}` });
  // What `JSON.parse` makes of -0 lies between the bounds.
  return minimum > 0 ? type : Type.Refine(type, (value) => !Object.is(value, -0));
}

/** A duration: clients give seconds by mistake, so its error names the unit. */
export function milliseconds(minimum: number, maximum: number) {
  return integer(minimum, maximum, 'an integer number of milliseconds');
}

/** Text without lone surrogates: in UTF-8 each of them would become the same character. */
export function text(minLength: number, maxLength: number) {
  const type = Type.String({
    minLength,
    maxLength,
    takes: `a text of ${minLength} to ${maxLength} characters`,
  });
  return Type.Refine(type, (value) => value.isWellFormed());
}

export function flag() {
  return Type.Boolean({ takes: 'true or false' });
}
