/** Holds in requests and responses: their fields, and the error for an unknown one. */

import Type, { type TSchema } from 'typebox';
import {
  HOLD_ID_MAX_CHARACTERS,
  HOLD_TTL_MAX_MS,
  HOLD_TTL_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../core/constants.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';
import { encodeFragment, type JsonWriter } from '../../core/json-writer.ts';
import { field, milliseconds, text } from '../../core/schema.ts';
import { encodeHoldId, HOLD_KIND, type HoldId, type HoldKind } from '../../engine/hold-id.ts';
import { CHECK_FIELDS, DEFAULT_NAMESPACE } from './check-request.ts';
import { amount } from './responses.ts';

/** Of requests that make a hold. Unlike a correction, they create the namespace. */
export const holderFields = {
  namespace: Type.Optional(
    field(
      text(1, NAMESPACE_MAX_CHARACTERS),
      'Name or id of the namespace. A text that begins with `rlns_` is an id. A new name creates ' +
        'the namespace.',
      DEFAULT_NAMESPACE,
    ),
  ),
  identifier: field(text(0, IDENTIFIER_MAX_CHARACTERS), CHECK_FIELDS.identifier),
};

/** @param meaning what happens when the time has passed */
export function ttlField(meaning: string) {
  return field(
    milliseconds(HOLD_TTL_MIN_MS, HOLD_TTL_MAX_MS),
    `Time in milliseconds after which ${meaning}.`,
  );
}

/** Whether a scanned `ttl` is one that `ttlField` accepts. */
export function isValidTtl(ms: number): boolean {
  return ms >= HOLD_TTL_MIN_MS && ms <= HOLD_TTL_MAX_MS;
}

export function reservationIdField() {
  return field(
    text(1, HOLD_ID_MAX_CHARACTERS, 'the "reservationId" of a reserve, a text'),
    'The `reservationId` in the response to the reserve.',
  );
}

export function leaseIdField() {
  return field(
    text(1, HOLD_ID_MAX_CHARACTERS, 'the "leaseId" of an acquire, a text'),
    'The `leaseId` in the response to the acquire.',
  );
}

export function orNull<S extends TSchema>(schema: S, description: string) {
  return Type.Union([schema, Type.Null()], { description });
}

/** @param when it is null */
export function expiresAt(when: string) {
  return orNull(amount(''), `Time at which it ends by itself, in Unix milliseconds. ${when}`);
}

const NULL = encodeFragment('null');
const QUOTE = encodeFragment('"');
const EXPIRES_AT = encodeFragment(',"expiresAt":');
const END = encodeFragment('}');

/** Writes the id of a hold, or `null`. */
export function writeHoldId(writer: JsonWriter, id: HoldId | undefined): void {
  if (id === undefined) {
    writer.writeFragment(NULL);
    return;
  }
  writer.writeFragment(QUOTE);
  writer.writeBytes(encodeHoldId(id));
  writer.writeFragment(QUOTE);
}

/** Writes `expiresAt`, `null` without a hold, as the last field of a response. */
export function writeExpiry(writer: JsonWriter, id: HoldId | undefined, ms: number): void {
  writer.writeFragment(EXPIRES_AT);
  if (id === undefined) writer.writeFragment(NULL);
  else writer.writeInteger(ms);
  writer.writeFragment(END);
}

/** What requests, responses and messages call the kinds of holds. */
export const HOLD_KINDS = {
  [HOLD_KIND.reservation]: 'reservation',
  [HOLD_KIND.lease]: 'lease',
} as const;

export function holdKind() {
  return Type.Enum(Object.values(HOLD_KINDS), { description: 'What it is.' });
}

/** @param identifier of the request */
export function noLiveHold(handle: string, identifier: string): ApiError {
  const who = formatValue(identifier);
  const message = `${who} has no live reservation or lease with the handle ${formatValue(handle)}`;
  return new ApiError('NOT_FOUND', message);
}

/** The same error for a hold in a namespace that the key may not use: it reveals no holds. */
export function holdNotFound(kind: HoldKind, id: string): ApiError {
  const name = HOLD_KINDS[kind];
  return new ApiError(
    'NOT_FOUND',
    `there is no ${name} ${formatValue(id)}, it ended more than 10 minutes ago, or the API key ` +
      'lacks the permission "limit" in its namespace',
  );
}
