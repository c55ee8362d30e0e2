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
import { AMOUNT_MAX, NAME_MAX_BYTES, RESERVED_CHECKS_MAX } from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { createValidator, field, integer, JSON_OBJECT } from '../../../core/schema.ts';
import { DEFAULT_RULE_V1, RULE } from '../../../core/window-rules.ts';
import type { Reservation } from '../../../engine/hold-engine.ts';
import { formatHoldId } from '../../../engine/hold-id.ts';
import { CHECK_FIELDS, CheckRequest } from '../../common/check-request.ts';
import { durationField } from '../../common/counters.ts';
import { expiresAt, holderFields, orNull, ttlField } from '../../common/holds.ts';
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

/** Reads the reservations of a thread, all into the same checks. */
export class ReserveReader {
  readonly #namespaces: NamespaceFinder;
  readonly #onUnknownFields: UnknownFieldListener<typeof reserve.name>;
  readonly #checks: CheckRequest[];

  /** @param needsOverrideId whether events show it: the response does not */
  constructor(
    namespaces: NamespaceFinder,
    onUnknownFields: UnknownFieldListener<typeof reserve.name>,
    needsOverrideId: boolean,
  ) {
    this.#namespaces = namespaces;
    this.#onUnknownFields = onUnknownFields;
    this.#checks = Array.from({ length: RESERVED_CHECKS_MAX }, () => {
      return new CheckRequest(new Bytes(NAME_MAX_BYTES), RULE[DEFAULT_RULE_V1], needsOverrideId);
    });
  }

  /** @param bytes the complete body */
  read(key: Key, bytes: ArrayBuffer | Uint8Array): ReserveRequest {
    const body = readBody(reserve.validator, bytes, reserve.name, key, this.#onUnknownFields);
    const isList = body.checks !== undefined;
    if (isList && body.requestId !== undefined) throw eitherOr('requestId');
    // Without `checks` it was validated as one check.
    const items = body.checks ?? [body as OneCheck];
    const checks = items.map((item, index) => {
      const check = this.#checks[index];
      try {
        // An unknown field of a check. A client that believes in it would count twice.
        if (isList && Object.hasOwn(item, 'requestId')) throw requestIdInList();
        check.setFromBody(item, 0);
      } catch (error) {
        throw isList && error instanceof ApiError ? error.forListItem('checks', index) : error;
      }
      return check;
    });
    // Without a cost too: a commit may count in it.
    if (isList) resolveNamespaces(this.#namespaces, key, checks, 'checks', true);
    else this.#resolveNamespace(key, checks[0]);
    return { checks, ttlMs: body.ttl, isList };
  }

  #resolveNamespace(key: Key, check: CheckRequest): void {
    const namespaces = this.#namespaces;
    const { namespaceIdOrName } = check;
    check.namespace =
      namespaces.find(key, 'limit', namespaceIdOrName) ??
      namespaces.getOrCreate(namespaceIdOrName, true);
  }
}

/** The body of the 200 for one check. */
export function reserveResult({ limit }: Check, reservation: Reservation) {
  const { allowed: success, decisions } = reservation;
  const { remaining, reset } = decisions[0];
  const { reservationId, expiresAt } = recordOf(reservation);
  return { success, reservationId, limit, remaining, reset, expiresAt } satisfies Result<
    typeof response
  >;
}

/** The body of the 200 for a list. */
export function listResult(
  checks: readonly Check[],
  reservation: Reservation,
): Result<typeof response> {
  const { allowed: success, decisions } = reservation;
  const { reservationId, expiresAt } = recordOf(reservation);
  const results = checks.map(({ limit }, number) => {
    const { allowed, remaining, reset } = decisions[number];
    return { success: allowed, limit, remaining, reset };
  });
  return { success, reservationId, checks: results, expiresAt };
}

function recordOf({ id, expiresAt }: Reservation) {
  if (id === undefined) return { reservationId: null, expiresAt: null };
  return { reservationId: formatHoldId(id), expiresAt };
}
