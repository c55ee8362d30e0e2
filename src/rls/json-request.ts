/**
 * Reads a request of the rate limit service from proto3 JSON: names in camelCase or snake_case,
 * 64-bit numbers as numbers or as texts, enums by name or by number, null as an absent field. A
 * fault is a JsonFault, whose message names the field, what it must be and what it was.
 */

import { RLS_DESCRIPTORS_MAX, RLS_ENTRIES_MAX } from '../core/constants.ts';
import { formatValue } from '../core/describe.ts';
import type { RateLimitRequest, RequestDescriptor } from './wire/request.ts';
import { UNIT_NUMBER, type UnitName } from './wire/units.ts';

export class JsonFault extends Error {}

type Fields = Readonly<Record<string, unknown>>;

const UINT32_MAX = 0xffff_ffff;
const DIGITS = /^\d{1,20}$/;

/** @throws JsonFault */
export function readJsonRequest(body: Uint8Array): RateLimitRequest {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (error) {
    throw new JsonFault(`the body must be JSON in UTF-8: ${(error as Error).message}`);
  }
  const fields = readObject(value, 'the body', ['domain', 'descriptors', 'hitsAddend']);
  const descriptors = readList(fields.descriptors, 'descriptors', RLS_DESCRIPTORS_MAX);
  return {
    domain: readText(fields.domain, 'domain'),
    hitsAddend: readInteger(fields.hitsAddend, 'hitsAddend', UINT32_MAX) ?? 0,
    descriptorCount: descriptors.length,
    descriptors: descriptors.map((it, i) => readDescriptor(it, `descriptors[${i}]`)),
  };
}

function readDescriptor(value: unknown, name: string): RequestDescriptor {
  const known = ['entries', 'limit', 'hitsAddend', 'isNegativeHits'];
  const fields = readObject(value, name, known);
  const entries = readList(fields.entries, `${name}.entries`, RLS_ENTRIES_MAX).map((it, i) => {
    return readObject(it, `${name}.entries[${i}]`, ['key', 'value']);
  });
  const text = (field: 'key' | 'value') => (entry: Fields, i: number) => {
    return readText(entry[field], `${name}.entries[${i}].${field}`);
  };
  const limit = isAbsent(fields.limit) ? undefined : fields.limit;
  return {
    entryCount: entries.length,
    keys: entries.map(text('key')),
    values: entries.map(text('value')),
    hitsAddend:
      readInteger(fields.hitsAddend, `${name}.hitsAddend`, Number.POSITIVE_INFINITY) ?? -1,
    isNegativeHits: readBoolean(fields.isNegativeHits, `${name}.isNegativeHits`),
    ...readLimit(limit, `${name}.limit`),
  };
}

function readLimit(value: unknown, name: string) {
  if (value === undefined) return { limitUnit: -1, limitRequests: 0, limitUnitMultiplier: -1 };
  const fields = readObject(value, name, ['requestsPerUnit', 'unit', 'unitMultiplier']);
  const integer = (field: string) => readInteger(fields[field], `${name}.${field}`, UINT32_MAX);
  return {
    limitUnit: readUnit(fields.unit, `${name}.unit`),
    limitRequests: integer('requestsPerUnit') ?? 0,
    limitUnitMultiplier: integer('unitMultiplier') ?? -1,
  };
}

function readUnit(value: unknown, name: string): number {
  if (isAbsent(value) || value === 'UNKNOWN') return 0;
  if (typeof value === 'string' && Object.hasOwn(UNIT_NUMBER, value)) {
    return UNIT_NUMBER[value as UnitName];
  }
  if (typeof value === 'number') return readInteger(value, name, UINT32_MAX)!;
  throw fault(name, `one of ${Object.keys(UNIT_NUMBER).join(', ')}`, value);
}

function isAbsent(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

function fault(name: string, accepted: string, value: unknown): JsonFault {
  return new JsonFault(`${name} must be ${accepted}; got ${formatValue(value)}`);
}

/** @param known the names of the fields in camelCase. @returns the fields by these names */
function readObject(value: unknown, name: string, known: readonly string[]): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw fault(name, 'an object', value);
  }
  const fields: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) {
    const camelCase = key.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
    if (!known.includes(camelCase)) {
      throw new JsonFault(
        `${name} has the unknown field ${formatValue(key)}; known are ${known.join(', ')}`,
      );
    }
    if (Object.hasOwn(fields, camelCase)) {
      throw new JsonFault(`${name} has the field ${camelCase} twice`);
    }
    fields[camelCase] = field;
  }
  return fields;
}

function readList(value: unknown, name: string, most: number): readonly unknown[] {
  if (isAbsent(value)) return [];
  if (!Array.isArray(value)) throw fault(name, 'a list', value);
  if (value.length <= most) return value;
  throw new JsonFault(`${name} must have at most ${most} elements; got ${value.length}`);
}

function readText(value: unknown, name: string): string {
  if (isAbsent(value)) return '';
  if (typeof value === 'string' && value.isWellFormed()) return value;
  throw fault(name, 'a text in valid Unicode', value);
}

function readBoolean(value: unknown, name: string): boolean {
  if (isAbsent(value)) return false;
  if (typeof value === 'boolean') return value;
  throw fault(name, 'true or false', value);
}

/** @param most a larger number than Number.MAX_SAFE_INTEGER becomes that, if this is infinite */
function readInteger(value: unknown, name: string, most: number): number | undefined {
  if (isAbsent(value)) return undefined;
  const number = typeof value === 'string' && DIGITS.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isInteger(number) && number >= 0 && number <= most) {
    return Math.min(number, Number.MAX_SAFE_INTEGER);
  }
  const accepted = Number.isFinite(most) ? `an integer from 0 to ${most}` : 'an integer from 0';
  throw fault(name, accepted, value);
}
