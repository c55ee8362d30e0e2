/**
 * POST /v1/ratelimits.reserve: one check or several that are counted at once, with a record that
 * corrects them later. Nothing is counted unless the whole body is valid and the key has the
 * permissions. Failures are ApiErrors, in the order 400, 403, 404.
 */

import Type, { type Static } from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { algorithmFields } from '../../../core/algorithm-fields.ts';
import { Bytes } from '../../../core/bytes.ts';
import type { Check } from '../../../core/check.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  NAME_MAX_BYTES,
  RESERVED_CHECKS_MAX,
} from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { encodeFragment, type JsonWriter } from '../../../core/json-writer.ts';
import { createValidator, field, integer, JSON_OBJECT } from '../../../core/schema.ts';
import { DEFAULT_RULE_V1, RULE } from '../../../core/window-rules.ts';
import type { Reservation } from '../../../engine/hold-engine.ts';
import { formatHoldId } from '../../../engine/hold-id.ts';
import { type BodyScanner, FIELD } from '../../common/body-scanner.ts';
import {
  CHECK_FIELDS,
  type CheckBody,
  CheckRequest,
  type CheckRules,
} from '../../common/check-request.ts';
import { durationField } from '../../common/counters.ts';
import {
  expiresAt,
  holderFields,
  isValidTtl,
  orNull,
  ttlField,
  writeExpiry,
  writeHoldId,
} from '../../common/holds.ts';
import { resolveNamespaces } from '../../common/listed-namespaces.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation, type Result } from '../../common/operation.ts';
import { requestIdField } from '../../common/repeatable.ts';
import { flagged, idText, limitFields, listOf } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  const checked = Type.Object({
    ...limitFields(),
    success: flagged('Whether this check alone would be allowed.'),
  });
  const { limit, remaining, reset } = limitFields();
  return Type.Object({
    success: flagged('Whether the tokens are reserved, of all checks.'),
    reservationId: orNull(
      idText('rlrs', ''),
      'Id of the reservation. `null` after a denial, and if the reservation is counted without a ' +
        'record, because there is no room for one and `WEIR_ON_FULL` is `allow`.',
    ),
    limit: Type.Optional(limit),
    remaining: Type.Optional(remaining),
    reset: Type.Optional(reset),
    checks: Type.Optional(
      listOf(checked, 'Only with `checks` in the request, in place of the three fields before.'),
    ),
    expiresAt: expiresAt('`null` without a `reservationId`.'),
  });
}

const checkFields = {
  ...holderFields,
  limit: field(integer(1, AMOUNT_MAX), CHECK_FIELDS.limit),
  duration: field(durationField(), CHECK_FIELDS.duration),
  ...algorithmFields(DEFAULT_RULE_V1),
  cost: field(
    integer(0, AMOUNT_MAX),
    'Tokens to reserve: the most that the work may use, as far as it is known.',
  ),
};
const ttl = ttlField('the reservation ends by itself, as `WEIR_ON_HOLD_EXPIRY` says');
const checks = field(
  Type.Array(Type.Object(checkFields, JSON_OBJECT), {
    minItems: 1,
    maxItems: RESERVED_CHECKS_MAX,
    accepts: `an array of 1 to ${RESERVED_CHECKS_MAX} checks`,
  }),
  'Several checks in place of the fields of one: all of them are counted, or none.',
);

const requestId = requestIdField();

const oneCheck = createValidator(Type.Object({ ...checkFields, ttl, requestId }, JSON_OBJECT));
type OneCheck = Static<(typeof oneCheck)['schema']>;
const severalChecks = createValidator(Type.Object({ checks, ttl, requestId }, JSON_OBJECT));

const operation = counterOperation({
  name: 'ratelimits.reserve',
  version: 'v1',
  requires: { action: 'limit', in: 'the namespace' },
  request: {
    ...Type.Partial(Type.Object(checkFields)).properties,
    checks: Type.Optional(checks),
    ttl,
    requestId,
  },
});

export const reserve: typeof operation = {
  ...operation,
  validator: {
    ...operation.validator,
    validate: (body) => {
      if (!hasChecks(body)) return oneCheck.validate(body);
      const valid = severalChecks.validate(body);
      for (const name of Object.keys(checkFields)) {
        if (Object.hasOwn(body, name)) throw eitherOr(name);
      }
      return valid;
    },
  },
};

function hasChecks(body: unknown): body is object {
  return typeof body === 'object' && body !== null && Object.hasOwn(body, 'checks');
}

function eitherOr(name: string): ApiError {
  const message = `"checks" must not have "${name}" beside it; got both`;
  const fix = 'give the fields of each check in "checks"; a requestId is for one check only';
  return new ApiError('BAD_REQUEST', message, { location: `body.${name}`, fix });
}

function requestIdInList(): ApiError {
  const message = '"requestId" must not be in a check of a list; got one';
  const fix = 'remove it; a requestId is for a reservation of one check only';
  return new ApiError('BAD_REQUEST', message, { location: 'body.requestId', fix });
}

interface ReserveRequest {
  checks: readonly CheckRequest[];
  ttlMs: number;
  /** Whether the checks were a list, so that the answer has one too. */
  isList: boolean;
}

