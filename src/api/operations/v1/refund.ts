/**
 * POST /v1/ratelimits.refund: returns tokens of a check to its window. Failures are ApiErrors, in
 * the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../../auth/keyring.ts';
import { algorithm } from '../../../core/algorithm-fields.ts';
import { AMOUNT_MAX, DURATION_MIN_MS } from '../../../core/constants.ts';
import { ApiError } from '../../../core/errors.ts';
import { field, integer } from '../../../core/schema.ts';
import { DEFAULT_RULE_V1, hasWindows, RULE, type RuleNumber } from '../../../core/window-rules.ts';
import { DEFAULT_NAMESPACE } from '../../common/check-request.ts';
import { type CounterReference, counterFields, durationField } from '../../common/counters.ts';
import type { NamespaceFinder } from '../../common/namespace-finder.ts';
import { counterOperation } from '../../common/operation.ts';
import { amount } from '../../common/responses.ts';
import { readBody, type UnknownFieldListener } from '../../common/unknown-fields.ts';

export function response() {
  return Type.Object({ refunded: amount('Tokens that were returned.') });
}

export const refund = counterOperation({
  name: 'ratelimits.refund',
  version: 'v1',
  requires: { action: 'refund', in: 'the namespace' },
  request: {
    ...counterFields,
    algorithm: algorithm('The `algorithm` of the check.', DEFAULT_RULE_V1),
    duration: field(
      durationField(),
      'The `duration` in the request of the check, in milliseconds, also if an override has ' +
        'replaced it.',
    ),
    reset: Type.Optional(
      field(
        integer(DURATION_MIN_MS, AMOUNT_MAX),
        'The `reset` in the response to the check, in Unix milliseconds. It is required unless ' +
          '`algorithm` is `gcra`, which ignores it.',
      ),
    ),
    cost: field(integer(0, AMOUNT_MAX), 'Tokens to return.'),
  },
});

export interface Refund extends CounterReference {
  /** The duration in the request of the check: an override may have given it another one. */
  durationMs: number;
  rule: RuleNumber;
  /** The `reset` in the response to the check, Unix time in ms; GCRA ignores it. */
  reset: number;
  cost: number;
}

/** @param bytes the complete body */
export function readRefund(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
  onUnknownFields: UnknownFieldListener<typeof refund.name>,
): Refund {
  const body = readBody(refund.validator, bytes, refund.name, key, onUnknownFields);
  const { namespace: name = DEFAULT_NAMESPACE, identifier, algorithm, reset = 0, cost } = body;
  const rule = RULE[algorithm ?? DEFAULT_RULE_V1];
  if (body.reset === undefined && hasWindows(rule)) throw resetMissing();
  const namespace = namespaces.find(key, 'refund', name) ?? namespaces.getOrCreate(name, false);
  return { namespace, identifier, durationMs: body.duration, rule, reset, cost };
}

const RESET = 'the "reset" in the response to a check with this duration, a multiple of it';

function resetMissing(): ApiError {
  const accepts = 'the "reset" in the response to the check';
  const message = `"reset" is required unless "algorithm" is "gcra": ${accepts}`;
  return new ApiError('BAD_REQUEST', message, { location: 'body.reset', fix: `give ${accepts}` });
}

/** @param durationMs that of the counter */
export function resetMismatch(reset: number, durationMs: number): ApiError {
  const message = `"reset" must be ${RESET}; got ${reset} for ${durationMs} ms`;
  return new ApiError('BAD_REQUEST', message, { location: 'body.reset', fix: `give ${RESET}` });
}
