/**
 * What POST /v1/ratelimits.refund and /v1/ratelimits.reset take; both are weir's own. Failures are
 * ApiErrors, in the order 400, 403, 404.
 */

import Type from 'typebox';
import type { Key } from '../../auth/keyring.ts';
import type { Check } from '../../decide/decider.ts';
import { ApiError } from '../../errors.ts';
import {
  AMOUNT_MAX,
  DURATION_MAX_MS,
  DURATION_MIN_MS,
  IDENTIFIER_MAX_CHARACTERS,
  NAMESPACE_MAX_CHARACTERS,
} from '../../limits.ts';
import type { CounterAction, NamespaceFinder } from '../finder.ts';
import { parseBody } from '../json.ts';
import { bodyReader, integer, requireNoNegativeZero, text } from '../schema.ts';
import { DEFAULT_NAMESPACE } from './limit.ts';

const JSON_OBJECT = { takes: 'a JSON object' };
const duration = integer(DURATION_MIN_MS, DURATION_MAX_MS);
/** Whose counters: as a check of either version names them. */
const who = {
  namespace: Type.Optional(text(1, NAMESPACE_MAX_CHARACTERS)),
  identifier: text(0, IDENTIFIER_MAX_CHARACTERS),
};

const refundReader = bodyReader(
  Type.Object(
    {
      ...who,
      duration,
      reset: integer(DURATION_MIN_MS, AMOUNT_MAX),
      cost: integer(0, AMOUNT_MAX),
    },
    JSON_OBJECT,
  ),
);
const resetReader = bodyReader(
  Type.Object({ ...who, duration: Type.Optional(duration) }, JSON_OBJECT),
);

export interface Refund {
  /** The check as it was asked: an override may have given it another duration. */
  check: Check;
  /** What it was answered, Unix time in ms. */
  reset: number;
}

/** @param bytes the complete body */
export function readRefund(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): Refund {
  const body = refundReader.read(parseBody(bytes));
  requireNoNegativeZero(refundReader, '/cost', body.cost, body);
  const check = checkOf(namespaces, key, 'refund', body, body.duration);
  return { check: { ...check, cost: body.cost }, reset: body.reset };
}

/** @param durationMs that which the counters are kept by, as far as is known */
export function notOfDuration(reset: number, durationMs: number): ApiError {
  const takes = `the "reset" that a check with this duration was answered, a multiple of it`;
  const message = `"reset" must be ${takes}, got ${reset} for ${durationMs} ms`;
  return new ApiError('BAD_REQUEST', message, { location: 'body.reset', fix: `give ${takes}` });
}

/** @returns a check of those counters; undefined durations are all of them */
export function readReset(
  namespaces: NamespaceFinder,
  key: Key,
  bytes: ArrayBuffer | Uint8Array,
): { check: Check; ofAllDurations: boolean } {
  const body = resetReader.read(parseBody(bytes));
  const check = checkOf(namespaces, key, 'reset', body, body.duration ?? DURATION_MIN_MS);
  return { check, ofAllDurations: body.duration === undefined };
}

function checkOf(
  namespaces: NamespaceFinder,
  key: Key,
  action: CounterAction,
  { namespace: name = DEFAULT_NAMESPACE, identifier }: { namespace?: string; identifier: string },
  durationMs: number,
): Check {
  const namespace = namespaces.find(key, action, name) ?? namespaces.toUse(name, false);
  const asked = { limit: 0, durationMs, cost: 0, isSliding: false, isAsync: false };
  return { namespace, identifier, ...asked, overrideId: undefined };
}