/** Of a reserve of one check without an algorithm. */
const SCAN_RULES: CheckRules = {
  requiredFields: FIELD.identifier | FIELD.limit | FIELD.duration | FIELD.cost | FIELD.ttl,
  optionalFields: FIELD.namespace,
  identifierMinCharacters: 0,
  durationMaxMs: DURATION_MAX_MS,
};

/** Reads the reserves of a thread, all into one object that the next one overwrites. */
export class ReserveReader {
  readonly #scanner: BodyScanner;
  readonly #namespaces: NamespaceFinder;
  readonly #onUnknownFields: UnknownFieldListener<typeof reserve.name>;
  readonly #oneCheck: readonly [CheckRequest];
  readonly #listedChecks: readonly CheckRequest[];
  readonly #request: ReserveRequest;

  /** @param needsOverrideId whether events show it: the response does not */
  constructor(
    scanner: BodyScanner,
    namespaces: NamespaceFinder,
    onUnknownFields: UnknownFieldListener<typeof reserve.name>,
    needsOverrideId: boolean,
  ) {
    const newCheck = (memory: Bytes) => {
      return new CheckRequest(memory, RULE[DEFAULT_RULE_V1], needsOverrideId);
    };
    this.#scanner = scanner;
    this.#namespaces = namespaces;
    this.#onUnknownFields = onUnknownFields;
    this.#oneCheck = [newCheck(scanner.memory)];
    this.#listedChecks = Array.from({ length: RESERVED_CHECKS_MAX }, () => {
      return newCheck(new Bytes(NAME_MAX_BYTES));
    });
    this.#request = { checks: this.#oneCheck, ttlMs: 0, isList: false };
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): ReserveRequest {
    const request = this.#request;
    const [check] = this.#oneCheck;
    if (this.#scanner.scanBody(bytes) && this.#setFromScan(check)) {
      this.#setOne(key, check, this.#scanner.ttl);
      return request;
    }
    const body = readBody(reserve.validator, bytes, reserve.name, key, this.#onUnknownFields);
    if (body.checks === undefined) {
      // Without `checks` it was validated as one check.
      check.setFromBody(body as OneCheck, 0);
      this.#setOne(key, check, body.ttl);
      return request;
    }
    if (body.requestId !== undefined) throw eitherOr('requestId');
    request.checks = body.checks.map((item, index) => this.#readListed(item, index));
    request.ttlMs = body.ttl;
    request.isList = true;
    // Without a cost too: a commit may count in it.
    resolveNamespaces(this.#namespaces, key, request.checks, 'checks', true);
    return request;
  }

  /** @returns false if a rule of the operation may fail */
  #setFromScan(check: CheckRequest): boolean {
    return check.setFromScan(this.#scanner, SCAN_RULES) && isValidTtl(this.#scanner.ttl);
  }

  #setOne(key: Key, check: CheckRequest, ttlMs: number): void {
    const namespaces = this.#namespaces;
    const request = this.#request;
    request.checks = this.#oneCheck;
    request.ttlMs = ttlMs;
    request.isList = false;
    const { namespaceIdOrName } = check;
    check.namespace =
      namespaces.find(key, 'limit', namespaceIdOrName) ??
      namespaces.getOrCreate(namespaceIdOrName, true);
  }

  #readListed(item: CheckBody, index: number): CheckRequest {
    const check = this.#listedChecks[index];
    try {
      // An unknown field of a check. A client that believes in it would count twice.
      if (Object.hasOwn(item, 'requestId')) throw requestIdInList();
      check.setFromBody(item, 0);
    } catch (error) {
      throw error instanceof ApiError ? error.forListItem('checks', index) : error;
    }
    return check;
  }
}

const ALLOWED = encodeFragment('{"success":true,"reservationId":');
const DENIED = encodeFragment('{"success":false,"reservationId":');
const LIMIT = encodeFragment(',"limit":');
const REMAINING = encodeFragment(',"remaining":');
const RESET = encodeFragment(',"reset":');

/** Writes the body of the 200 for one check. */
export function writeReserveResult(
  writer: JsonWriter,
  { limit }: Pick<Check, 'limit'>,
  { allowed, decisions, id, expiresAt }: Reservation,
): void {
  const { remaining, reset } = decisions[0];
  writer.writeFragment(allowed ? ALLOWED : DENIED);
  writeHoldId(writer, id);
  writer.writeFragment(LIMIT);
  writer.writeInteger(limit);
  writer.writeFragment(REMAINING);
  writer.writeInteger(remaining);
  writer.writeFragment(RESET);
  writer.writeInteger(reset);
  writeExpiry(writer, id, expiresAt);
}

/** The body of the 200 for a list. */
export function listResult(
  checks: readonly Check[],
  { allowed: success, decisions, id, expiresAt }: Reservation,
): Result<typeof response> {
  const results = checks.map(({ limit }, number) => {
    const { allowed, remaining, reset } = decisions[number];
    return { success: allowed, limit, remaining, reset };
  });
  const reservationId = id === undefined ? null : formatHoldId(id);
  return {
    success,
    reservationId,
    checks: results,
    expiresAt: id === undefined ? null : expiresAt,
  };
}
