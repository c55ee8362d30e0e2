/** The type and the bounds of a JSON Schema in words. */

import { numberText } from '../../src/api/texts/number-text.ts';
import type { Schema } from './openapi-types.ts';

/** For example `array of strings`. */
export function typeText(schema: Schema): string {
  const { type, items, anyOf, format } = schema;
  if (type === 'array' && items !== undefined) return `array of ${plural(typeText(items))}`;
  if (type === undefined && anyOf !== undefined) return anyOf.map(typeText).join(' or ');
  if (format === 'uri' || format === 'uri-reference') return 'URL';
  return type ?? 'any value';
}

function plural(type: string): string {
  return type.startsWith('array') ? type.replace('array', 'arrays') : `${type}s`;
}

/** For example `, 1 to 512 characters`. */
export function boundsText(schema: Schema): string {
  const { type } = schema;
  if (type === 'integer' || type === 'number') return range(schema.minimum, schema.maximum, '');
  if (type === 'string') return range(schema.minLength, schema.maxLength, ' characters');
  if (type === 'array') return range(schema.minItems, schema.maxItems, ' items');
  return '';
}

function range(minimum: number | undefined, maximum: number | undefined, unit: string): string {
  if (minimum === undefined && maximum === undefined) return '';
  if (maximum === undefined) return `, at least ${numberText(minimum ?? 0)}${unit}`;
  // A length of 0 is no bound.
  if (minimum === undefined || (minimum === 0 && unit !== '')) {
    return `, at most ${numberText(maximum)}${unit}`;
  }
  return `, ${numberText(minimum)} to ${numberText(maximum)}${unit}`;
}

/** The accepted values of a field, of the items of an array, or of one of several types. */
export function valuesOf(schema: Schema): readonly unknown[] | undefined {
  const nested = schema.items ?? schema.anyOf?.[0];
  return schema.enum ?? (nested && valuesOf(nested));
}

/** The schema that has the fields: an object, or the items of an array. */
export function fieldsOf(schema: Schema): Schema | undefined {
  if (schema.properties !== undefined) return schema;
  return schema.items === undefined ? undefined : fieldsOf(schema.items);
}
