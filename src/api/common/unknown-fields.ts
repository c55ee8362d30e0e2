/**
 * Fields of valid requests of v1 that their operation does not have. v1 ignores them, since clients
 * may send fields of other servers. They are counted by operation, and logged once for each key and
 * field: otherwise nobody would know of a misspelt field, which changes nothing.
 */

import type { Static, TObject } from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import { UNKNOWN_FIELDS_MAX, UNKNOWN_FIELDS_PER_KEY_MAX } from '../../core/constants.ts';
import { shortName } from '../../core/describe.ts';
import type { Validator } from '../../core/schema.ts';
import { parseBody } from './input.ts';

/** Takes the unknown fields of one request. */
export type UnknownFieldListener<Operation extends string> = (
  operation: Operation,
  keyId: string,
  names: readonly string[],
) => void;

/** A field to log. */
export interface UnknownField {
  operation: string;
  keyId: string;
  /** As `shownField` returns it. */
  field: string;
}

/** The name of a field as the log shows it: a copy, escaped as in JSON, and cut. */
export function shownField(name: string): string {
  return JSON.stringify(shortName(name)).slice(1, -1);
}

/** Parses and validates the body of an operation on counters. @throws ApiError (400) */
export function readBody<S extends TObject, Operation extends string>(
  validator: Validator<S>,
  bytes: ArrayBuffer | Uint8Array,
  operation: Operation,
  { id }: Key,
  onUnknownFields: UnknownFieldListener<Operation>,
): Static<S> {
  const body = validator.validate(parseBody(bytes));
  const names = validator.unknownFields(body);
  if (names.length > 0) onUnknownFields(operation, id, names);
  return body;
}

/** Remembers a bounded number of fields, so that each is reported once. */
export class ReportedFields {
  readonly #byKey = new Map<string, Set<string>>();
  #size = 0;

  /** @returns whether the field of the key is new; false where there is no room for it */
  add(keyId: string, field: string): boolean {
    const fields = this.#byKey.get(keyId) ?? new Set();
    if (fields.has(field)) return false;
    // One client that sends ever new fields leaves room for the others.
    if (fields.size === UNKNOWN_FIELDS_PER_KEY_MAX || this.#size === UNKNOWN_FIELDS_MAX) {
      return false;
    }
    this.#byKey.set(keyId, fields.add(field));
    this.#size++;
    return true;
  }
}
