/**
 * POST /v2/ratelimit.limit, a check by a sliding window unless the body names another algorithm:
 * reads a body to a valid check, and writes the body of the response from its decision. Nothing is
 * counted, and no namespace is created, unless the whole body is valid and the key has the
 * permission. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { algorithmFields } from '../../../core/algorithm-fields.ts';
import type { Check } from '../../../core/check.ts';
import {
  AMOUNT_MAX,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
  V2_DURATION_MAX_MS,
} from '../../../core/constants.ts';
import { type Decision, NEVER } from '../../../core/decision.ts';
import { encodeFragment, type JsonWriter } from '../../../core/json-writer.ts';
import { field, integer, milliseconds, text } from '../../../core/schema.ts';
import { DEFAULT_RULE, RULE } from '../../../core/window-rules.ts';
import { type BodyScanner, FIELD } from '../../common/body-scanner.ts';
import {
  CHECK_FIELDS,
  CheckRequest,
  type CheckRules,
  DEFAULT_COST,
} from '../../common/check-request.ts';
import { parseBody } from '../../common/input.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation } from '../../common/operation.ts';
import type { RequestIds } from '../../common/request-ids.ts';
import { amount, envelope, flagged, idText, limitFields } from '../../common/responses.ts';

/** Of a check, alone or in a list. */
export const checkFields = {
  namespace: field(
    text(1, NAMESPACE_MAX_CHARACTERS),
    'Name or id of the namespace. A text that begins with `rlns_` is an id. The first check of ' +
      'a new name, if it has a cost, creates the namespace.',
  ),
  identifier: field(text(1, IDENTIFIER_MAX_CHARACTERS), CHECK_FIELDS.identifier),
  limit: field(integer(1, AMOUNT_MAX), CHECK_FIELDS.limit),
  duration: field(milliseconds(DURATION_MIN_MS, V2_DURATION_MAX_MS), CHECK_FIELDS.duration),
  cost: Type.Optional(field(integer(0, AMOUNT_MAX), CHECK_FIELDS.cost, DEFAULT_COST)),
  ...algorithmFields(DEFAULT_RULE),
};

/** The rules of `checkFields` for a scanned check. */
export const CHECK_RULES: CheckRules = {
  requiredFields: FIELD.namespace | FIELD.identifier | FIELD.limit | FIELD.duration,
  optionalFields: FIELD.cost,
  identifierMinCharacters: 1,
  durationMaxMs: V2_DURATION_MAX_MS,
};

export function response() {
  return envelope(
    Type.Object({
      ...limitFields(),
      success: flagged('Whether the check is allowed.'),
      ...decisionFields(),
    }),
  );
}

/** What the response to a check says besides the state of its limit. */
export function decisionFields() {
  return {
    passesAt: Type.Optional(
      amount(
        'Of a denied check: the first time at which it would pass if no other is counted, in ' +
          'Unix milliseconds. Absent for an allowed check, and for one that can never pass: its ' +
          'cost, in a batch with the checks of the same counter before it, is above the limit or ' +
          'the burst.',
      ),
    ),
    overrideId: Type.Optional(
      idText('rlor', 'Id of the override that applied. Absent if none did.'),
    ),
  };
}

export const limitV2 = counterOperation({
  name: 'ratelimit.limit',
  version: 'v2',
  requires: { action: 'limit', in: 'the namespace' },
  request: checkFields,
});

/** @param memory has the bytes of identifiers */
export function newCheck(memory: CheckRequest['memory']): CheckRequest {
  return new CheckRequest(memory, RULE[DEFAULT_RULE], true);
}

/** Reads the checks of a thread, all into one object that the next check overwrites. */
export class CheckReaderV2 {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #check: CheckRequest;

  constructor(scanner: BodyScanner, namespaces: NamespaceFinder) {
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#check = newCheck(scanner.memory);
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): CheckRequest {
    const check = this.#check;
    const namespaces = this.#namespaces;
    const isScanned =
      this.#scanner.scanBody(bytes) && check.setFromScan(this.#scanner, CHECK_RULES);
    if (!isScanned) check.setFromBody(limitV2.validator.validate(parseBody(bytes)), 0);
    const { namespaceIdOrName, cost } = check;
    check.namespace =
      namespaces.find(key, 'limit', namespaceIdOrName) ??
      namespaces.getOrCreate(namespaceIdOrName, cost !== 0);
    return check;
  }
}

const META = encodeFragment('{"meta":{"requestId":"');
const LIMIT = encodeFragment('"},"data":{"limit":');
const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');
const PASSES_AT = encodeFragment(',"passesAt":');
const ALLOWED = encodeFragment(',"success":true');
const DENIED = encodeFragment(',"success":false');
const OVERRIDE = encodeFragment(',"overrideId":"');
const QUOTE = encodeFragment('"');
const END = encodeFragment('}}');

/** The body of the 200 response, valid until the next one is written. */
export function writeResponseV2(
  writer: JsonWriter,
  ids: RequestIds,
  check: Check,
  decision: Decision,
): Uint8Array {
  writer.seek(0);
  writer.writeFragment(META);
  ids.writeNext(writer);
  writer.writeFragment(LIMIT);
  writer.writeInteger(check.limit);
  writer.writeFragment(REMAINING);
  writer.writeInteger(decision.remaining);
  writer.writeFragment(RESET);
  writer.writeInteger(decision.reset);
  writer.writeFragment(decision.allowed ? ALLOWED : DENIED);
  writePassesAt(writer, decision);
  writeOverride(writer, check);
  writer.writeFragment(END);
  return writer.finish();
}

/** Only of a denied check that can pass later. Clients of other servers ignore the field. */
export function writePassesAt(writer: JsonWriter, { allowed, passesAt }: Decision): void {
  if (allowed || passesAt === NEVER) return;
  writer.writeFragment(PASSES_AT);
  writer.writeInteger(passesAt);
}

export function writeOverride(writer: JsonWriter, { overrideId }: Check): void {
  if (overrideId === undefined) return;
  writer.writeFragment(OVERRIDE);
  writer.writeAscii(overrideId);
  writer.writeFragment(QUOTE);
}
