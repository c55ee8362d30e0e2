/**
 * What POST /v1/ratelimits.refund and /v1/ratelimits.reset take; both are weir's own. Failures are
 * ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../core/constants.ts';
import { ApiError } from '../../core/errors.ts';
import type { Namespace } from '../../core/namespace.ts';
import { createValidator, integer, milliseconds, text } from '../../core/schema.ts';
import { DEFAULT_NAMESPACE } from '../common/check-request.ts';
import { parseBody } from '../common/json.ts';
import type { CounterAction, NamespaceFinder } from '../common/namespace-finder.ts';

const JSON_OBJECT = { takes: 'a JSON object' };
const duration = milliseconds(DURATION_MIN_MS, DURATION_MAX_MS);
/** Whose counters: as a check of either version names them. */
const counterFields = {
  namespace: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
  identifier: text(0, IDENTIFIER_MAX_CHARACTERS),
};

const refundValidator = createValidator(
  Type.Object(
    {
      ...counterFields,
      duration,
      reset: integer(DURATION_MIN_MS, AMOUNT_MAX),
      cost: integer(0, AMOUNT_MAX),
    },
    JSON_OBJECT,
  ),
);
const resetValidator = createValidator(
  Type.Object({ ...counterFields, duration: Type.Optional(duration) }, JSON_OBJECT),
);

/** Whose counters. */
export interface CounterReference {
  namespace: Namespace;
  identifier: string;
}

export interface Refund extends CounterReference {
  /** As its check was asked: an override may have given it another. */
  durationMs: number;
  /** As its check was answered, Unix time in ms. */
  reset: number;
  cost: number;
}

export interface Reset extends CounterReference {
  /** As its checks are asked; undefined for all durations. */
  durationMs: number | undefined;
}

/** @param bytes the complete body */
export function readRefund(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): Refund {
  const body = refundValidator.validate(parseBody(bytes));
  const { duration: durationMs, reset, cost } = body;
  return { ...readCounterReference(namespaces, key, 'refund', body), durationMs, reset, cost };
}

/** @param durationMs that of the counter which there is */
export function resetMismatch(reset: number, durationMs: number): ApiError {
  const takes = `the "reset" that a check with this duration was answered, a multiple of it`;
  const message = `"reset" must be ${takes}; got ${reset} for ${durationMs} ms`;
  return new ApiError('BAD_REQUEST', message, { location: 'body.reset', fix: `give ${takes}` });
}

/** @param bytes the complete body */
export function readReset(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): Reset {
  const body = resetValidator.validate(parseBody(bytes));
  return { ...readCounterReference(namespaces, key, 'reset', body), durationMs: body.duration };
}

function readCounterReference(
  namespaces: NamespaceFinder,
  key: Key,
  action: CounterAction,
  { namespace: name = DEFAULT_NAMESPACE, identifier }: { namespace?: string; identifier: string },
): CounterReference {
  const namespace = namespaces.find(key, action, name) ?? namespaces.getOrCreate(name, false);
  return { namespace, identifier };
}
