/**
 * Makes validators from TypeBox schemas. The compiled schema checks every body; the first error of
 * an invalid body is found only then. Each field describes its values in the annotation `accepts`.
 * Failures are ApiErrors (400): the field, the value received, the values accepted.
 *
 * A schema is compiled at its first use: a thread loads many that it may never need, and compiling
 * one takes milliseconds and memory.
 *
 * A number is what `JSON.parse` returns, a double: 1.0 and 1e3 are integers; a value over 2^53-1,
 * negative zero, a fraction and an infinite value are not.
 */

import type { Static, TObject, TSchema } from 'typebox';
import Type from 'typebox';
import { Compile } from 'typebox/compile';
import { UNKNOWN_FIELDS_PER_KEY_MAX } from './constants.ts';
import { formatValue, shortName } from './describe.ts';
import { ApiError } from './errors.ts';

export const JSON_OBJECT = { accepts: 'a JSON object' };
export const QUERY = { accepts: 'a query' };

export interface Validator<S extends TObject> {
  /** What it checks, with `accepts` and the descriptions of the fields, for the documentation. */
  readonly schema: S;
  /** @returns the body. @throws ApiError (400) for its first invalid field, in schema order */
  validate(body: unknown): Static<S>;
  /** @returns up to UNKNOWN_FIELDS_PER_KEY_MAX names of fields that the schema does not have */
  unknownFields(body: unknown): readonly string[];
}

const NO_NAMES: readonly string[] = [];

/**
 * Its `validate` ignores fields that the schema does not have.
 * @param subject what an error calls the validated object
 */
export function createValidator<S extends TObject>(schema: S, subject = 'the body'): Validator<S> {
  let compiled: ReturnType<typeof Compile<S>> | undefined;
  const compile = () => {
    compiled ??= Compile(schema);
    return compiled;
  };
  const fields = Object.keys(schema.properties);
  const known = new Set(fields);
  const firstError = (body: unknown) => {
    const paths = compile()
      .Errors(truncateArrays(schema, body))
      .flatMap((error) => {
        if (error.keyword !== 'required') return [error.instancePath];
        return error.params.requiredProperties.map((name) => `${error.instancePath}/${name}`);
      });
    // In schema order; an error of the body itself comes before those of its fields.
    const indexOf = (path: string) => fields.indexOf(path.split('/')[1] ?? '');
    const [first] = paths.toSorted((a, b) => indexOf(a) - indexOf(b));
    if (first === undefined) throw new Error('an invalid body has no error');
    return errorAt(first, schema, body, subject);
  };
  return {
    schema,
    validate: (body) => {
      if (compile().Check(body)) return body;
      throw firstError(body);
    },
    // Bodies of checks pass here too: it allocates nothing unless there is such a field.
    unknownFields: (body) => {
      if (typeof body !== 'object' || body === null || Array.isArray(body)) return NO_NAMES;
      let names: string[] | undefined;
      for (const name in body) {
        if (known.has(name)) continue;
        names ??= [];
        if (names.push(name) === UNKNOWN_FIELDS_PER_KEY_MAX) break;
      }
      return names ?? NO_NAMES;
    },
  };
}

/** Rejects fields that the schema does not have, before it checks the others. */
export function createStrictValidator<S extends TObject>(
  schema: S,
  subject = 'the body',
): Validator<S> {
  const { validate, unknownFields } = createValidator(schema, subject);
  return {
    schema: { ...schema, additionalProperties: false },
    unknownFields,
    validate: (body) => {
      const name = unknownFields(body).at(0);
      if (name === undefined) return validate(body);
      const fix = `remove it; the fields are ${Object.keys(schema.properties).join(', ')}`;
      const message = `${formatValue(name)} is not a field of ${subject}`;
      throw new ApiError('BAD_REQUEST', message, { location: `body.${shortName(name)}`, fix });
    },
  };
}

/**
 * TypeBox reports the errors of all items of an array, however long it is. Only as many items as
 * the schema accepts, and one more, are checked for the first error, which is the same.
 */
function truncateArrays(schema: TObject, body: unknown): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  const entries = Object.entries(body).map(([name, value]) => {
    const maxItems = property(property(schema.properties, name), 'maxItems');
    const isLimited = Array.isArray(value) && typeof maxItems === 'number';
    return [name, isLimited ? value.slice(0, maxItems + 1) : value];
  });
  return Object.fromEntries(entries);
}

/** @param path a JSON pointer to the invalid field, '' for the body itself */
function errorAt(path: string, schema: TSchema, body: unknown, subject: string): ApiError {
  let accepts = acceptedBy(schema);
  let fieldSchema: unknown = schema;
  let value = body;
  let name = '';
  for (const step of path.split('/').slice(1)) {
    const isIndex = /^\d+$/.test(step) && Array.isArray(value);
    fieldSchema = isIndex
      ? property(fieldSchema, 'items')
      : property(property(fieldSchema, 'properties'), step);
    accepts = acceptedBy(fieldSchema);
    value = property(value, step);
    name += isIndex ? `[${step}]` : name === '' ? step : `.${step}`;
  }
  const what = name === '' ? subject : `"${name}"`;
  const location = name === '' ? 'body' : `body.${name}`;
  if (typeof value === 'string' && !value.isWellFormed()) {
    const message = `${what} must be well-formed Unicode; got a lone surrogate`;
    return new ApiError('BAD_REQUEST', message, { location, fix: 'remove the lone surrogate' });
  }
  const message =
    value === undefined
      ? `${what} is required: ${accepts}`
      : `${what} must be ${accepts}; got ${formatValue(value)}`;
  return new ApiError('BAD_REQUEST', message, { location, fix: `give ${accepts}` });
}

function acceptedBy(schema: unknown): string {
  const accepts = property(schema, 'accepts');
  if (typeof accepts !== 'string') throw new Error('a field has no annotation "accepts"');
  return accepts;
}

function property(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as Record<string, unknown>)[name];
}

/**
 * Adds what a field means, and the value that it has when a request leaves it out. Both are for the
 * documentation; no value is filled in.
 */
export function field<S extends TSchema>(
  schema: S,
  description: string,
  defaultValue?: string | number | boolean,
): S {
  const byDefault = defaultValue === undefined ? {} : { default: defaultValue };
  return Object.assign(schema, { description, ...byDefault });
}

export function integer(minimum: number, maximum: number, kind = 'an integer') {
  const type = Type.Integer({ minimum, maximum, accepts: `${kind} from ${minimum} to ${maximum}` });
  // `JSON.parse` turns -0 into negative zero, which passes as a minimum of 0.
  return minimum > 0 ? type : Type.Refine(type, (value) => !Object.is(value, -0));
}

/** A duration. Its error names the unit, since clients send seconds by mistake. */
export function milliseconds(minimum: number, maximum: number) {
  return integer(minimum, maximum, 'an integer number of milliseconds');
}

/** Text without lone surrogates: UTF-8 would encode all of them as the same character. */
export function text(minLength: number, maxLength: number, kind = 'a text') {
  const type = Type.String({
    minLength,
    maxLength,
    accepts: `${kind} of ${minLength} to ${maxLength} characters`,
  });
  return Type.Refine(type, (value) => value.isWellFormed());
}

export function flag() {
  return Type.Boolean({ accepts: 'true or false' });
}
